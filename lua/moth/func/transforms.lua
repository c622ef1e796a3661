--- transforms.lua -- moth.func.grad and others: functions that return the derivative of a function.
--
--     local gradient = moth.func.grad(function(params, x, y)
--       return F.mse_loss(moth.func.functional_call(net, params, x), y)
--     end)
--     local grads = gradient(params, x, y)  -- a table of gradients by name, as params is
--
-- A differentiated argument is a tensor or a table of tensors, nested or not; its gradient has the
-- same structure. Results can be differentiated again inside another function of this file, or if
-- an argument requires a gradient.

local autograd = require "moth.autograd"
local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local functional = require "moth.autograd.jacobian"
local lib = require "moth.binding.lib"

local plain, istensor = lib.is_plain, lib.istensor

local transforms = {}

local depth = 0 -- nested calls of functions of this file

-- ---- tables of tensors ----

-- Applies f to each tensor in a value. Returns a value with the same tables.
local function map(value, f)
  if not plain(value) then return f(value) end
  local out = {}
  for key, part in pairs(value) do out[key] = map(part, f) end
  return out
end

-- The tensors in a value as a list, and the value with each tensor replaced by its position in it.
local function flat(fname, what, value)
  local list = {}
  local form = map(value, function(x)
    if not istensor(x) or not x.dtype.is_floating_point then
      errors.argument(fname, what, "floating tensors, or tables of them, are needed, got "
        .. errors.describe(x), "E_TYPE")
    end
    list[#list + 1] = x
    return #list
  end)
  if #list == 0 then errors.argument(fname, what, "has no tensors in it", "E_TYPE") end
  lib.few(fname, what, #list)
  return list, form
end

local function put(form, list)
  return map(form, function(i) return list[i] end)
end

-- The list of tensors in a value of that form.
local function taken(form, value, list)
  if not plain(form) then
    if not istensor(value) then
      errors.argument("vjp", "v", "tensors in tables as func returned them are needed, got "
        .. errors.describe(value) .. " for one", "E_TYPE")
    end
    list[form] = value
    return list
  end
  for key, part in pairs(form) do taken(part, plain(value) and value[key] or nil, list) end
  return list
end

-- ---- calls ----

-- The positions of the differentiated arguments, and true if they were passed as a list.
local function positions(fname, argnums, n)
  local list = plain(argnums) and argnums or {argnums}
  for _, at in ipairs(list) do
    if type(at) ~= "number" or at % 1 ~= 0 or at < 1 or at > n then
      errors.argument(fname, "argnums", ("positions from 1 to %d, of the %d arguments that came, "
        .. "are needed, got %s"):format(n, n, errors.describe(at)), "E_INDEX")
    end
  end
  return list, list == argnums
end

-- For a call with `args`: the differentiated tensors, the form of the results, true if these can be
-- differentiated again, and the function of those tensors alone. aux() returns the values that func
-- returned after the first.
local function prepared(fname, func, argnums, has_aux, args)
  local at, several = positions(fname, argnums, args.n)
  local chosen = {}
  for i, position in ipairs(at) do chosen[i] = args[position] end
  local list, form = flat(fname, "argnums", several and chosen or chosen[1])
  local again, aux = depth > 0, nil
  for _, x in ipairs(list) do again = again or x.requires_grad end
  local function call(...)
    local values, given = put(form, {...}), {unpack(args, 1, args.n)}
    for i, position in ipairs(at) do given[position] = several and values[i] or values end
    if not has_aux then return func(unpack(given, 1, args.n)) end
    local results = lib.pack(func(unpack(given, 1, args.n)))
    aux = {n = results.n - 1, unpack(results, 2, results.n)}
    return results[1]
  end
  again = again and autograd.is_grad_enabled()
  local function handed(x) return not again and istensor(x) and x:detach() or x end
  return {list = list, form = form, again = again, call = call, aux = function()
    if not aux then return end
    for i = 1, aux.n do aux[i] = map(aux[i], handed) end
    return unpack(aux, 1, aux.n)
  end}
end

-- Calls f(...) with gradients recorded, and counts the nesting.
local function within(f, ...)
  depth = depth + 1
  local results = lib.pack(pcall(autograd.enable_grad, f, ...))
  depth = depth - 1
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2, results.n)
end

-- The tensors to start from: in the user's graph if the result is differentiated again, else
-- leaves.
local function begin(p)
  local own = {}
  for i, x in ipairs(p.list) do
    own[i] = p.again and x.requires_grad and x:view_as(x) or x:detach():requires_grad_()
  end
  return own
end

local function ended(p, value)
  if p.again or not istensor(value) then return value end
  return value:detach()
end

-- The gradients of outputs, in the form of the arguments; zeros for inputs without a gradient.
local function gradients(p, own, outputs, weights, retain)
  local grads, ys, dys = {}, {}, {}
  for i, y in ipairs(outputs) do
    if y.requires_grad then ys[#ys + 1], dys[#dys + 1] = y, weights and weights[i] end
  end
  if #ys > 0 then
    grads = {autograd.grad(ys, own, {grad_outputs = weights and dys or nil,
      create_graph = p.again, retain_graph = retain or p.again, materialize_grads = true})}
  end
  for i, x in ipairs(own) do
    grads[i] = ended(p, grads[i] or bind.ops.zeros_like(x))
  end
  return put(p.form, grads)
end

-- ---- public functions ----

local FUNC = {"function", "func", "function of tensors that returns tensors"}
local ARGNUMS = {"any", "argnums", "the position of the argument to differentiate by, or a list of "
  .. "positions, which returns a list", default = 1}
local AUX = {"bool", "has_aux", "does func return more values after the first, which are "
  .. "passed on?", default = false}

local CHUNK = {"int", "chunk_size", "number of rows computed at a time; default: all",
  optional = true}

local function offer(name, outputs, doc, examples, args, run)
  transforms[name] = define {name = name, doc = doc, examples = examples, args = args,
                             outputs = outputs, run = run}
end

local function derivative(name, with_value)
  return function(func, argnums, has_aux)
    return function(...)
      local p = prepared(name, func, argnums, has_aux, lib.pack(...))
      local grads, y = within(function()
        local own = begin(p)
        local value = p.call(unpack(own))
        if not istensor(value) or value:numel() ~= 1 then
          errors.argument(name, "func", "a function that returns one tensor of one element is "
            .. "needed; it returned " .. errors.describe(value), "E_SHAPE")
        end
        return gradients(p, own, {value}), value
      end)
      if with_value then return grads, ended(p, y), p.aux() end
      return grads, p.aux()
    end
  end
end

offer("grad", "slope", "A function with the arguments of func that returns the gradient of its "
  .. "element.", "function(x) return (x * x):sum() end\n"
  .. "function(x, y) return (x * y):sum(), x end, {argnums = {1, 2}, has_aux = true}",
  {FUNC, ARGNUMS, AUX}, derivative("grad", false))
offer("grad_and_value", "slope", "A function with the arguments of func that returns the gradient "
  .. "of its result (one element), and the result.", "function(x) return (x * x):sum() end\n"
  .. "function(x, y) return (x * y):sum(), x end, {argnums = 2, has_aux = true}",
  {FUNC, ARGNUMS, AUX}, derivative("grad_and_value", true))

-- The list of derivatives from moth.autograd.functional, in the form of the arguments; for a
-- Hessian, nested twice.
local function matrix(name, of, twice)
  return function(func, argnums, has_aux, chunk_size)
    if chunk_size and chunk_size < 1 then
      errors.argument(name, "chunk_size",
        ("a positive number is needed, got %d"):format(chunk_size))
    end
    return function(...)
      local p = prepared(name, func, argnums, has_aux, lib.pack(...))
      local result = within(of, p.call, p.list, {create_graph = p.again,
        vectorize = chunk_size or true})
      if twice then
        for i, row in ipairs(result) do result[i] = put(p.form, row) end
        return (put(p.form, result))
      end
      local more = plain(result[1])
      for i, row in ipairs(more and result or {result}) do result[i] = put(p.form, row) end
      if more then return result, p.aux() end
      return result[1], p.aux()
    end
  end
end

for _, name in ipairs {"jacrev", "jacfwd"} do
  offer(name, "jacobian", "A function with the arguments of func that returns the derivative of "
    .. "every output element by every element of an argument: the shape of the output, "
    .. "then that of the argument. One backward pass for all output elements, or for "
    .. "chunk_size of them at a time; jacrev and jacfwd are the same.", "moth.exp\n"
    .. "function(x, y) return x * y, x end, {argnums = {1, 2}, has_aux = true, chunk_size = 2}",
    {FUNC, ARGNUMS, AUX, CHUNK}, matrix(name, functional.jacobian, false))
end
offer("hessian", "hessian", "A function with the arguments of func that returns the second "
  .. "derivatives of its result, which has one element: the argument's shape, twice; for a table a "
  .. "table of tables.", "function(x) return (x * x * x):sum() end\n"
  .. "function(x, y) return (x * y * y):sum() end, {argnums = 2}", {FUNC, ARGNUMS},
  matrix("hessian", functional.hessian, true))

-- The single value that func returned: vjp takes cotangents for one value only.
local function only(fname, ...)
  local n = select("#", ...)
  if n == 1 then return (...) end
  errors.argument(fname, "func", ("returned %d values; return one tensor, or a table of them")
    :format(n))
end

--- moth.func.vjp(func, a, b, ...): not made by define, so that all arguments are func's.
-- @return the result of func, and a function: v, with the form of the result, -> v^T J by a, by b,
-- ...
function transforms.vjp(func, ...)
  local calls = require "moth.binding.calls"
  if not calls.is_callable(func) then
    errors.refuse("vjp", "func", "a function is needed", func, "E_TYPE")
  end
  local n, at = select("#", ...), {}
  for i = 1, n do at[i] = i end
  local p = prepared("vjp", func, at, false, lib.pack(...))
  local own, y = begin(p), nil
  within(function() y = only("vjp", p.call(unpack(own))) end)
  local ys, form = flat("vjp", "func", y)
  return map(y, function(x) return ended(p, x) end), function(v)
    return unpack(gradients(p, own, ys, taken(form, v, {}), true), 1, n)
  end
end

--- moth.func.jvp(func, primals, tangents): the result of func, and J times the tangents.
offer("jvp", "output, jvp", "The result of func, and its derivative along the tangents. "
  .. "Two backward passes.", "moth.exp, {moth.randn(3)}, {moth.ones(3)}", {
    FUNC, {"any", "primals", "a list of the arguments of func"},
    {"any", "tangents", "a list of tensors of their shapes"}},
  function(func, primals, tangents)
    local again = depth > 0
    for _, x in ipairs(plain(primals) and primals or {primals}) do
      again = again or istensor(x) and x.requires_grad
    end
    return within(functional.jvp, func, primals, tangents,
      {create_graph = again and autograd.is_grad_enabled()})
  end)

return transforms
