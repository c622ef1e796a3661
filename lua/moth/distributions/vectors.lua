--- vectors.lua -- transforms of vectors and matrices: SoftmaxTransform, StickBreakingTransform,
-- LowerCholeskyTransform, PositiveDefiniteTransform, CorrCholeskyTransform, ReshapeTransform; also
-- CatTransform, StackTransform.

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local constraints = require "moth.distributions.constraints"
local define = require "moth.binding.define"
local Distribution = require "moth.distributions.distribution"
local errors = require "moth.error"
local transforms = require "moth.distributions.transforms"

local ops, tools = bind.ops, Distribution.tools
local Transform, plain = transforms.Transform, transforms.without_arguments

local vectors = {}

-- Replaces the last n sizes.
local function ending(shape, n, ...)
  return (tools.join({unpack(shape, 1, #shape - n)}, {...}))
end

-- ---- vectors ----

--- exp(x) divided by its sum; the inverse is the logarithm.
local Softmax = plain(vectors, "SoftmaxTransform", constraints.real_vector, constraints.simplex,
  false)

function Softmax._call(_, x) return (x:softmax(-1)) end
function Softmax._inverse(_, y) return (y:log()) end

--- Stick breaking: maps vectors of n numbers to probability vectors of n + 1 numbers. Each number
-- determines the fraction that is taken from the rest. Zeros map to equal probabilities.
local StickBreaking = plain(vectors, "StickBreakingTransform", constraints.real_vector,
  constraints.simplex, true)

-- The logarithms of the number of remaining parts: n to 1.
local function parts(x)
  return (ops.arange(x:size(-1), 0, -1, x.dtype, x.device):log())
end

local function but_last(x) return (x:narrow(-1, 1, x:size(-1) - 1)) end

-- Prepends or appends one number to each vector of x.
local function framed(x, value, in_front)
  local one = ops.full(ending(x.shape, 1, 1), value, x.dtype, x.device)
  return (ops.cat(in_front and {one, x} or {x, one}, -1))
end

function StickBreaking._call(_, x)
  local z = (x - parts(x)):sigmoid()
  return framed(z, 1, false) * framed((1 - z):cumprod(-1), 1, true)
end

function StickBreaking._inverse(_, y)
  local first = but_last(y)
  local left = (1 - first:cumsum(-1)):clamp(2 ^ -126)
  return first:log() - left:log() + parts(first)
end

function StickBreaking.log_abs_det_jacobian(_, x, y) -- the Jacobian is triangular
  local z = x - parts(x)
  return ((ops.logsigmoid(z) - z + but_last(y):log()):sum(-1))
end
function StickBreaking.forward_shape(_, shape) return (ending(shape, 1, shape[#shape] + 1)) end
function StickBreaking.inverse_shape(_, shape) return (ending(shape, 1, shape[#shape] - 1)) end

-- ---- matrices ----

local matrix = constraints.independent(constraints.real, 2)

--- A lower triangular matrix with exp of its diagonal.
local LowerCholesky = plain(vectors, "LowerCholeskyTransform", matrix, constraints.lower_cholesky,
  false)

local function with_diagonal(x, f) -- applies f to the diagonal and drops the upper triangle
  return x:tril(-1) + f(x:diagonal(0, -2, -1)):diag_embed()
end

function LowerCholesky._call(_, x) return (with_diagonal(x, ops.exp)) end
function LowerCholesky._inverse(_, y) return (with_diagonal(y, ops.log)) end

--- L L^T, where L is the result of LowerCholeskyTransform.
local PositiveDefinite = plain(vectors, "PositiveDefiniteTransform", matrix,
  constraints.positive_definite, false)

function PositiveDefinite._call(_, x)
  local L = with_diagonal(x, ops.exp)
  return (L:matmul(L:transpose(-2, -1)))
end
function PositiveDefinite._inverse(_, y)
  return (with_diagonal(require("moth").linalg.cholesky(y), ops.log))
end

--- The Cholesky factor of a correlation matrix. The D (D - 1) / 2 inputs are the tanh^-1 of partial
-- correlations, row by row.
local CorrCholesky = plain(vectors, "CorrCholeskyTransform", constraints.real_vector,
  constraints.corr_cholesky, true)

-- Returns the positions, in a flattened matrix, of the elements at least `below` under the
-- diagonal.
local function under(d, below, device)
  local list = {}
  for row = 1, d do
    for column = 1, row - below do list[#list + 1] = (row - 1) * d + column end
  end
  local moth = require "moth"
  return (moth.tensor(list, {dtype = moth.int64, device = device}))
end

local function matrix_size(n, fname)
  local d = math.floor(math.sqrt(0.25 + 2 * n) + 0.5 + 1e-9)
  if d * (d - 1) / 2 ~= n then
    errors.argument(fname, "x", ("D (D - 1) / 2 numbers are needed, got %d"):format(n), "E_SHAPE")
  end
  return d
end

-- Returns 1 minus the running sum of squares of each row.
local function left(y) return 1 - y:square():cumsum(-1) end

function CorrCholesky._call(_, x)
  local d = matrix_size(x:size(-1), "CorrCholeskyTransform")
  local most = 1 - tools.eps(x)
  local flat = ops.zeros(ending(x.shape, 1, d * d), x.dtype, x.device)
  local r = flat:index_copy(-1, under(d, 1, x.device), x:tanh():clamp(-most, most))
    :unflatten(-1, {d, d})
  local rest = but_last((1 - r:square()):sqrt():cumprod(-1))
  return (r + ops.eye(d, d, x.dtype, x.device)) * framed(rest, 1, true)
end

function CorrCholesky._inverse(_, y)
  local at = under(y:size(-1), 1, y.device)
  local before = framed(but_last(left(y)), 1, true):flatten(-2):index_select(-1, at)
  return ((y:flatten(-2):index_select(-1, at) / before:sqrt()):atanh())
end

function CorrCholesky.log_abs_det_jacobian(_, x, y)
  local at = under(y:size(-1), 2, y.device)
  local sticks = left(y):flatten(-2):index_select(-1, at):log():sum(-1) * 0.5
  return sticks + ((ops.logsigmoid(x * 2) - x + math.log(2)) * 2):sum(-1)
end

function CorrCholesky.forward_shape(_, shape)
  local d = matrix_size(shape[#shape], "CorrCholeskyTransform")
  return (ending(shape, 1, d, d))
end

function CorrCholesky.inverse_shape(_, shape)
  local d = shape[#shape]
  return (ending(shape, 2, d * (d - 1) / 2))
end

--- Reshapes the last dimensions.
local Reshape = class("ReshapeTransform", Transform)
vectors.ReshapeTransform = Reshape
Reshape.signature = define.signature("ReshapeTransform", {
  {"shape", "in_shape", "shape of a value"}, {"shape", "out_shape", "shape of the result"}})

function Reshape:init(from, to)
  from, to = type(from) == "number" and {from} or from, type(to) == "number" and {to} or to
  for _, row in ipairs {{"in_shape", from}, {"out_shape", to}} do
    for _, size in ipairs(row[2]) do
      if size < 0 then
        errors.refuse("ReshapeTransform", row[1], "sizes from 0 on are needed", row[2], "E_SHAPE")
      end
    end
  end
  from, to = tools.join(from), tools.join(to)
  if from:numel() ~= to:numel() then
    errors.argument("ReshapeTransform", "out_shape", ("as many elements as %s are needed, got %s")
      :format(tostring(from), tostring(to)), "E_SHAPE")
  end
  self.in_shape, self.out_shape = from, to
  self.domain = constraints.independent(constraints.real, #from)
  self.codomain = constraints.independent(constraints.real, #to)
end

local function replaced(shape, from, to)
  local n = #shape - #from
  if n < 0 or not (tools.join({unpack(shape, n + 1)}) == from) then
    errors.argument("ReshapeTransform", "x", ("sizes that end in %s are needed, got %s"):format(
      tostring(from), tostring(shape)), "E_SHAPE")
  end
  return (tools.join({unpack(shape, 1, n)}, to))
end

function Reshape:forward_shape(shape) return (replaced(shape, self.in_shape, self.out_shape)) end
function Reshape:inverse_shape(shape) return (replaced(shape, self.out_shape, self.in_shape)) end
function Reshape:_call(x) return (x:reshape(self:forward_shape(x.shape))) end
function Reshape:_inverse(y) return (y:reshape(self:inverse_shape(y.shape))) end

function Reshape:log_abs_det_jacobian(x)
  return (ops.zeros(ending(x.shape, #self.in_shape), x.dtype, x.device))
end

-- ---- pieces ----

-- Defines a class that applies each transform of a list to one piece: cut(self, x) returns the list
-- of pieces, join(list, dim) concatenates them.
local function pieces(name, rows, cut, join, constraint)
  local new = class(name, Transform)
  vectors[name] = new
  new.signature = define.signature(name, rows)

  function new:init(tseq, dim, lengths)
    local domains, codomains = {}, {}
    self.transforms, self.dim, self.lengths = tseq, dim, lengths
    for i, t in ipairs(tseq) do
      transforms.checked(name, ("tseq[%d]"):format(i), t)
      domains[i], codomains[i] = t.domain, t.codomain
      self.bijective = self.bijective and t.bijective
    end
    self.domain = constraint(domains, dim, lengths)
    self.codomain = constraint(codomains, dim, lengths)
  end

  local function each(method)
    return function(self, x)
      local list = cut(self, x)
      for i, t in ipairs(self.transforms) do list[i] = t[method](t, list[i]) end
      return (join(list, self.dim))
    end
  end
  new._call, new._inverse = each "_call", each "_inverse"

  function new:log_abs_det_jacobian(x, y)
    local xs, ys, list = cut(self, x), cut(self, y), {}
    local events = self.domain.event_dim
    for i, t in ipairs(self.transforms) do
      list[i] = t:log_abs_det_jacobian(xs[i], ys[i])
      if name == "CatTransform" then
        list[i] = tools.sum_last(list[i], events - t.domain.event_dim)
      end
    end
    local dim = self.dim - (self.dim > 0 and x:dim() + 1 or 0) + events
    if dim < 0 then return (join(list, dim)) end -- for dim > 0 it is inside a value
    local total = list[1]
    for i = 2, #list do total = total + list[i] end
    return total
  end
end

--- Applies each transform to its piece along a dimension.
pieces("CatTransform", {
  {"modules", "tseq", "a list of transforms"},
  {"int", "dim", "the dimension of the pieces", default = 1},
  {"ints", "lengths", "the length of each piece; default: 1 each", optional = true},
}, function(self, x)
  local lengths = self.lengths
  if not lengths then
    lengths = {}
    for i = 1, #self.transforms do lengths[i] = 1 end
  end
  return (x:split(lengths, self.dim))
end, function(list, dim) return (ops.cat(list, dim)) end, constraints.cat)

--- Applies each transform to its slice along a dimension.
pieces("StackTransform", {
  {"modules", "tseq", "a list of transforms"},
  {"int", "dim", "the dimension of the slices", default = 1},
}, function(self, x) return (x:unbind(self.dim)) end,
function(list, dim) return (ops.stack(list, dim)) end, constraints.stack)

return vectors
