--- norm.lua -- normalization layers: BatchNorm1d to 3d and InstanceNorm1d to 3d by channel,
-- LayerNorm and RMSNorm over the last dimensions, GroupNorm over groups of channels.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local Module = require "moth.nn.module"
local errors = require "moth.error"
local functional = require "moth.nn.functional"
local layer = require "moth.nn.layer"
local lib = require "moth.binding.lib"
local parameter = require "moth.nn.module.parameter"

local norm = {}

local DEVICE = {"device", "device", "the parameters' device", optional = true}
local BIAS = {"bool", "bias", "learn a bias too?", default = true}
local DTYPE = {"dtype", "dtype", "their element type; default: the default dtype", optional = true}

local function ones(size, dtype, device) return require("moth").ones(size, dtype, device) end
local function zeros(size, dtype, device) return require("moth").zeros(size, dtype, device) end

local function fill(x, value)
  if x ~= nil then require("moth").no_grad(function() x:fill_(value) end) end
end

-- Creates the parameters weight = 1 and bias = 0, each if requested.
local function affine_parameters(self, size, weight, bias, device, dtype)
  if weight then self.weight = parameter.Parameter(ones(size, dtype, device)) end
  if bias then self.bias = parameter.Parameter(zeros(size, dtype, device)) end
end

local function reset_parameters(self)
  fill(self.weight, 1)
  fill(self.bias, 0)
end

-- ---- normalization of channels, with running statistics ----

local function running_buffers(self, device, dtype)
  local n = self.num_features
  self.running_mean = parameter.Buffer(zeros({n}, dtype, device))
  self.running_var = parameter.Buffer(ones({n}, dtype, device))
  self.num_batches_tracked = parameter.Buffer(zeros({}, require("moth").int64, device))
end

local function channel_rows(affine, track)
  return {
    {"int", "num_features", "channels, C"},
    {"float", "eps", "added to the variance", default = 1e-5, bounds = {0}},
    {"float", "momentum", "weight of the newest batch in the statistics; none: equal weights",
      default = 0.1, optional = true},
    {"bool", "affine", "learn weight and bias?", default = affine},
    {"bool", "track_running_stats", "keep running statistics?", default = track},
    DEVICE, DTYPE, BIAS,
  }
end

local function channel_init(self, num_features, eps, momentum, affine, track, device, dtype, bias)
  if num_features < 0 then
    errors.argument(class.typename(self), "num_features",
      "a number from 0 on is needed, got " .. num_features, "E_SHAPE")
  end
  self.num_features, self.eps, self.momentum = num_features, eps, momentum
  self.affine, self.track_running_stats = affine, track
  affine_parameters(self, {num_features}, affine, affine and bias, device, dtype)
  if track then running_buffers(self, device, dtype) end
end

local function reset_running_stats(self)
  fill(self.running_mean, 0)
  fill(self.running_var, 1)
  fill(self.num_batches_tracked, 0)
end

local function channel_repr(self)
  return ("%d, eps=%g, momentum=%s, affine=%s, track_running_stats=%s"):format(self.num_features,
    self.eps, tostring(self.momentum), tostring(self.affine), tostring(self.track_running_stats))
end

local function check_input(self, input, least, most)
  if not lib.istensor(input) then
    errors.refuse(class.typename(self), "input", "a tensor is needed", input, "E_TYPE")
  end
  local dims = input:dim()
  if dims < least or dims > most then
    errors.argument(class.typename(self), "input", ("%s dimensions are needed, got %s"):format(
      least == most and tostring(least) or least .. " or " .. most, errors.describe(input)),
      "E_SHAPE")
  end
end

-- Returns the factor of the current batch in the running statistics.
local function momentum_of(self)
  if self.momentum ~= nil then return self.momentum end
  local counts = self.training and self.track_running_stats and self.num_batches_tracked ~= nil
  if counts and lib.capture then
    errors.raise(class.typename(self) .. " with momentum = moth.none weighs each batch by the "
      .. "number of earlier batches, which a replay of a captured step does not know; set a "
      .. "momentum",
      "E_UNSUPPORTED")
  end
  return counts and 1 / (tonumber(self.num_batches_tracked:item()) + 1) or 0
end

-- Increments num_batches_tracked.
local function count_batch(self)
  local seen = self.num_batches_tracked
  if self.training and self.track_running_stats and seen ~= nil then
    require("moth").no_grad(function() seen:add_(1) end)
  end
end

-- Creates a class of the family of BatchNorm and InstanceNorm, with its defaults of weight, bias
-- and statistics.
local function channel_class(name, all, rows, init)
  local Layer = class(name, Module)
  norm[name] = Layer
  Layer.signature = define.signature(name, rows or channel_rows(all, all))
  Layer.init, Layer.extra_repr = init or channel_init, channel_repr
  Layer.reset_running_stats = reset_running_stats

  function Layer:reset_parameters()
    reset_running_stats(self)
    reset_parameters(self)
  end

  return Layer
