--- distribution.lua -- moth.distributions.Distribution: the base of all distributions.
--
-- Moth's subclasses define
--     arg_constraints     name of a parameter -> its constraint; the parameters are fields
--     _rsample(size, n)   draws a tensor of these sizes; the first n (a Size) are the sample's
--     or _sample(...)     if samples have no gradients
--     log_prob(value), entropy(), cdf(value), icdf(value)
--     _mean(), _variance(), _mode(), _support()   the values of the fields without `_`
-- Subclasses of users may define sample, rsample and log_prob instead.

local autograd = require "moth.autograd"
local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local constraints = require "moth.distributions.constraints"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local size = require "moth.tensor.size"

local ops = bind.ops
local istensor = lib.istensor

--- The base of all distributions. `batch_shape` is the shape of its parameters, with one
-- distribution for each element; `event_shape` is the shape of one value. Samples have the shape
-- sample_shape + batch_shape + event_shape. `mean`, `variance`, `stddev`, `mode` and `support` are
-- fields. Parameters and values are checked, which synchronizes a GPU, unless `validate_args` is
-- false; a captured step omits the checks.
local Distribution = class("Distribution")

Distribution.has_rsample = false
Distribution.arg_constraints = {}

-- ---- helpers ----

local tools = {EULER = 0.57721566490153286061}

--- The last argument of all constructors.
tools.VALIDATE = {"bool", "validate_args", "check parameters and values? default: as "
  .. "set_default_validate_args set it", optional = true}

--- The argument row of a parameter that is a tensor or a number.
function tools.number(name, doc, more)
  local row = {"tensor", name, doc, numbers = true}
  for key, value in pairs(more or {}) do row[key] = value end
  return row
end

--- Concatenates lists of sizes to a Size.
function tools.join(...)
  local all = {}
  for i = 1, select("#", ...) do
    local list = select(i, ...)
    for j = 1, #list do all[#all + 1] = list[j] end
  end
  return size.wrap(all)
end

