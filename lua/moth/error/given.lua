--- given.lua -- translates an error inside a layer of Moth into the input of the layer; loaded at
-- the first such error.
--
--     nn.LayerNorm(4)(x) calls layer_norm, which refuses normalized_shape, a field of the layer:
--     in norm: bad argument 'input' to 'LayerNorm' ((..., 4) is needed, got f32 (2, 3, 5))
--
-- This applies if the refused value is a parameter, a buffer or a field of the layer: then the
-- input does not fit it. If a layer passes its input to a nested layer, the message names the
-- outer input: TransformerEncoderLayer's src is the query of its self_attn.

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local C, ctx = lib.C, lib.ctx
local concat, format = table.concat, string.format

local info = require("ffi").new "moth_tensor_info"

local function storage_of(x)
  if not lib.istensor(x) or C.moth_inspect(ctx, x, info) < 0 then return nil end
  return info.storage
end

local function same_value(a, b)
  if rawequal(a, b) then return true end
  local storage = storage_of(a)
  return storage ~= nil and storage_of(b) == storage
end

-- ---- shapes that layers need ----

-- "(N, 4, H, W) or (4, H, W)", with as many spatial dimensions as the kernel has.
local function channels_first(channels, n)
  local sides = n == 1 and "L" or concat({"D", "H", "W"}, ", ", 4 - n)
  return format("(N, %d, %s) or (%d, %s)", channels, sides, channels, sides)
end

local function last_sizes(self, x)
  local wanted, fits = self.normalized_shape, x:dim() >= #self.normalized_shape
  for d = 1, fits and #wanted or 0 do fits = fits and x:size(d - #wanted - 1) == wanted[d] end
  return not fits and format("(..., %s)", concat(wanted, ", "))
end

local function of_channels(c, n, x)
  local fits = x:dim() == n + 2 and x:size(2) == c or x:dim() == n + 1 and x:size(1) == c
  return not fits and channels_first(c, n)
end

