--- registry.lua -- the engine's registry of ops, as the Lua face reads it.
--
-- A record of the registry becomes a signature (forms.lua), from which writer.lua writes the
-- function that calls the op, and from which help and messages take what they say of it.

local ffi = require "ffi"
local bit = require "bit"
local forms = require "moth.forms"
local kinds = require "moth.kinds"
local lib = require "moth.lib"

local C = lib.C
local format = string.format

local registry = {}

local HIDDEN, MUTATES = C.MOTH_OP_HIDDEN, C.MOTH_OP_MUTATES
local NUMBERS = 512 -- MOTH_OP_NUMBERS
local FROM_ONE, FROM_ONE_THERE = 0x400000, 0x8000000 -- MOTH_OP_FROM_ONE...

-- ---- a record ----

local function text_of(pointer) return pointer ~= nil and ffi.string(pointer) or "" end

local function choices_of(arg)
  local list, map = {}, {}
  local text = arg.fallback:gsub("^=", "")
  arg.required = arg.fallback:sub(1, 1) == "="
  if arg.row.numbers then -- "0|valid|same": choice 0 are numbers
    arg.fallback, text = text:match("^([^|]*)|(.*)$")
  end
  for name in text:gmatch("[^|]+") do
    list[#list + 1] = name
    map[name] = #list - (arg.row.numbers and 0 or 1)
  end
  arg.choices, arg.choice = list, map
end

local function read_arg(row, numbers, op_name)
  local kind = text_of(row.kind)
  local found, optional = kinds.find(kind)
  if not found then error(format("moth: op '%s' has an argument of kind '%s'", op_name, kind)) end
  local arg = {
    name = text_of(row.name), kind = kind, row = found, doc = text_of(row.doc),
    fallback = text_of(row.fallback), optional = optional, slot = row.slot,
  }
  arg.required = arg.fallback == ""
  if found.choices then choices_of(arg) end
  if arg.name == "ignore_index" then arg.row = kinds.find("ignored") end
  if found.name == "tensor" and numbers then
    arg.row, arg.number = kinds.find("number"), true
  end
  return arg
end

local function read_outputs(text)
  local list = {}
  if text == "" then text = "y" end
  for item in text:gmatch("[^,]+") do
    local name, more = item:match("^%s*([%w_]+)%s*:?%s*(.-)%s*$")
    if not more:find("hidden") then
      local asked = more ~= "" and more ~= "position" and more or nil -- given if this is true
      list[#list + 1] = { name = name, asked = asked,
                          position = asked ~= nil or more == "position" }
    end
  end
  return list
end

-- What ops that make tensors from nothing take beside their own: read in Lua, after the call.
local REQUIRES_GRAD = { name = "requires_grad", kind = "bool", row = kinds.find("bool"),
                        doc = "gather gradients for it", fallback = "false", lua = true }

local function creates(name, args)
  local dtype_given, device_given
  for _, arg in ipairs(args) do
    if arg.row.name == "number" or arg.row.name == "tensor" and not name:find("_like$") then
      return false
    end
    dtype_given = dtype_given or arg.name == "dtype"
    device_given = device_given or arg.name == "device"
  end
  return dtype_given and device_given
end

-- clamp takes numbers; where a bound is a tensor, another op does the work.
local OTHER = { clamp = "clamp_tensor", clamp_ = "clamp_tensor_" }

-- Ops whose number may be a 0-d tensor, with a gradient of its own: the number's position.
local VALUE = { masked_fill = 3, masked_fill_ = 3, index_fill = 4, index_fill_ = 4, fill_ = 2 }

-- Whether an op whose first argument is of this kind is a method of tensors.
local function takes_tensor_first(kind)
  local first = kind and kinds.find(kind).name
  return first == "tensor" or first == "index" or first == "mask"
end

--- What the registry says of an op: a signature (forms.lua) with op, nslots, flags, outputs, doc,
-- examples, file, family, dtypes; nil if there is none of that name.
function registry.describe(name)
  local op = C.moth_op_find(name)
  if op == nil then return nil end
  local info = C.moth_op_describe(op)
  local flags = tonumber(info.flags)
  local args = {}
  for i = 0, info.nargs - 1 do
    local numbers = bit.band(flags, NUMBERS) ~= 0
    if i == 0 and bit.band(flags, MUTATES) ~= 0 then numbers = false end
    args[i + 1] = read_arg(info.args[i], numbers, name)
    if args[i + 1].name == "out" then
      args[i + 1].row, args[i + 1].number = kinds.find("tensor"), nil
    end
  end
  if creates(name, args) then args[#args + 1] = REQUIRES_GRAD end
  local method = takes_tensor_first(args[1] and args[1].kind)
  local sig = forms.signature(name, args, method)
  sig.other, sig.value = OTHER[name], VALUE[name]
  sig.shift = bit.band(flags, FROM_ONE) ~= 0 and "positions"
    or bit.band(flags, FROM_ONE_THERE) ~= 0 and "positions_there" or "to_index"
  sig.op, sig.flags, sig.nslots, sig.method = op, flags, tonumber(info.nslots), method
  sig.family, sig.file = text_of(info.family), text_of(info.file)
  sig.doc, sig.examples = text_of(info.doc), text_of(info.examples)
  sig.dtypes, sig.outputs = tonumber(info.dtypes), read_outputs(text_of(info.outputs))
  return sig
end

-- ---- all of them ----

--- Is there an op of that name?
function registry.has(name) return C.moth_op_find(name) ~= nil end

--- Is there one of that name that users may call?
function registry.is_public(name)
  local op = C.moth_op_find(name)
  return op ~= nil and bit.band(C.moth_op_describe(op).flags, HIDDEN) == 0
end

--- The names of all ops that users may call, and of those that are methods of tensors too.
function registry.names()
  local all, methods = {}, {}
  for i = 0, C.moth_op_count() - 1 do
    local info = C.moth_op_describe(C.moth_op_at(i))
    if bit.band(info.flags, HIDDEN) == 0 then
      local name = text_of(info.name)
      all[#all + 1] = name
      if takes_tensor_first(info.nargs > 0 and text_of(info.args[0].kind)) then
        methods[#methods + 1] = name
      end
    end
  end
  return all, methods
end

return registry
