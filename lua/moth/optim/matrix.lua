--- matrix.lua -- optim.Adafactor and optim.Muon, composed of several ops, which use the matrix
-- structure of a parameter. Numbers that change from step to step are tensors of one element, so
-- that a step can be captured.

local errors = require "moth.error"
local lib = require "moth.binding.lib"
local bundle = require "moth.optim.bundle"
local Optimizer = require "moth.optim.optimizer"
local rule = require "moth.optim.rule"
local scope = require "moth.tensor.scope"

local matrix = {}

-- Returns true if a group's options equal those of the captured step.
local function same_options(group, names, were)
  for i, name in ipairs(names) do
    if group[name] ~= were[i] then return false end
  end
  return true
end

local function options_of(group, names)
  local list = {}
  for i, name in ipairs(names) do list[i] = group[name] end
  return list
end

-- Registers the last fill_ for replays: before a replay it writes value(group, step).
local function note(self, group, found, names, value)
  if not lib.capture then return end
  local were = options_of(group, names)
  bundle.note(self, group, found, "fill_", function(_, now, s, at, step)
    if not same_options(now, names, were) then return false end
    s[at.value + 1].number = value(now, step) -- a scalar is stored as type and value
    return true
  end)
end

-- Returns the numbers of a step by name, as tensors; make(place, name, value) creates one for each
-- device and dtype of the parameters.
local function numbers_at(make, values)
  local made = {}
  return function(p)
    local place = bundle.place(p)
    if not made[place] then
      local all = {}
      for name, value in pairs(values) do all[name] = make(place, name, value) end
      made[place] = all
    end
    return made[place]
  end
end

-- ---- Adafactor ----

--- Adafactor (Shazeer and Stern, 2018): Adam without the running mean of gradients; for a matrix it
-- stores only the row and column means of the squares.
local Adafactor = rule.new("Adafactor", {
  {"float", "lr", "the largest relative step, and the factor of the weight decay", default = 1e-2,
   single = true},
  {"float", "beta2_decay", "exponent of the decay rate: step ^ beta2_decay", default = -0.8},
  {"any", "eps", "{lower bound of the mean square, none: the machine epsilon; lower bound of the "
    .. "parameter's RMS, which scales steps}; default: {none, 1e-3}", optional = true,
    first = {lib.none, 1e-3}},
  {"float", "d", "steps with a larger root mean square are clipped", default = 1},
  {"float", "weight_decay", "the weight decay coefficient", default = 0},
  rule.MAXIMIZE,
})
matrix.Adafactor = Adafactor

function Adafactor:check(group)
  self:range(group, "lr", 0)
  self:range(group, "d", 1)
  self:range(group, "weight_decay", 0)
  local decay, eps = group.beta2_decay, group.eps
  if type(decay) ~= "number" or not (decay <= 0) then
    errors.refuse("Adafactor", "beta2_decay", "a number up to 0 is needed", decay, "E_DOMAIN")
  end
  local least, size
  if lib.is_plain(eps) then least, size = eps[1], eps[2] end
  if least == lib.none then least = nil end
  if type(size) ~= "number" or not (size >= 0)
     or least ~= nil and (type(least) ~= "number" or not (least >= 0)) then
    errors.refuse("Adafactor", "eps", "{a number from 0 on or moth.none, a number from 0 on} is "
      .. "needed", eps, "E_DOMAIN")
  end
end