--- The broadcast shape of two shapes, or nil.
function tools.broadcast_shape(a, b)
  local list, most = {}, math.max(#a, #b)
  for d = 1, most do
    local i, j = #a - most + d, #b - most + d
    local m, n = i > 0 and a[i] or 1, j > 0 and b[j] or 1
    if m ~= n and m ~= 1 and n ~= 1 then return nil end
    list[d] = m == 1 and n or m
  end
  return size.wrap(list)
end

--- Converts numbers and tensors to float tensors of the same shape.
-- @param fname   the function that has the arguments
-- @param names   a list of their names
-- @param values  a list of the same length
-- @return the tensors, one for each value
function tools.broadcast(fname, names, values)
  local like
  for _, value in ipairs(values) do
    if istensor(value) and (not like or value:is_floating_point()
        and not like:is_floating_point()) then
      like = value
    end
  end
  local dtype = like and like:is_floating_point() and like.dtype
    or require("moth").get_default_dtype()
  local list, shape = {}, {}
  for i, value in ipairs(values) do
    if not istensor(value) then
      list[i] = ops.full({}, value, dtype, like and like.device)
    else
      list[i] = value:is_floating_point() and value or value:to(dtype)
    end
    local both = tools.broadcast_shape(shape, list[i].shape)
    if not both then
      errors.argument(fname, names[i], ("%s cannot be broadcast with %s"):format(
        errors.describe(value), tostring(shape)), "E_SHAPE")
    end
    shape = both
  end
  for i, x in ipairs(list) do
    if not (x.shape == shape) then list[i] = x:expand(shape) end
  end
  return unpack(list)
end

--- The machine epsilon of a dtype.
function tools.eps(x)
  local moth = require "moth"
  return x.dtype == moth.float64 and 2 ^ -52 or x.dtype == moth.float32 and 2 ^ -23
    or x.dtype == moth.float16 and 2 ^ -10 or 2 ^ -7
end

--- Returns a new uninitialized tensor with x's dtype and device.
function tools.empty(x, sizes)
  return (ops.empty(sizes, x.dtype, x.device))
end

--- Sums x over its last n dimensions.
function tools.sum_last(x, n)
  if n == 0 then return x end
  return (x:flatten(-n):sum(-1))
end

--- Returns the element that violates a parameter's constraint, as text.
local function offender(x, good)
  local n = 1 -- the number of elements in one value
  for d = good:dim() + 1, x:dim() do
    good, n = good:unsqueeze(-1), n * x:size(d)
  end
  local wrong, shown = x:masked_select(good:logical_not()), {}
  for i = 1, math.min(n, 6) do shown[i] = tostring(wrong[i]:item()) end
  if n == 1 then return " with " .. shown[1] end
  return (" with {%s%s}"):format(table.concat(shown, ", "), n > 6 and ", ..." or "")
end

-- Raises unless all values satisfy the constraint.
local function enforce(fname, name, x, constraint)
  autograd.no_grad(function()
    if lib.capture then
      return require "moth.capture.tensor_check"(constraint:_parts(x):logical_not(), function()
        errors.argument(fname, name, ("%s are needed, got %s with others"):format(
          tostring(constraint), errors.describe(x)), "E_DOMAIN")
      end)
    end
    if constraint:_parts(x):all():item() then return end
    local good = constraint:check(x)
    errors.argument(fname, name, ("%s are needed, got %s%s"):format(tostring(constraint),
      errors.describe(x), offender(x, good)), "E_DOMAIN")
  end)
end

--- Defines a class whose parameters are fields, numbers or tensors. A row: {name, constraint, doc,
-- default =}.
function tools.made(name, rows)
  local new = class(name, Distribution)
  local args, names = {}, {}
  new.arg_constraints = {}
  for i, row in ipairs(rows) do
    args[i], names[i] = tools.number(row[1], row[3], {default = row.default}), row[1]
    new.arg_constraints[row[1]] = row[2]
  end
  args[#args + 1] = tools.VALIDATE
  new.signature = define.signature(name, args)
  function new:init(...)
    local values, n = {}, #names
    for i = 1, n do values[i] = (select(i, ...)) end
    local list = {tools.broadcast(name, names, values)}
    for i = 1, n do self[names[i]] = list[i] end
    Distribution.init(self, list[1].shape, {}, (select(n + 1, ...)))
  end
  new.has_rsample = true
  return new
end

--- Defines a class that has either `probs` or `logits` as a field; first: the rows before these.
-- tools.choose sets the field.
function tools.either(name, probs, logits, support, first)
  local new, args = class(name, Distribution), {unpack(first or {})}
  args[#args + 1] = tools.number("probs", probs, {optional = true})
  args[#args + 1] = tools.number("logits", logits, {optional = true})
  args[#args + 1] = tools.VALIDATE
  new.arg_constraints, new.signature = support, define.signature(name, args)
  return new
end

--- Sets the field probs or logits, the one that is given, broadcast with the preceding argument.
-- @param also  the name of that argument's field, optional
function tools.choose(self, probs, logits, also, value)
  local name = class.typename(self)
  if (probs == nil) == (logits == nil) then
    errors.argument(name, probs and "logits" or "probs", "either probs or logits are needed"
      .. (probs and ", got both" or ", got none"))
  end
  local key = probs ~= nil and "probs" or "logits"
  if probs == nil then probs = logits end
  if also then
    self[also], self[key] = tools.broadcast(name, {also, key}, {value, probs})
  else
    self[key] = tools.broadcast(name, {key}, {probs})
  end
  return self[key]
end

--- Clamps probabilities away from 0 and 1, so that their logarithms are finite.
function tools.clamped(probs)
  local eps = tools.eps(probs)
  return (probs:clamp(eps, 1 - eps))
end

--- Defines the computed fields probs and logits for single probabilities.
function tools.of_one(new)
  function new:_probs() return (self.logits:sigmoid()) end
  function new:_logits()
    local p = tools.clamped(self.probs)
    return p:log() - (-p):log1p()
  end
  return new
end

--- Defines the computed fields probs and logits for several categories, along the last dimension.
function tools.of_several(new)
  function new:_probs() return (self.logits:softmax(-1)) end
  function new:_logits() return (tools.clamped(self.probs):log()) end
  return new
end

tools.SEVERAL = {probs = constraints.weights, logits = constraints.real_vector}
tools.WEIGHTS = "the probability of each along the last dimension; divided by their sum"
tools.LOGITS = "their logarithms, less any number"

--- Sets probs or logits of several categories, normalized so that the probabilities sum to 1.
function tools.init_several(self, probs, logits, validate_args, events)
  local x = tools.choose(self, probs, logits)
  if x:dim() == 0 then
    errors.argument(class.typename(self), probs ~= nil and "probs" or "logits",
      "at least one dimension is needed, got " .. errors.describe(x), "E_SHAPE")
  end
  local shape = {unpack(x.shape)}
  local n = table.remove(shape)
  Distribution.init(self, shape, events and {n} or {}, validate_args)
  if probs ~= nil then self.probs = x / x:sum(-1, {keepdim = true})
  else self.logits = x:log_softmax(-1) end
end

tools.enforce = enforce
Distribution.tools = tools

-- ---- the class ----

--- The last call of each constructor.
-- @param batch_shape    shape of the parameters
-- @param event_shape    shape of one value; default: scalar
-- @param validate_args  check parameters and values?
function Distribution:init(batch_shape, event_shape, validate_args)
  self.batch_shape = size.new(batch_shape or {})
  self.event_shape = size.new(event_shape or {})
  if validate_args == nil then validate_args = constraints.by_default end
  self.validate_args = validate_args
  if not validate_args then return end
  local names = {}
  for name in pairs(self.arg_constraints) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local x = rawget(self, name)
    if x ~= nil then enforce(class.typename(self), name, x, self.arg_constraints[name]) end
  end
end

local FIELDS = {mean = true, variance = true, stddev = true, mode = true, support = true}
-- A given parameter is a field; the other one is computed.
local EITHER = {probs = true, logits = true, covariance_matrix = true, precision_matrix = true,
  scale_tril = true}

-- Returns fields that are computed each time they are read.
function Distribution:__index(name)
  if not FIELDS[name] and not EITHER[name] then return nil end
  local get = self["_" .. name]
  if get then
    return (get(self))
  end
  if FIELDS[name] then
    errors.raise(("%s has no %s in closed form"):format(class.typename(self), name),
      "E_UNSUPPORTED")
  end
end

function Distribution:_stddev() return (self.variance:sqrt()) end

local parse_sample = define.signature("sample", {
  {"shape", "sample_shape", "the sizes before those of the batch", optional = true},
})

-- Returns the sample's sizes as a list, and the shape of the samples.
local function sizes(self, fname, ...)
  local shape = parse_sample(...) or {}
  if type(shape) == "number" then shape = {shape} end
  for _, n in ipairs(shape) do
    if n < 0 then
      errors.argument(("%s.%s"):format(class.typename(self), fname), "sample_shape",
        "sizes from 0 on are needed, got " .. n, "E_SHAPE")
    end
  end
  shape = size.new(shape)
  return tools.join(shape, self.batch_shape, self.event_shape), shape
end

local function lacks(self, name)
  errors.raise(("%s has no %s"):format(class.typename(self), name), "E_UNSUPPORTED")
end

--- Draws values without gradients: `d:sample()`, `d:sample(3)`, `d:sample{2, 3}`.
function Distribution:sample(...)
  local all, shape = sizes(self, "sample", ...)
  local draw = self._sample or self._rsample or lacks(self, "sample")
  return (autograd.no_grad(draw, self, all, shape))
end

--- Draws values with gradients to the parameters (reparameterized).
function Distribution:rsample(...)
  if not self._rsample or not self.has_rsample then
    errors.raise(("%s has no rsample: no gradient passes through what it draws; take the "
      .. "gradient of log_prob"):format(class.typename(self)), "E_UNSUPPORTED")
  end
  local all, shape = sizes(self, "rsample", ...)
  return (self:_rsample(all, shape))
end

local function as_tensor(self, value, fname)
  local like = self:_like()
  if type(value) == "number" and like then
    return (ops.full({}, value, like.dtype, like.device))
  end
  if not istensor(value) then
    errors.argument(fname, "value", "a tensor or a number is needed, got "
      .. errors.describe(value), "E_TYPE")
  end
  return value
end

--- Returns icdf's argument, a probability, as a checked tensor.
function Distribution:_share(value)
  local fname = class.typename(self) .. ".icdf"
  value = as_tensor(self, value, fname)
  if self.validate_args then enforce(fname, "value", value, constraints.unit_interval) end
  return value
end

--- Returns a value as a checked tensor.
-- @param value  a tensor or a number
-- @param fname  the calling method
function Distribution:_check(value, fname)
  fname = class.typename(self) .. "." .. fname
  value = as_tensor(self, value, fname)
  if not self.validate_args then return value end
  local events, shape = self.event_shape, value.shape
  for d = 1, #events do
    if #shape < #events or shape[#shape - #events + d] ~= events[d] then
      errors.argument(fname, "value", ("values of %s are needed, got %s"):format(tostring(events),
        errors.describe(value)), "E_SHAPE")
    end
  end
  if not tools.broadcast_shape(shape, tools.join(self.batch_shape, events)) then
    errors.argument(fname, "value", ("%s cannot be broadcast with the batch %s"):format(
      errors.describe(value), tostring(self.batch_shape)), "E_SHAPE")
  end
  enforce(fname, "value", value, self.support)
  return value
end

-- Returns a parameter, whose dtype and device numbers get.
function Distribution:_like()
  for name in pairs(self.arg_constraints) do
    local x = rawget(self, name)
    if x ~= nil then return x end
  end
end

--- The logarithm of the density, or of the probability, of each value.
function Distribution:log_prob() lacks(self, "log_prob") end

--- The expected -log_prob.
function Distribution:entropy() lacks(self, "entropy in closed form") end

--- The cumulative distribution function.
function Distribution:cdf() lacks(self, "cdf in closed form") end

--- The inverse of cdf: the quantile function.
function Distribution:icdf() lacks(self, "icdf in closed form") end

--- exp(entropy).
function Distribution:perplexity() return (self:entropy():exp()) end

--- Returns all values of a discrete distribution, along a first dimension.
function Distribution:enumerate_support() lacks(self, "list of its values") end

local parse_expand = define.signature("expand", {
  {"shape", "batch_shape", "the new sizes of the batch"},
})

--- Returns the same distribution with another batch shape; its parameters are expanded.
function Distribution:expand(...)
  local shape = parse_expand(...)
  if type(shape) == "number" then shape = {shape} end
  local new = setmetatable({}, getmetatable(self))
  for key, value in pairs(self) do new[key] = value end
  new.batch_shape = size.new(shape)
  for name, constraint in pairs(self.arg_constraints) do
    local x = rawget(self, name)
    if x ~= nil then
      local last = {}
      for d = 1, constraint.event_dim do last[d] = x:size(d - constraint.event_dim - 1) end
      new[name] = x:expand(tools.join(new.batch_shape, last))
    end
  end
  return new
end

-- Returns text like "Normal(loc=0, scale=f32 (3))".
function Distribution:__tostring()
  local names, parts = {}, {}
  for name in pairs(self.arg_constraints) do
    if rawget(self, name) ~= nil then names[#names + 1] = name end
  end
  table.sort(names)
  for i, name in ipairs(names) do
    local x = self[name]
    parts[i] = ("%s=%s"):format(name, x:dim() == 0 and ("%g"):format(x:item())
      or errors.describe(x))
  end
  return ("%s(%s)"):format(class.typename(self), table.concat(parts, ", "))
end

Distribution.constraints = constraints

return Distribution
