--- wrong_values.lua -- wrong values for each kind of argument, with those that LuaJIT's FFI would
-- convert silently.

local ffi = require "ffi"
local moth = require "moth"
local lib = require "moth.binding.lib"

local mistakes = {}

local function released()
  local x = moth.ones(2)
  x:free()
  return x
end

local function forged(slot, gen)
  local h = lib.Handle()
  h._slot, h._gen = slot, gen
  return h
end

--- A handle with the slot of a live tensor and another generation.
function mistakes.older(x) return forged(x._slot, x._gen + 1) end

--- Names and constructors of values; each use creates a new value.
mistakes.values = {
  ["true"] = function() return true end,
  ["1.5"] = function() return 1.5 end,
  NaN = function() return 0 / 0 end,
  ["1e300"] = function() return 1e300 end,
  infinity = function() return math.huge end,
  string = function() return "3" end,
  ["a function"] = function() return print end,
  ["an object"] = function() return setmetatable({}, {}) end,
  ["a list of strings"] = function() return { "a", "b" } end,
  ["a list with 1.5"] = function() return { 1, 1.5 } end,
  ["a tensor"] = function() return moth.ones(2) end,
  ["a released tensor"] = released,
  ["a forged handle"] = function() return forged(4000000000, 7) end,
  ["the slot of no tensor"] = function() return forged(1, 0) end,
  ["a struct"] = function() return ffi.new("struct { int x; }") end,
  ["an array"] = function() return ffi.new("int[3]") end,
  ["a void pointer"] = function() return ffi.cast("void *", 64) end,
  ["a complex"] = function() return ffi.new("complex", 1, 2) end,
}

local function set(names)
  local t = {}
  for name in names:gmatch("[^,]+") do t[name:match("^%s*(.-)%s*$")] = true end
  return t
end

-- The values that each kind accepts, or checks by a rule other than the argument's kind.
local numbers = "1.5, NaN, 1e300, infinity"
local tensors = "a tensor, a released tensor, a forged handle, the slot of no tensor"
local fine = {
  tensor = set("a tensor"), mask = set("a tensor"),
  index = set("a tensor"), indices = set "", tensors = set "", generator = set "",
  scalar = set("true, " .. numbers), element = set("true, " .. numbers), out = set("a tensor"),
  ignored = set "", float = set(numbers),
  bool = set("true"), enum = set "", dtype = set "", device = set "",
  int = set "", int1 = set "", int2 = set "", int3 = set "", dim = set "", position = set "",
  ["int2?"] = set "", ["int3?"] = set "", ["int1-or-enum"] = set "", ["int2-or-enum"] = set "",
  ["int3-or-enum"] = set "",
  floats = set(numbers .. ", a list with 1.5"), ints = set "", shape = set "", dims = set "",
}

mistakes.number = set("true, a tensor, " .. numbers) -- of an op that takes numbers
mistakes.handles = set(tensors)

--- The names of the values that an argument of that kind must refuse, sorted.
-- @param kind     as the registry names it
-- @param numbers  true if the tensor may be a number
function mistakes.of(kind, takes_numbers)
  local bare = kind:match("^(.*)%?$") or kind
  local allowed = bare == "tensor" and takes_numbers and mistakes.number or fine[bare]
  if not allowed then error("no mistakes for kind " .. kind) end
  local list = {}
  for name in pairs(mistakes.values) do
    if not allowed[name] then list[#list + 1] = name end
  end
  table.sort(list)
  return list
end

return mistakes
