--- jacobian.lua -- moth.autograd.functional: Jacobians and Hessians of functions, and their
-- products with vectors.
--
--     local J = moth.autograd.functional.jacobian(function(x) return x:exp() end, x)
--
-- The inputs are one tensor, or a list, which the function gets as several arguments. The function
-- returns one tensor, several values, or a list. Results have the same structure.

local autograd = require "moth.autograd"
local define = require "moth.binding.define"
local errors = require "moth.error"
local calls = require "moth.binding.calls"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"

local istensor = lib.istensor

local functional = {}

local function moth() return require "moth" end

-- ---- inputs and outputs ----

local plain = lib.is_plain

-- A tensor or a list of tensors as a list; true if it was a list.
local function listed(fname, aname, value)
  if istensor(value) then return {value}, false end
  if not plain(value) or #value == 0 then
    errors.refuse(fname, aname, "a tensor or a list of tensors is needed", value, "E_TYPE")
  end
  for i, x in ipairs(value) do
    if not istensor(x) then
      errors.argument(fname, aname, ("element %d is %s, not a tensor"):format(i,
        errors.describe(x)), "E_TYPE")
    end
  end
  return value, true
end

-- The inputs as tensors that require gradients. With create_graph the results remain functions of
-- the user's tensors.
local function begin(fname, inputs, create_graph)
  local list, several = listed(fname, "inputs", inputs)
  local own = {}
  lib.few(fname, "inputs", #list)
  for i, x in ipairs(list) do
    if not x.dtype.is_floating_point then
      errors.argument(fname, "inputs", ("element %d is %s; floating tensors have gradients"):format(
        i, errors.describe(x)), "E_DTYPE")
    end
    own[i] = create_graph and x.requires_grad and x:view_as(x) or x:detach():requires_grad_()
  end
  return own, several
end

-- The function's results for the inputs: a list, and true if it returned several values.
local function call(fname, func, inputs)
  local results = {func(unpack(inputs))}
  local several = #results > 1
  if #results == 1 and plain(results[1]) then results, several = results[1], true end
  if #results == 0 then
    errors.argument(fname, "func", "a function that returns tensors is needed; it returned nothing",
      "E_TYPE")
  end
  for i, y in ipairs(results) do
    if not istensor(y) then
      errors.argument(fname, "func", ("a function that returns tensors is needed; result %d is %s")
        :format(i, errors.describe(y)), "E_TYPE")
    end
  end
  return results, several
end

-- The vectors for these tensors: one for each, of its shape; ones for a tensor with one element.
local function vectors(fname, v, tensors, what)
  if v == nil then
    if #tensors ~= 1 or tensors[1]:numel() ~= 1 then
      errors.argument(fname, "v", ("is needed unless %s is one tensor of one element"):format(what))
    end
    return {moth().ones_like(tensors[1]:detach())}
  end
  local list = listed(fname, "v", v)
  if #list ~= #tensors then
    errors.argument(fname, "v", ("%d tensors are needed, one for each of %s, got %d"):format(
      #tensors, what, #list))
  end
  for i, x in ipairs(list) do
    if x.shape ~= tensors[i].shape then
      errors.argument(fname, "v", ("element %d is %s, but %s has %s there"):format(i,
        errors.describe(x), what, errors.describe(tensors[i])), "E_SHAPE")
    end
  end
  return list
end

-- ---- gradients, with zeros for independent inputs ----

local function independent(fname, i)
  errors.raise(("%s: no output depends on input %d, which strict = true refuses"):format(fname, i),
    "E_GRAPH")
end

-- The gradients of the outputs that have a history by each input, as a list with holes.
local function gradients(outputs, inputs, grads, create_graph)
  local ys, dys = {}, {}
  for i, y in ipairs(outputs) do
    if y and y.requires_grad then
      ys[#ys + 1], dys[#dys + 1] = y, grads and grads[i] or nil
    end
  end
  if #ys == 0 then return {} end
  return {autograd.grad(ys, inputs, {grad_outputs = grads and dys or nil, retain_graph = true,
    create_graph = create_graph, allow_unused = true})}
end

-- The list with zeros in the holes; raises for a hole if strict.
local function filled(fname, list, inputs, strict)
  local all = {}
  for i, x in ipairs(inputs) do
    if list[i] == nil and strict then independent(fname, i) end
    all[i] = list[i] ~= nil and list[i] or moth().zeros_like(x:detach())
  end
  return all
end

local function given(list, several, create_graph)
  if not create_graph then
    local cut = {}
    for i, x in ipairs(list) do cut[i] = x:detach() end
    list = cut
  end
  return several and list or list[1]
end

-- ---- products with vectors ----

local function vjp(func, inputs, v, create_graph, strict)
  local xs, several = begin("vjp", inputs, create_graph)
  local ys, more = call("vjp", func, xs)
  local grads = gradients(ys, xs, vectors("vjp", v, ys, "what func returns"), create_graph)
  return given(ys, more, create_graph),
    given(filled("vjp", grads, xs, strict), several, create_graph)
end

-- Uses two backward passes: the result of the first is linear in the gradient of the output, and
-- its derivative by that gradient is J.
local function jvp(func, inputs, v, create_graph, strict)
  local xs = begin("jvp", inputs, create_graph)
  local vs = vectors("jvp", v, xs, "inputs")
  local ys, more = call("jvp", func, xs)
  local dys = {}
  for i, y in ipairs(ys) do dys[i] = moth().zeros_like(y:detach()):requires_grad_() end
  local dxs = gradients(ys, xs, dys, true)
  local rows, weights = {}, {}
  for i = 1, #xs do
    if dxs[i] ~= nil then rows[#rows + 1], weights[#weights + 1] = dxs[i], vs[i]
    elseif strict then independent("jvp", i) end
  end
  local products = filled("jvp", gradients(rows, dys, weights, create_graph), dys, false)
  return given(ys, more, create_graph), given(products, more, create_graph)
end

-- The one-element tensor that func returns.
local function scalar(fname, func, xs)
  local ys, several = call(fname, func, xs)
  if several or ys[1]:numel() ~= 1 then
    errors.argument(fname, "func", "a function that returns one tensor of one element is needed; "
      .. "it returned " .. (several and "several" or errors.describe(ys[1])), "E_SHAPE")
  end
  return ys[1]
end

-- The product of the Hessian with v. If second derivatives are continuous the Hessian is
-- symmetric, so this is both the product from the left and from the right.
local function product(fname)
  return function(func, inputs, v, create_graph, strict)
    local xs, several = begin(fname, inputs, create_graph)
    local vs = vectors(fname, v, xs, "inputs")
    local y = scalar(fname, func, xs)
    local slopes = filled(fname, gradients({y}, xs, nil, true), xs, strict)
    local grads = gradients(slopes, xs, vs, create_graph)
    return given({y}, false, create_graph),
      given(filled(fname, grads, xs, strict), several, create_graph)
  end
end

-- ---- full matrices ----

local function joined(a, b)
  local shape = {unpack(a)}
  for _, n in ipairs(b) do shape[#shape + 1] = n end
  return shape
end

-- The gradients of the elements first..last of y: for each input a tensor with a row for each
-- element.
local function several_rows(y, xs, first, last, create_graph)
  local size, n = y:numel(), last - first + 1
  local basis = moth().eye(size, {dtype = y.dtype, device = y.device}):narrow(1, first, n)
  return {autograd.grad({y}, xs, {grad_outputs = {basis:reshape(joined({n}, y.shape))},
    is_grads_batched = true, retain_graph = true, create_graph = create_graph,
    allow_unused = true})}
end

-- Lists of these tensors, `chunk` rows at a time; false for an input on which y does not depend.
local function all_at_once(fname, y, xs, create_graph, strict, chunk)
  local rows, size = {}, y:numel()
  for k = 1, #xs do rows[k] = {} end
  for first = 1, y.requires_grad and size or 0, chunk do
    local grads = several_rows(y, xs, first, math.min(first + chunk - 1, size), create_graph)
    for k = 1, #xs do
      if grads[k] ~= nil then table.insert(rows[k], grads[k]) end
    end
  end
  for k = 1, #xs do
    if #rows[k] == 0 and strict then independent(fname, k) end
    rows[k] = #rows[k] > 0 and moth().cat(rows[k], 1)
  end
  return rows
end

local function one_by_one(fname, y, xs, create_graph, strict)
  local rows = {}
  for k = 1, #xs do rows[k] = {} end
  local flat = y:reshape(-1)
  for j = 1, y:numel() do
    local grads = filled(fname, gradients({flat[j]}, xs, nil, create_graph), xs, strict)
    for k, grad in ipairs(grads) do rows[k][j] = grad end
  end
  for k = 1, #xs do rows[k] = #rows[k] > 0 and moth().stack(rows[k]) end
  return rows
end

-- The derivatives of one output by all inputs: a list. vectorize: false, true, or the number of
-- rows at a time.
local function rows_of(fname, y, xs, create_graph, strict, vectorize)
  local rows
  if vectorize and y:numel() > 0 then
    local chunk = vectorize == true and y:numel() or vectorize
    rows = all_at_once(fname, y, xs, create_graph, strict, chunk)
  else
    rows = one_by_one(fname, y, xs, create_graph, strict)
  end
  for k, x in ipairs(xs) do
    local shape = joined(y.shape, x.shape)
    rows[k] = rows[k] and rows[k]:reshape(shape)
      or moth().zeros(shape, {dtype = x.dtype, device = x.device})
  end
  return rows
end

local function jacobian_of(fname, func, inputs, create_graph, strict, vectorize)
  if type(vectorize) ~= "boolean" and not (calls.whole(vectorize) and vectorize > 0) then
    errors.refuse(fname, "vectorize", "true, false or a positive integer is needed", vectorize)
  end
  local xs, several = begin(fname, inputs, create_graph)
  local ys, more = call(fname, func, xs)
  local all = {}
  for i, y in ipairs(ys) do
    all[i] = given(rows_of(fname, y, xs, create_graph, strict, vectorize), several,
      create_graph)
  end
  return more and all or all[1]
end

local function jacobian(func, inputs, create_graph, strict, vectorize)
  return (jacobian_of("jacobian", func, inputs, create_graph, strict, vectorize))
end

local function hessian(func, inputs, create_graph, strict, vectorize)
  local _, several = listed("hessian", "inputs", inputs)
  return (jacobian_of("hessian", function(...)
    local xs = {...}
    local slopes = filled("hessian", gradients({scalar("hessian", func, xs)}, xs, nil, true), xs,
      strict)
    if several then return slopes end
    return slopes[1]
  end, inputs, create_graph, strict, vectorize))
end

-- ---- public functions ----

local FUNC = {"any", "func", "function of tensors that returns tensors"}
local INPUTS = {"any", "inputs", "a tensor, or a list with the arguments of func"}
local V = {"any", "v", "the vector to multiply with J or H: a tensor or a list", optional = true}
local CREATE = {"bool", "create_graph", "can the results be differentiated again?", default = false}
local STRICT = {"bool", "strict", "raise if an output does not depend on an input?",
  default = false}

local VECTORIZE = {"any", "vectorize", "compute all rows in one pass, or this number at a time? "
  .. "That takes more memory", default = false}

-- Runs a function with gradients recorded, whatever the grad mode is.
local function with_grad(name, run)
  return function(func, ...)
    if not calls.is_callable(func) then
      errors.refuse(name, "func", "a function is needed", func, "E_TYPE")
    end
    return autograd.enable_grad(run, func, ...)
  end
end

local function offer(name, run, args, outputs, doc, examples)
  functional[name] = define {
    name = name, doc = doc, examples = examples, args = args, outputs = outputs,
    run = with_grad(name, run), file = "lua/moth/autograd/jacobian.lua",
  }
end

offer("jacobian", jacobian, {FUNC, INPUTS, CREATE, STRICT, VECTORIZE}, "J",
  "The derivative of every output element by every input element, (..., ...): "
    .. "the shape of the output, then that of the input. A list for several inputs, a list "
    .. "of lists for several outputs.",
  "moth.exp, moth.randn(3)\nmoth.mul, {moth.randn(3), moth.randn(3)}, {create_graph = true, "
    .. "strict = true, vectorize = true}")
offer("hessian", hessian, {FUNC, INPUTS, CREATE, STRICT, VECTORIZE}, "H",
  "The second derivatives of the output, which has one element, (..., ...): the shape of the "
    .. "input, twice. A list of lists for several inputs.",
  "function(x) return (x * x):sum() end, moth.randn(3)\n"
    .. "function(x, y) return (x * x * y * y):sum() end, {moth.randn(3), moth.randn(3)}, "
    .. "{create_graph = true, strict = true, vectorize = true}")
offer("vjp", vjp, {FUNC, INPUTS, V, CREATE, STRICT}, "output, vjp",
  "The result of func, and v^T J; v has the shape of the result. One backward pass.",
  "moth.exp, moth.randn(3), moth.ones(3)\nmoth.dot, {moth.randn(3), moth.randn(3)}, moth.ones({}), "
    .. "{create_graph = true, strict = true}")
offer("jvp", jvp, {FUNC, INPUTS, V, CREATE, STRICT}, "output, jvp",
  "The result of func, and J v; v has the shape of the inputs. Two backward passes.",
  "moth.exp, moth.randn(3), moth.ones(3)\nmoth.mul, {moth.randn(3), moth.randn(3)}, "
    .. "{moth.ones(3), moth.ones(3)}, {create_graph = true, strict = true}")
for _, name in ipairs {"vhp", "hvp"} do
  offer(name, product(name), {FUNC, INPUTS, V, CREATE, STRICT}, "output, " .. name,
    "What func returns, one element, and its Hessian " .. (name == "vhp" and "from the left"
      or "from the right") .. " times v, which has the shape of the inputs.",
    "function(x) return (x * x * x):sum() end, moth.randn(3), moth.ones(3)\n"
      .. "function(x, y) return (x * x * y):sum() end, {moth.randn(3), moth.randn(3)}, "
      .. "{moth.ones(3), moth.ones(3)}, {create_graph = true, strict = true}")
end

return (lazy.namespace("moth.autograd.functional", functional, {}))