local function convolved(self, x) return of_channels(self.in_channels, #self.kernel_size, x) end

-- By class: function(module, input, name of the input) -> the shape that it needs, if the input
-- has another one.
local WANTED = {
  LayerNorm = last_sizes, RMSNorm = last_sizes,
  GroupNorm = function(self, x)
    local fits = x:dim() >= 2 and x:size(2) == self.num_channels
    return not fits and format("(N, %d, ...)", self.num_channels)
  end,
  InstanceNorm1d = function(self, x) return of_channels(self.num_features, 1, x) end,
  InstanceNorm2d = function(self, x) return of_channels(self.num_features, 2, x) end,
  InstanceNorm3d = function(self, x) return of_channels(self.num_features, 3, x) end,
  PReLU = function(self, x)
    local n = self.num_parameters
    return n > 1 and not (x:dim() >= 2 and x:size(2) == n) and format("(N, %d, ...)", n)
  end,
  Bilinear = function(self, x, name)
    local wanted = name == "input2" and self.in2_features or self.in1_features
    return (x:dim() == 0 or x:size(-1) ~= wanted) and format("(..., %d)", wanted)
  end,
}
for n = 1, 3 do
  WANTED["Conv" .. n .. "d"], WANTED["ConvTranspose" .. n .. "d"] = convolved, convolved
end

local function wanted_of(module, x, name)
  local known = class.of(module)
  while known do
    local f = WANTED[class.typename(known)]
    if f then return f(module, x, name) end
    known = class.base(known)
  end
end

-- ---- calls of layers ----

-- Returns true for a layer whose forward is Moth's, and which is no container of the user's
-- modules.
local function is_own(module)
  local Module = require "moth.nn.module"
  return errors.is_own(class.written(module.forward)) and not module[Module.store_key].names
end

local function names_of(module)
  local forward, names = class.written(module.forward), {}
  local declared = bind.signature(forward)
  for i, arg in ipairs(declared and declared.args or {}) do names[i] = arg.name end
  for i = 2, declared and 0 or debug.getinfo(forward, "u").nparams do
    names[i - 1] = debug.getlocal(forward, i)
  end
  return names
end

-- The names and values of a call, also of a call by name, {input = x}.
local function call_of(given)
  local ok, values = pcall(require("moth.nn.module.named").sorted, given.module, given.values)
  if not ok then values = given.values end
  return {module = given.module, names = names_of(given.module), values = values}
end

-- The position of the argument that is a value or shares its memory.
local function position_of(call, value)
  for i = 1, #call.names do
    if call.values[i] ~= nil and same_value(call.values[i], value) then return i end
  end
end

-- The name of the parameter or buffer that is a value, or that is the first tensor in a list.
local function member_of(module, value)
  if lib.is_plain(value) then value = value[1] end
  for _, member in ipairs(lib.istensor(value) and module:_members() or {}) do
    if same_value(member[2], value) then return member[1] end
  end
end

-- The input to blame, and the shape that it needs: an input with another shape than the layer
-- needs; else the first input that the failed op takes; else the first tensor.
local function input_of(call, inner)
  local first
  for i, name in ipairs(call.names) do
    local wanted = lib.istensor(call.values[i]) and wanted_of(call.module, call.values[i], name)
    if wanted then return i, wanted end
  end
  for i = 1, #call.names do
    local x = call.values[i]
    if lib.istensor(x) then
      first = first or i
      for k = 1, inner and inner.n or 0 do
        if same_value(inner.values[k], x) then return i end
      end
    end
  end
  return first
end

-- ---- the message ----

-- The message about input x, for an error that blames a member of the layer.
local function message_of(x, member, blame, code)
  local own, cure = blame.text:match "^(.-) does not match '[%w_]+', .-(;.*)$"
  if own and code == "E_DTYPE" then
    return format("%s does not match the layer's %s, %s%s", errors.describe(x), member, own, cure)
  end
  return format("the layer's %s: %s", member, blame.text)
end

local RELATIONS = {E_SHAPE = true, E_DTYPE = true, E_DEVICE = true}

-- The layer's input to blame: its position and the message.
local function own_input(call, inner, blame, code)
  local value
  for k = 1, inner and inner.n or 0 do
    if inner.names[k] == blame.argname then value = inner.values[k] end
  end
  for i, name in ipairs(inner and {} or call.names) do
    if name == blame.argname then return i, blame.text, false end
  end
  local at, wanted = input_of(call, inner)
  if wanted and (code == "E_SHAPE" or code == "E_ARG") then
    return at, format("%s is needed, got %s", wanted, errors.describe(call.values[at])), true
  end
  local position = type(value) ~= "nil" and position_of(call, value)
  if position then return position, blame.text, call.names[position] ~= blame.argname end
  local member = at and RELATIONS[code] and member_of(call.module, value)
  if member then return at, message_of(call.values[at], member, blame, code), true end
end

local function retold(blame, code, within)
  local list = within.list
  if not is_own(list[1].module) or not blame.argname then return nil end
  local call = call_of(list[1])
  local at, text, changed = own_input(call, within.call, blame, code)
  if not at then return nil end
  local value, lifted = call.values[at], 0
  for k = 2, type(value) == "nil" and 0 or #list do
    if not is_own(list[k].module) then break end
    local outer = call_of(list[k])
    local position = position_of(outer, value)
    if not position then break end
    call, at, lifted = outer, position, k - 1
  end
  if not changed and lifted == 0 then return nil end
  return format("bad argument '%s' to '%s' (%s)", call.names[at], class.typename(call.module),
    text), within.path(lifted)
end

local busy = false -- describing a released tensor may raise, which calls this function again

--- The text of an error with the inputs of layers.
-- @param blame   {fname, argname, text}: the error without layers
-- @param code    its code
-- @param within  the layers, by stack.locate
-- @return the text and the path, or nil to keep the error
return function(blame, code, within)
  if busy then return nil end
  busy = true
  local ok, text, path = pcall(retold, blame, code, within)
  busy = false
  if ok then return text, path end
end