end

-- The allowed numbers of dimensions: (N, C), (N, C, L); (N, C, H, W); (N, C, D, H, W).
local BATCH = {BatchNorm1d = {2, 3}, BatchNorm2d = {4, 4}, BatchNorm3d = {5, 5}}

-- Returns the running statistics that a BatchNorm uses or updates, and true if it normalizes by the
-- batch.
local function statistics(self)
  local mean, var = self.running_mean, self.running_var
  local own = self.training or mean == nil
  if self.training and not self.track_running_stats then return nil, nil, own end
  return mean, var, own
end

-- Batch normalization (Ioffe and Szegedy 2015): F.batch_norm with parameters weight and bias (C)
-- and the buffers running_mean, running_var (C) and num_batches_tracked (int64).
-- @param rank  {minimal, maximal} number of dimensions of the input
local function normalize_batches(Layer, rank)
  function Layer:forward(input)
    check_input(self, input, rank[1], rank[2])
    local mean, var, own = statistics(self)
    local y = functional.batch_norm(input, mean, var, self.weight, self.bias, own,
      momentum_of(self), self.eps)
    count_batch(self)
    return y
  end
  Module.passing[Layer.forward] = true

  local function with_relu(self, input)
    if layer.replaced "relu" then return (functional.relu(Layer.forward(self, input))) end
    check_input(self, input, rank[1], rank[2])
    local mean, var, own = statistics(self)
    local y = functional.batch_norm(input, mean, var, self.weight, self.bias, own,
      momentum_of(self), self.eps, "relu")
    count_batch(self)
    return y
  end
  errors.module_frame(with_relu, function(modules) return class.typename(modules[1]) end)
  Module.rectified[Layer.forward] = with_relu
end

for name, rank in pairs(BATCH) do normalize_batches(channel_class(name, true), rank) end

-- ---- several processes ----

local rows = channel_rows(true, true)
table.insert(rows, 6, {"any", "process_group", "processes that take part; default: all",
  optional = true})

--- A BatchNorm for any number of dimensions: (N, C, ...) -> the same shape. In training its
-- statistics are those of the batches of all processes of moth.distributed.
local SyncBatchNorm = channel_class("SyncBatchNorm", true, rows,
  function(self, num_features, eps, momentum, affine, track, group, device, dtype, bias)
    channel_init(self, num_features, eps, momentum, affine, track, device, dtype, bias)
    self.process_group = group
  end)

normalize_batches(SyncBatchNorm, {2, 8})

local alone = SyncBatchNorm.forward

function SyncBatchNorm:forward(input)
  local dist = lib.anchor.loaded["moth.distributed"]
  local own = self.training or self.running_mean == nil
  if not own or not dist or not dist.is_initialized()
      or dist.get_world_size(self.process_group) < 2 then
    return (alone(self, input))
  end
  check_input(self, input, 2, 8)
  local y = require("moth.nn.parallel.norm")(self, input, momentum_of(self))
  count_batch(self)
  return y
end

local function is_batch_norm(module)
  if parameter.isinstance(module, SyncBatchNorm) then return false end
  for name in pairs(BATCH) do
    if parameter.isinstance(module, norm[name]) then return true end
  end
  return false
end

--- nn.SyncBatchNorm.convert_sync_batchnorm(net): replaces the BatchNorm layers of a net by
-- SyncBatchNorm layers with the same parameters and buffers. Layers inside `net` are replaced in
-- place.
-- @param module         a module
-- @param process_group  of the new layers; default: all processes
-- @return module, or the SyncBatchNorm that replaces it
function SyncBatchNorm.convert_sync_batchnorm(module, process_group)
  if not parameter.isinstance(module, Module) then
    errors.refuse("convert_sync_batchnorm", "module", "a module is needed", module, "E_TYPE")
  end
  if is_batch_norm(module) then
    local new = SyncBatchNorm(module.num_features, {eps = module.eps, affine = module.affine,
      momentum = module.momentum == nil and lib.none or module.momentum,
      track_running_stats = module.track_running_stats, process_group = process_group})
    new.weight, new.bias = module.weight, module.bias
    new.running_mean, new.running_var = module.running_mean, module.running_var
    new.num_batches_tracked, new.training = module.num_batches_tracked, module.training
    return new
  end
  for _, child in ipairs(module:_children()) do
    local new = SyncBatchNorm.convert_sync_batchnorm(child[2], process_group)
    if new ~= child[2] then module:set_submodule(child[1], new) end
  end
  return module
end

local INSTANCE = {InstanceNorm1d = 3, InstanceNorm2d = 4, InstanceNorm3d = 5}

