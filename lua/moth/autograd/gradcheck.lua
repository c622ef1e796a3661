--- gradcheck.lua -- compares gradients with finite differences, in float64.
--
--   moth.autograd.gradcheck(function(x) return (x * x):sum() end, x)            true, or raises
--   moth.autograd.gradgradcheck(moth.sin, {x})                                  second derivatives
--
-- For every element of every input that requires grad, f is evaluated at x - eps and x + eps. The
-- difference quotient of each element of each result is compared with the gradient from backward.

local autograd = require "moth.autograd"
local bind = require "moth.binding.bind"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local ops, istensor = bind.ops, lib.istensor
local abs, concat = math.abs, table.concat

local checks = {}

local F64 = lib.C.MOTH_F64
local FLOATS = lib.C.MOTH_F16 -- the first floating-point dtype

local function options_of(fname, options)
  local known = {eps = 1e-6, atol = 1e-5, rtol = 1e-3, raise_exception = true,
                 nondet_tol = 0, grad_outputs = false}
  local result = {}
  for name, value in pairs(known) do result[name] = value end
  if options == nil then return result end
  if type(options) ~= "table" then
    errors.refuse(fname, "options", "a table of named options is needed", options)
  end
  local names = {}
  for name in pairs(known) do names[#names + 1] = name end
  for name, value in pairs(options) do
    if known[name] == nil then
      errors.raise("'" .. fname .. "' has no argument '" .. tostring(name) .. "'"
        .. errors.nearest(name, names))
    end
    if type(known[name]) == "number" and not (type(value) == "number" and value >= 0) then
      errors.refuse(fname, name, "a number from 0 on is needed", value, "E_DOMAIN")
    end
    result[name] = value
  end
  if result.eps == 0 then
    errors.refuse(fname, "eps", "a number above 0 is needed", 0, "E_DOMAIN")
  end
  return result
end

local function as_list(value)
  if istensor(value) then return {value} end
  return value
end

-- Returns true if several positions of a tensor share an element: it cannot be changed for one
-- position.
local function overlaps(x)
  local info = lib.inspect(x)
  for d = 0, info.ndim - 1 do
    if info.stride[d] == 0 and info.shape[d] > 1 then return true end
  end
  return false
end

local function checked_inputs(fname, inputs)
  local list, any = as_list(inputs), false
  if type(list) ~= "table" then
    errors.refuse(fname, "inputs", "a tensor or a list is needed", inputs)
  end
  local checked = {}
  for i = 1, #list do
    local x = list[i]
    if istensor(x) and x.requires_grad then
      if lib.inspect(x).dtype ~= F64 then
        errors.argument(fname, "inputs", "input " .. i .. " is " .. errors.describe(x)
          .. "; finite differences need float64", "E_DTYPE")
      end
      if overlaps(x) then
        errors.argument(fname, "inputs", "input " .. i .. " is expanded, its elements overlap; "
          .. "expand it inside the function", "E_ALIAS")
      end
      checked[#checked + 1] = {x = x, place = i, sizes = x.shape}
      any = true
    end
  end
  if not any then errors.argument(fname, "inputs", "none of them requires grad") end
  return list, checked
end

-- All floating results of f, in order.
local function results_of(f, list)
  local results, floats = {f(unpack(list, 1, #list))}, {}
  if #results == 1 and lib.is_plain(results[1]) then
    results = results[1]
  end
  for i = 1, #results do
    local y = results[i]
    if istensor(y) and lib.inspect(y).dtype >= FLOATS then floats[#floats + 1] = y end
  end
  return floats
end

local function values_of(y)
  local flat = ops.reshape(y:detach(), {-1})
  return flat:tolist()
end

-- Calls visit(position) for every position of a tensor of these sizes, as an index table.
local function each_position(sizes, visit)
  local position, ndim = {}, #sizes
  local count = 1
  for d = 1, ndim do
    position[d], count = 1, count * sizes[d]
  end
  for _ = 1, count do
    visit(position)
    for d = ndim, 1, -1 do
      position[d] = position[d] + 1
      if position[d] <= sizes[d] then break end
      position[d] = 1
    end
  end
end

-- Numeric derivatives of all elements of all results by one element (central differences).
local function numeric(f, list, input, position, eps)
  local cell = input.x.data
  for d = 1, #position do cell = ops.select(cell, 1, position[d]) end
  local value = cell:item()
  local function at(v)
    ops.fill_(cell, v)
    return autograd.no_grad(function()
      local values = {}
      for k, y in ipairs(results_of(f, list)) do values[k] = values_of(y) end
      return values
    end)
  end
  local ok, up, down = pcall(function() return at(value + eps), at(value - eps) end)
  ops.fill_(cell, value)
  if not ok then error(up, 0) end
  for k = 1, #up do
    for i = 1, #up[k] do up[k][i] = (up[k][i] - down[k][i]) / (2 * eps) end
  end
  return up
end

-- The gradient of every checked input by each element of result y: a list per element of y.
local function analytic(y, checked)
  local xs, rows = {}, {}
  for i, input in ipairs(checked) do xs[i] = input.x end
  local count = tonumber(lib.inspect(y).numel)
  local sizes = y.shape
  for k = 1, count do
    local row = {}
    if y.requires_grad then
      local seed = autograd.no_grad(function()
        local zeros = ops.zeros {count, dtype = y.dtype}
        ops.fill_(ops.select(zeros, 1, k), 1)
        return ops.view(zeros, sizes)
      end)
      local grads = {autograd.grad({y}, xs, {grad_outputs = {seed}, retain_graph = true,
                                             allow_unused = true})}
      for i = 1, #xs do row[i] = grads[i] and values_of(grads[i]:to_dense()) or false end
    else
      for i = 1, #xs do row[i] = false end
    end
    rows[k] = row
  end
  return rows
end

local function close(a, n, options)
  if a ~= a or n ~= n then return false end
  return a == n or abs(a - n) <= options.atol + options.rtol * abs(n)
end

local function position_text(sizes, flat)
  local parts = {}
  flat = flat - 1
  for d = #sizes, 1, -1 do
    parts[d] = tostring(flat % sizes[d] + 1)
    flat = (flat - flat % sizes[d]) / sizes[d]
  end
  return "{" .. concat(parts, ", ") .. "}"
end

local function excess(a, n, options)
  if a ~= a or n ~= n then return math.huge end
  return abs(a - n) / (options.atol + options.rtol * abs(n))
end

-- The largest error over all elements, or nil.
local function compare(f, list, checked, results, options)
  local gradients, worst = {}, nil
  for k, y in ipairs(results) do gradients[k] = analytic(y, checked) end
  for i, input in ipairs(checked) do
    local flat = 0
    each_position(input.sizes, function(position)
      flat = flat + 1
      local slopes = numeric(f, list, input, position, options.eps)
      for k = 1, #results do
        for e = 1, #gradients[k] do
          local row = gradients[k][e][i]
          local a, n = row and row[flat] or 0, slopes[k][e]
          if not close(a, n, options) then
            local by = excess(a, n, options)
            if not worst or by > worst.by then
              worst = {by = by, a = a, n = n, input = input, flat = flat, result = k, element = e,
                       sizes = results[k].shape}
            end
          end
        end
      end
    end)
  end
  return worst
end

local function same(a, b, tolerance)
  for k = 1, #a do
    local p, q = values_of(a[k]), values_of(b[k])
    for i = 1, #p do
      if p[i] == p[i] and abs(p[i] - q[i]) > tolerance then return false end
    end
  end
  return #a == #b
end

local function check(fname, f, inputs, options)
  local list, checked = checked_inputs(fname, inputs)
  local results = autograd.enable_grad(results_of, f, list)
  if #results == 0 then errors.argument(fname, "f", "it returned no floating tensor") end
  if not same(results, autograd.enable_grad(results_of, f, list), options.nondet_tol) then
    errors.raise(fname .. ": the function returns other values in a second call with the same "
      .. "inputs; finite differences need equal values")
  end
  local worst = compare(f, list, checked, results, options)
  if not worst then return true end
  if not options.raise_exception then return false end
  errors.raise(("%s: the gradient of result %d at %s by input %d at %s is %.9g, but finite "
    .. "differences give %.9g"):format(fname, worst.result,
      position_text(worst.sizes, worst.element), worst.input.place,
      position_text(worst.input.sizes, worst.flat), worst.a, worst.n), "E_DOMAIN")
end

--- Checks the gradients of f at the inputs against finite differences.
-- @param f function of the inputs that returns one or more tensors
-- @param inputs a tensor or a list of arguments; tensors that require grad are checked and must be
-- float64
-- @param options table of: eps (the step, 1e-6), atol (1e-5), rtol (1e-3), nondet_tol (allowed
-- difference of two calls, 0), raise_exception (true; false returns false instead)
-- @return true; raises with the worst element's position and both numbers.
-- (As torch.autograd.gradcheck.)
function checks.gradcheck(f, inputs, options)
  return check("gradcheck", f, inputs, options_of("gradcheck", options))
end

-- Fixed pseudo-random weights: a regular pattern could hide an error of the gradient.
local function weights_like(y, salt)
  local count, values = tonumber(lib.inspect(y).numel), {}
  for i = 1, count do values[i] = math.cos(1.7 * i + salt) + 0.3 end
  local create = require "moth.tensor.create"
  local w = count > 0 and create.convert("gradgradcheck", values, F64)
    or ops.zeros {0, dtype = y.dtype}
  return ops.view(w, y.shape):requires_grad_()
end

--- Checks the second derivatives of f at the inputs: gradcheck of its gradient, with respect to the
-- inputs and the gradients of the results.
-- @param f as for gradcheck
-- @param inputs as for gradcheck
-- @param options as for gradcheck, and grad_outputs (a list of float64 tensors; generated if
-- absent)
-- @return true, or raises like gradcheck. (As torch.autograd.gradgradcheck.)
function checks.gradgradcheck(f, inputs, options)
  options = options_of("gradgradcheck", options)
  local list, checked = checked_inputs("gradgradcheck", inputs)
  local results = autograd.enable_grad(results_of, f, list)
  local weights, n = as_list(options.grad_outputs) or {}, #list
  local all, places = {}, {}
  for i = 1, n do all[i] = list[i] end
  for k, y in ipairs(results) do
    if y.requires_grad then
      places[#places + 1] = k
      all[n + #places] = weights[k] or weights_like(y, k)
    end
  end
  if #places == 0 then
    errors.argument("gradgradcheck", "f", "no result of it requires grad")
  end
  local function gradient(...)
    local args, ys, ws, xs = {...}, {}, {}, {}
    return autograd.enable_grad(function()
      local again = results_of(f, {unpack(args, 1, n)})
      for i, k in ipairs(places) do ys[i], ws[i] = again[k], args[n + i] end
      for i, input in ipairs(checked) do xs[i] = args[input.place] end
      local grads = {autograd.grad(ys, xs, {grad_outputs = ws, create_graph = true,
                                            allow_unused = true})}
      local present = {}
      for i = 1, #xs do
        if grads[i] then present[#present + 1] = grads[i] end
      end
      return present
    end)
  end
  if #gradient(unpack(all)) == 0 then return true end -- no gradient to differentiate
  return check("gradgradcheck", gradient, all, options)
end

return checks
