--- operators.lua -- Lua's operators for tensors.
--
-- Arithmetic operators call the ops. == compares identity, and < and <= raise an error, because Lua
-- would convert a mask to true or false. x:eq(y), x:lt(y) and the like return masks.

local ffi = require "ffi"
local bind = require "moth.binding.bind"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local ops, istensor = bind.ops, lib.istensor

local operators = {}

-- ---- arithmetic ----

-- The error of an operator for a wrong operand. A table would be read as a list of arguments.
local function refuse(name, a, b)
  local which, other = "other", b
  if type(a) == "table" then which, other = "input", a end
  errors.refuse(name, which, "a tensor or a number is needed", other, "E_TYPE")
end

-- Each operator is written out: functions from a factory would share one prototype, and LuaJIT's
-- traces of + and * would disturb each other.

function operators.__add(a, b)
  if type(a) == "table" or type(b) == "table" then refuse("add", a, b) end
  return ops.add(a, b)
end

function operators.__sub(a, b)
  if type(a) == "table" or type(b) == "table" then refuse("sub", a, b) end
  return ops.sub(a, b)
end

function operators.__mul(a, b)
  if type(a) == "table" or type(b) == "table" then refuse("mul", a, b) end
  return ops.mul(a, b)
end

function operators.__div(a, b)
  if type(a) == "table" or type(b) == "table" then refuse("div", a, b) end
  return ops.div(a, b)
end

function operators.__pow(a, b)
  if type(a) == "table" or type(b) == "table" then refuse("pow", a, b) end
  return ops.pow(a, b)
end

function operators.__mod(a, b)
  if type(a) == "table" or type(b) == "table" then refuse("remainder", a, b) end
  return ops.remainder(a, b)
end

function operators.__unm(a) return ops.neg(a) end

-- ---- comparison ----

local function scalar_like(v)
  return type(v) == "number" or type(v) == "boolean" or ffi.istype("int64_t", v)
    or ffi.istype("uint64_t", v)
end

-- Identity; elementwise comparison is x:eq(y).
local function equal(a, b)
  if istensor(a) and istensor(b) then return a._slot == b._slot and a._gen == b._gen end
  local other = istensor(a) and b or a
  if scalar_like(other) then
    errors.raise("== between a tensor and " .. errors.describe(other) .. " is no comparison of "
      .. "values; use x:eq(" .. tostring(other) .. ") or x:item() == " .. tostring(other),
      "E_TYPE")
  end
  return false
end

-- Lua evaluates a > b as b < a.
local function ordered(op, a, b)
  if istensor(a) and istensor(b) then
    errors.raise("tensors have no < or >; use " .. (op == "<" and "a:lt(b) or a:gt(b)"
      or "a:le(b) or a:ge(b)") .. " for a mask", "E_TYPE")
  end
  local name = op == "<" and "lt" or "le"
  local other = istensor(a) and b or a
  local text = type(other) == "number" and tostring(other) or "y"
  if not istensor(a) then name = op == "<" and "gt" or "ge" end
  errors.raise("tensors have no < or >; use x:" .. name .. "(" .. text .. ") for a mask"
    .. " or x:item() for the number", "E_TYPE")
end

local function no_walk(name)
  errors.raise(name .. " does not walk over a tensor; write `for i = 1, #x do local row = x[i]` "
    .. "or ipairs(x:unbind())", "E_TYPE")
end

operators.__eq = equal
function operators.__lt(a, b) ordered("<", a, b) end
function operators.__le(a, b) ordered("<=", a, b) end

-- ---- operators that tensors do not have ----

function operators.__concat(a, b) return tostring(a) .. tostring(b) end
function operators.__call() errors.raise("a tensor cannot be called; x[i] is a row", "E_TYPE") end
function operators.__ipairs() no_walk("ipairs") end
function operators.__pairs() no_walk("pairs") end

return operators
