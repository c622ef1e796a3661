--- lazy.lua -- layers that infer the size of their input from the first call: LazyLinear,
-- LazyConv1d to 3d, LazyConvTranspose1d to 3d, LazyBatchNorm1d to 3d, LazyInstanceNorm1d to 3d.
--
-- Until then their parameters are uninitialized: an optimizer may hold them, and `net:to(...)` sets
-- their device and dtype; any other use raises. The first call changes the layer's class to Linear,
-- Conv2d and so on.

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local Module = require "moth.nn.module"
local named = require "moth.nn.module.named"
local parameter = require "moth.nn.module.parameter"
local uninitialized = require "moth.nn.module.uninitialized"

local lazy = {}

local STORE = Module.store_key

local function moth() return require "moth" end

-- Returns the argument rows of another class, without the argument `name`, and with other defaults.
local function rows_without(signature, name, defaults)
  local rows = {}
  for _, arg in ipairs(bind.signature(signature).args) do
    if arg.name ~= name then
      local default = defaults and defaults[arg.name]
      if default == nil then default = arg.default end
      rows[#rows + 1] = {arg.kind, arg.name, arg.doc, default = default,
        optional = arg.optional, choices = arg.choices, same = arg.same, bounds = arg.bounds,
        single = arg.single}
    end
  end
  return rows
end

-- ---- conversion to the real class ----

-- Initializes a layer like a new layer of the given size. Its tensors stay the same Lua objects.
local function grow(module, size)
  local row, args = module.lazy_row, module.lazy_args
  local like = module[row.like] or module.running_mean
  local all = {[row.size] = size}
  for name, value in pairs(args) do all[name] = value end
  if like ~= nil then all.dtype, all.device = like.dtype, like.device end
  local made = row.base(all)
  if lib.capture then require("moth.capture.recording").void() end
  for _, member in ipairs(made:_members()) do
    uninitialized.become(module[member[1]], member[2]:detach(), class.typename(module))
  end
  local from, to = made[STORE], module[STORE].fields
  to.lazy_args, to.lazy_row = nil, nil
  for name, value in pairs(from.fields) do
    if not from.kind[name] and name ~= "training" then to[name] = value end
  end
  class.become(module, require("moth.nn")[class.typename(row.base)]) -- with its checks
  module[STORE].class = row.base
  Module.sight.changed()
end

-- Called before a state dict is loaded: the state dict also determines the size.
local function before_load(module, state, prefix)
  local row = module.lazy_row
  local x = rawget(state, prefix .. row.like) or rawget(state, prefix .. "running_mean")
  if not lib.istensor(x) or parameter.waiting[x] ~= nil or x:dim() < row.least then return end
  grow(module, row.of_weight(x, module.lazy_args))
end

-- ---- the classes ----

