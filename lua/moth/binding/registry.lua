--- registry.lua -- reads the core's registry of ops.
--
-- A record becomes a signature (forms.lua). writer.lua generates the op's function from it; help
-- and messages use its texts.

local ffi = require "ffi"
local bit = require "bit"
local forms = require "moth.binding.forms"
local kinds = require "moth.binding.kinds"
local lib = require "moth.binding.lib"

local C = lib.C
local format = string.format

local registry = {}

local HIDDEN = C.MOTH_OP_HIDDEN

-- ---- a record ----

local function text_of(pointer) return pointer ~= nil and ffi.string(pointer) or "" end

local function choices_of(arg)
  local list, map = {}, {}
  local text = arg.fallback:gsub("^=", "")
  arg.required = arg.fallback:sub(1, 1) == "="
  if arg.row.numbers then -- "0|valid|same": the choice 0 means numbers
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
  if found.name == "tensor" and numbers and kind ~= "out?" then
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
      local asked = more ~= "" and more ~= "position" and more or nil -- its condition
      list[#list + 1] = {name = name, asked = asked,
                         position = asked ~= nil or more == "position"}
    end
  end
  return list
end

-- An argument of factory ops that Lua reads, after the call.
local REQUIRES_GRAD = {name = "requires_grad", kind = "bool", row = kinds.find("bool"),
                       doc = "record gradients for it", fallback = "false", lua = true}

-- Returns true if an op with a first argument of this kind is a tensor method.
local function takes_tensor_first(kind)
  local first = kind and kinds.find(kind).name
  return first == "tensor" or first == "index" or first == "mask"
end

--- The registry's data on an op: a signature (forms.lua) with op, nslots, outputs, doc, examples,
-- file, family, dtypes, and its flags: mutates, list, differentiable; nil if there is no op with
-- that name.
function registry.describe(name)
  local op = C.moth_op_find(name)
  if op == nil then return nil end
  local info = C.moth_op_describe(op)
  local function has(flag) return bit.band(info.flags, flag) ~= 0 end
  local numbers, mutates = has(C.MOTH_OP_NUMBERS), has(C.MOTH_OP_MUTATES)
  local args, value, ignored = {}, nil, nil
  for i = 1, info.nargs do
    local arg = read_arg(info.args[i - 1], numbers and not (mutates and i == 1), name)
    if arg.row.name == "element" then value = i end
    if arg.row.name == "ignored" then ignored = i end
    args[i] = arg
  end
  if has(C.MOTH_OP_CREATES) then args[#args + 1] = REQUIRES_GRAD end
  local method = takes_tensor_first(args[1] and args[1].kind)
  local sig = forms.signature(name, args, method)
  sig.value, sig.ignored = value, ignored -- positions among the arguments
  sig.other = info.tensors[0] ~= 0 and ffi.string(info.tensors) or nil
  sig.shift = has(C.MOTH_OP_FROM_ONE) and "positions"
    or has(C.MOTH_OP_FROM_ONE_THERE) and "positions_there" or "to_index"
  sig.op, sig.nslots, sig.method = op, tonumber(info.nslots), method
  sig.mutates, sig.list, sig.differentiable = mutates, has(C.MOTH_OP_LIST), has(C.MOTH_OP_GRAD)
  sig.family, sig.file = text_of(info.family), text_of(info.file)
  sig.doc, sig.examples = text_of(info.doc), text_of(info.examples)
  sig.dtypes, sig.outputs = tonumber(info.dtypes), read_outputs(text_of(info.outputs))
  return sig
end

-- ---- all ops ----

--- Returns true if there is an op with that name.
function registry.has(name) return C.moth_op_find(name) ~= nil end

--- Returns true if there is a public op with that name.
function registry.is_public(name)
  local op = C.moth_op_find(name)
  return op ~= nil and bit.band(C.moth_op_describe(op).flags, HIDDEN) == 0
end

--- The public function that runs a hidden op, from its record; nil if the record names none.
function registry.public_name(name)
  local op = C.moth_op_find(name)
  local known = op ~= nil and ffi.string(C.moth_op_describe(op).public_name) or ""
  return known ~= "" and known or nil
end

--- The names of all public ops, and of those that are also tensor methods.
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