-- Instance normalization (Ulyanov et al. 2016): F.instance_norm over (N, C, ...) or (C, ...).
for name, dims in pairs(INSTANCE) do
  local Layer = channel_class(name, false)

  function Layer:forward(input)
    check_input(self, input, dims - 1, dims)
    local single = input:dim() == dims - 1
    local own = self.training or not self.track_running_stats
    local y = functional.instance_norm(single and input:unsqueeze(1) or input, self.running_mean,
      self.running_var, self.weight, self.bias, own, self.momentum or 0, self.eps)
    if single then y = y:squeeze(1) end
    return y
  end
  Module.passing[Layer.forward] = true
end

-- ---- normalization of the last dimensions ----

local function sizes_of(v)
  if type(v) == "number" then return {v} end
  local list = {}
  for i = 1, #v do list[i] = v[i] end
  return list
end

local function sizes_text(list) return "(" .. table.concat(list, ", ") .. ")" end

--- Layer normalization (Ba et al. 2016): (..., normalized_shape) -> the same shape. weight and
-- bias have normalized_shape and are initialized with 1 and 0.
local LayerNorm = class("LayerNorm", Module)
norm.LayerNorm = LayerNorm

LayerNorm.signature = define.signature("LayerNorm", {
  {"ints", "normalized_shape", "sizes of the last dimensions"},
  {"float", "eps", "added to the variance", default = 1e-5, bounds = {0}},
  {"bool", "elementwise_affine", "learn weight and bias?", default = true},
  BIAS, DEVICE, DTYPE,
})

function LayerNorm:init(normalized_shape, eps, elementwise_affine, bias, device, dtype)
  self.normalized_shape, self.eps = sizes_of(normalized_shape), eps
  self.elementwise_affine = elementwise_affine
  affine_parameters(self, self.normalized_shape, elementwise_affine, elementwise_affine and bias,
    device, dtype)
end

LayerNorm.reset_parameters = reset_parameters

function LayerNorm:forward(input)
  return (functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps))
end
Module.passing[LayerNorm.forward] = true

function LayerNorm:extra_repr()
  return ("%s, eps=%g, elementwise_affine=%s"):format(sizes_text(self.normalized_shape), self.eps,
    tostring(self.elementwise_affine))
end

--- Root mean square normalization (Zhang and Sennrich 2019): (..., normalized_shape) -> the same
-- shape. weight has normalized_shape and is initialized with 1.
local RMSNorm = class("RMSNorm", Module)
norm.RMSNorm = RMSNorm

RMSNorm.signature = define.signature("RMSNorm", {
  {"ints", "normalized_shape", "sizes of the last dimensions"},
  {"float", "eps", "added to the mean square; default: the machine epsilon",
    optional = true, bounds = {0}},
  {"bool", "elementwise_affine", "learn a weight?", default = true},
  DEVICE, DTYPE,
})

function RMSNorm:init(normalized_shape, eps, elementwise_affine, device, dtype)
  self.normalized_shape, self.eps = sizes_of(normalized_shape), eps
  self.elementwise_affine = elementwise_affine
  affine_parameters(self, self.normalized_shape, elementwise_affine, false, device, dtype)
end

RMSNorm.reset_parameters = reset_parameters

function RMSNorm:forward(input)
  return (functional.rms_norm(input, self.normalized_shape, self.weight, self.eps))
end
Module.passing[RMSNorm.forward] = true

function RMSNorm:extra_repr()
  return ("%s, eps=%s, elementwise_affine=%s"):format(sizes_text(self.normalized_shape),
    tostring(self.eps), tostring(self.elementwise_affine))
end

-- ---- normalization of groups of channels ----

--- Group normalization (Wu and He 2018): (N, C, ...) -> the same shape. weight and bias (C) are
-- initialized with 1 and 0.
local GroupNorm = class("GroupNorm", Module)
norm.GroupNorm = GroupNorm

GroupNorm.signature = define.signature("GroupNorm", {
  {"int", "num_groups", "the number of groups"},
  {"int", "num_channels", "channels, C"},
  {"float", "eps", "added to the variance", default = 1e-5, bounds = {0}},
  {"bool", "affine", "learn weight and bias?", default = true},
  DEVICE, DTYPE, BIAS,
})

function GroupNorm:init(num_groups, num_channels, eps, affine, device, dtype, bias)
  if num_groups < 1 or num_channels % num_groups ~= 0 then
    errors.argument("GroupNorm", "num_groups", ("%d channels cannot be divided into %d "
      .. "groups"):format(
      num_channels, num_groups), "E_SHAPE")
  end
  self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
  self.affine = affine
  affine_parameters(self, {num_channels}, affine, affine and bias, device, dtype)
end

GroupNorm.reset_parameters = reset_parameters

function GroupNorm:forward(input)
  return (functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps))
end
Module.passing[GroupNorm.forward] = true

function GroupNorm:extra_repr()
  return ("%d, %d, eps=%g, affine=%s"):format(self.num_groups, self.num_channels, self.eps,
    tostring(self.affine))
end

return norm