-- Makes one class. base: the class it becomes; size: the argument inferred from the input; like: a
-- tensor that is always present; least: its minimal number of dimensions; of_weight(x, args): the
-- size from that tensor; of_input(x): the size, or nil and a description of the requirement;
-- output_size: its kind if calls accept one; defaults: defaults that differ from those of base.
local function make(row)
  local name = "Lazy" .. class.typename(row.base)
  local rows = rows_without(row.base.signature, row.size, row.defaults)
  local Lazy = class(name, row.base)
  lazy[name] = Lazy
  Lazy.signature = define.signature(name, rows)

  function Lazy:init(...)
    local args = {}
    for i, arg in ipairs(rows) do
      local value = (select(i, ...))
      if value == nil and arg.optional then value = lib.none end
      args[arg[2]] = value
    end
    local dtype, device = args.dtype, args.device
    if dtype == lib.none then dtype = nil end
    if device == lib.none then device = nil end
    args.dtype, args.device = nil, nil
    for _, member in ipairs(row.members(args)) do
      self[member[1]] = member[1] == "num_batches_tracked"
        and parameter.Buffer(moth().zeros({}, {dtype = moth().int64, device = device}))
        or uninitialized.new(member[2], member[2] == "parameter", device, dtype)
    end
    self.lazy_args, self.lazy_row = args, row
  end

  Lazy._before_load = before_load

  local function first(self, input, ...)
    if not lib.istensor(input) then
      errors.refuse(name, "input", "a tensor is needed", input, "E_TYPE")
    end
    local size, needed = row.of_input(input)
    if not size then
      errors.refuse(name, "input", needed .. " is needed", input, "E_SHAPE")
    end
    grow(self, size)
    return (self:forward(input, ...))
  end

  if row.output_size then
    function Lazy:forward(input, output_size) return (first(self, input, output_size)) end
    named.takes(Lazy.forward, {
      {"tensor", "input", "the input of the resulting layer"},
      {row.output_size, "output_size", "sizes of the result, if the stride allows several",
        optional = true},
    })
  else
    function Lazy:forward(input) return (first(self, input)) end
  end

  --- Does nothing: the parameters have no values before the size is known.
  function Lazy:reset_parameters() end -- luacheck: ignore self

  function Lazy:extra_repr()
    local parts = {row.size .. "=0"}
    for _, arg in ipairs(rows) do
      local value = self.lazy_args[arg[2]]
      if value ~= nil and value ~= lib.none and (arg.default == nil or value ~= arg.default) then
        if type(value) == "table" then value = "(" .. table.concat(value, ", ") .. ")" end
        parts[#parts + 1] = arg[2] .. "=" .. tostring(value)
      end
    end
    return table.concat(parts, ", ")
  end
end

local function weight_and_bias(args)
  local list = {{"weight", "parameter"}}
  if args.bias then list[2] = {"bias", "parameter"} end
  return list
end

local nn = {linear = require "moth.nn.layer.linear", conv = require "moth.nn.layer.conv",
            norm = require "moth.nn.layer.norm"}

make {
  base = nn.linear.Linear, size = "in_features", like = "weight", least = 2,
  members = weight_and_bias,
  of_weight = function(x) return x:size(2) end,
  of_input = function(x)
    if x:dim() < 1 then return nil, "a tensor of one dimension or more" end
    return x:size(-1)
  end,
}

-- Returns a function for the channels of an input with n dimensions after the channels.
local function channels(n, batched)
  return function(x)
    local dim = x:dim()
    if dim == n + 2 then return x:size(2) end
    if dim == n + 1 and not batched then return x:size(1) end
    return nil, batched and ("a batch of %d dimensions"):format(n + 2)
      or ("a tensor of %d or %d dimensions"):format(n + 1, n + 2)
  end
end

for n = 1, 3 do
  make {
    base = nn.conv["Conv" .. n .. "d"], size = "in_channels", like = "weight", least = n + 2,
    members = weight_and_bias, of_input = channels(n),
    of_weight = function(x, args) return x:size(2) * args.groups end,
  }
  make {
    base = nn.conv["ConvTranspose" .. n .. "d"], size = "in_channels", like = "weight",
    least = n + 2, members = weight_and_bias, of_input = channels(n), output_size = "int" .. n,
    of_weight = function(x) return x:size(1) end,
  }
end

-- The weights and running statistics of BatchNorm and InstanceNorm, each if requested.
local function statistics(args)
  local list = {}
  if args.affine then list = {{"weight", "parameter"}} end
  if args.affine and args.bias then list[2] = {"bias", "parameter"} end
  if args.track_running_stats then
    for _, name in ipairs {"running_mean", "running_var", "num_batches_tracked"} do
      list[#list + 1] = {name, "buffer"}
    end
  end
  return list
end

for n = 1, 3 do
  for name, batched in pairs {BatchNorm = true, InstanceNorm = false} do
    local of_input = channels(n, batched)
    make {
      base = nn.norm[name .. n .. "d"], size = "num_features", like = "weight", least = 1,
      members = statistics, defaults = {affine = true, track_running_stats = true},
      of_weight = function(x) return x:size(1) end,
      of_input = function(x)
        if batched and n == 1 and x:dim() == 2 then return x:size(2) end
        return of_input(x)
      end,
    }
  end
end

return lazy