-- Returns the shapes of row_var and col_var: the parameter's shape, with 1 in the last or the last
-- but one dimension.
local function factor_shapes(p)
  local rows, columns = {}, {}
  for i, n in ipairs(p.shape) do rows[i], columns[i] = n, n end
  rows[#rows], columns[#columns - 1] = 1, 1
  return rows, columns
end

local function has_shape(x, shape)
  if x:dim() ~= #shape then return false end
  for i, n in ipairs(shape) do
    if x:size(i) ~= n then return false end
  end
  return true
end

function Adafactor:fits(p, name, value)
  if p:dim() < 2 or name == "variance" then return (Optimizer.fits(self, p, name, value)) end
  local rows, columns = factor_shapes(p)
  return (has_shape(value, name == "row_var" and rows or columns))
end

local function begin(own, p)
  local zeros = require("moth").zeros
  if p:dim() < 2 then
    if not own.variance then bundle.put(own, "variance", bundle.fresh(p)) end
  elseif not own.row_var then
    local rows, columns = factor_shapes(p)
    local to = {dtype = bundle.state_dtype(p), device = p.device}
    bundle.put(own, "row_var", zeros(rows, to))
    bundle.put(own, "col_var", zeros(columns, to))
  end
end

-- The machine epsilon of each dtype.
local EPSILON = {float64 = 2 ^ -52, float32 = 2 ^ -23, float16 = 2 ^ -10, bfloat16 = 2 ^ -7}

-- Updates the running means of the squares along dim.
local function move_mean(kept, grad, dim, share)
  local mean = grad:norm(2, dim, true):square():div(grad:size(dim))
  kept:lerp_(mean, share)
end

-- Returns an estimate of the mean square of each element.
local function squares(own, grad, share, eps)
  if grad:dim() < 2 then
    own.variance:lerp_(grad * grad, share)
    return own.variance
  end
  move_mean(own.row_var, grad, -1, share)
  move_mean(own.col_var, grad, -2, share)
  local mean = own.row_var:mean {dim = -2, keepdim = true}
  return own.row_var:matmul(own.col_var):div(mean:clamp {min = eps})
end

-- Returns the root mean square of a tensor.
local function size_of(x)
  return x:norm():div(math.sqrt(x:numel()))
end

local factored_step = scope.inside(function(p, grad, own, group, share, rho, shrink)
  local eps = group.eps[1]
  if type(eps) ~= "number" then eps = EPSILON[p.dtype.name] end
  local x = bundle.real(p)
  grad = bundle.real(grad)
  if group.maximize then grad = -grad end
  local alpha = size_of(x):clamp {min = group.eps[2]} * rho
  if group.weight_decay ~= 0 then x:mul_(shrink) end
  local step = squares(own, grad, share, eps):clamp {min = eps * eps}:rsqrt() * grad
  local over = size_of(step):div(group.d):clamp {min = 1}
  x:sub_(step * (alpha / over))
  if x.dtype ~= p.dtype then p:copy_(x) end
end)

local function share_of(group, step) return step ^ group.beta2_decay end
local function rho_of(group, step) return math.min(group.lr, 1 / math.sqrt(step)) end
local function shrink_of(group) return 1 - group.lr * group.weight_decay end

local PLAIN, CONSTANT = {}, {"eps", "d", "maximize", "weight_decay"}

local function step_of(own) return own.step end

function Adafactor:update(group)
  for _, b in ipairs(bundle.of(self, group, PLAIN, step_of)) do
    for i, p in ipairs(b.params) do begin(b.states[i], p) end
    local numbers = numbers_at(function(place, name, value)
      local x = bundle.number(group, name, place, value(group, b.step + 1))
      note(self, group, b, CONSTANT, value)
      return x
    end, {share = share_of, rho = rho_of, shrink = shrink_of})
    for i, p in ipairs(b.params) do
      if p:numel() > 0 then
        local by = numbers(p)
        factored_step(p, b.grads[i], b.states[i], group, by.share, by.rho, by.shrink)
      end
    end
    bundle.count(b)
  end
end

-- ---- Muon ----

--- Muon (Jordan et al., 2024), for the weight matrices of hidden layers: the update is
-- orthogonalized, so that its singular values are near 1. Use another optimizer, for example AdamW,
-- for the other parameters. The iteration runs in bfloat16 for all dtypes, as in PyTorch.
local Muon = rule.new("Muon", {
  rule.lr(1e-3),
  {"float", "weight_decay", "the weight decay coefficient", default = 0.1},
  {"float", "momentum", "factor of the momentum buffer", default = 0.95},
  {"bool", "nesterov", "use Nesterov momentum?", default = true},
  {"any", "ns_coefficients", "coefficients of the Newton-Schulz polynomial; "
    .. "{3.4445, -4.775, 2.0315}", optional = true, first = {3.4445, -4.775, 2.0315}},
  {"float", "eps", "lower bound of the norm that the update is divided by", default = 1e-7},
  {"int", "ns_steps", "number of Newton-Schulz iterations", default = 5},
  {"any", "adjust_lr_fn", "the adjustment of the rate: 'original' (and none): sqrt(max(1, "
    .. "rows / columns)), 'match_rms_adamw': 0.2 sqrt(max(rows, columns)), 'spectral_unclamped': "
    .. "sqrt(rows / columns)", optional = true, first = lib.none},
})
matrix.Muon = Muon

local ADJUST = {
  original = function(rows, columns) return math.sqrt(math.max(1, rows / columns)) end,
  match_rms_adamw = function(rows, columns) return 0.2 * math.sqrt(math.max(rows, columns)) end,
  spectral_unclamped = function(rows, columns) return math.sqrt(rows / columns) end,
}
ADJUST[lib.none] = ADJUST.original

function Muon:check(group)
  for _, name in ipairs {"lr", "weight_decay", "momentum", "eps"} do self:range(group, name, 0) end
  self:range(group, "ns_steps", 0, 100)
  local k = group.ns_coefficients
  if type(k) ~= "table" or #k ~= 3 or type(k[1]) ~= "number" or type(k[2]) ~= "number"
     or type(k[3]) ~= "number" then
    errors.refuse("Muon", "ns_coefficients", "three numbers are needed", k, "E_TYPE")
  elseif not ADJUST[group.adjust_lr_fn] then
    errors.refuse("Muon", "adjust_lr_fn", "'original', 'match_rms_adamw', 'spectral_unclamped' or "
      .. "moth.none is needed", group.adjust_lr_fn, "E_DOMAIN")
  end
  for i, p in ipairs(group.params) do
    if p:dim() ~= 2 then
      errors.argument("Muon", "params", ("matrices are needed, but element %d is %s; pass vectors "
        .. "and volumes to another optimizer, such as AdamW"):format(i, errors.describe(p)),
        "E_SHAPE")
    end
  end
end

-- Orthogonalizes x by the Newton-Schulz iteration, a polynomial that moves all singular values
-- towards 1. It runs in bfloat16, which is precise enough and fast on a GPU.
local function near_orthogonal(x, k, steps, eps)
  local tall = x:size(1) > x:size(2)
  local y = x:to(require("moth").bfloat16)
  if tall then y = y:t() end
  y = y / y:norm():clamp {min = eps}
  for _ = 1, steps do
    local gram = y:matmul(y:t())
    local update = gram:addmm(gram, gram, k[2], k[3]) -- rounds only once
    y = y:addmm(update, y, k[1])
  end
  return tall and y:t() or y
end

local orthogonal_step = scope.inside(function(p, grad, buffer, group, rate, shrink)
  local x = bundle.real(p)
  grad = bundle.real(grad)
  buffer:lerp_(grad, 1 - group.momentum)
  local update = group.nesterov and grad:lerp(buffer, group.momentum) or buffer
  update = near_orthogonal(update, group.ns_coefficients, group.ns_steps, group.eps)
  x:mul_(shrink)
  x:sub_(update:to(x.dtype) * (rate * ADJUST[group.adjust_lr_fn](p:size(1), p:size(2))))
  if x.dtype ~= p.dtype then p:copy_(x) end
end)

local FIXED = {"momentum", "nesterov", "ns_coefficients", "eps", "ns_steps", "adjust_lr_fn"}

local function rate_of(group) return group.lr end

-- Returns a number of the step as a tensor; see bundle.note, which requires that steps are counted.
local function rate(self, group, count, place, name, value)
  local x = bundle.number(group, name, place, value(group))
  if not lib.capture then return x end
  local were, state, groups = options_of(group, FIXED), self.state, #self.param_groups
  require("moth.capture.recording").cell("fill_", {write = function(_, s, at)
    if self.state ~= state or #group.params ~= count or #self.param_groups ~= groups
       or not same_options(group, FIXED, were) then
      return false
    end
    s[at.value + 1].number = value(group)
    return true
  end})
  return x
end

function Muon:update(group)
  local params, grads, buffers, n = {}, {}, {}, 0
  local state, all = self.state, group.params
  for _, p in ipairs(all) do
    local grad = bundle.grad(p, self)
    if grad ~= nil and p:numel() > 0 then
      local own = state[p] or {}
      state[p], n = own, n + 1
      params[n], grads[n] = p, grad
      buffers[n] = own.momentum_buffer
        or bundle.put(own, "momentum_buffer", bundle.fresh(p))
    end
  end
  if n == 0 then return end
  local numbers = numbers_at(function(place, name, value)
    return (rate(self, group, #all, place, name, value))
  end, {lr = rate_of, shrink = shrink_of})
  for i = 1, n do
    local by = numbers(params[i])
    orthogonal_step(params[i], grads[i], buffers[i], group, by.lr, by.shrink)
  end
end

return matrix
