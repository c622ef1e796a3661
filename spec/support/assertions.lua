-- Assertions that specs share: assert.has_error_like(fn, pattern), assert.close(want, got, tol).

local assert = require "luassert"
local say = require "say"

local function has_error_like(_, arguments)
  local fn, pattern = arguments[1], arguments[2]
  local ok, message = pcall(fn)
  arguments[3] = ok and "no error" or tostring(message)
  return not ok and tostring(message):find(pattern) ~= nil
end

say:set("assertion.has_error_like.positive",
  "Expected %s to raise an error like\n%s\nbut got\n%s")
assert:register("assertion", "has_error_like", has_error_like,
  "assertion.has_error_like.positive", "assertion.has_error_like.positive")

--- Nested tables of numbers that agree within a tolerance.
local function close(_, arguments)
  local tolerance = arguments[3] or 1e-6
  arguments[3], arguments.n = tolerance, 3
  local function same(a, b)
    if type(a) == "table" and type(b) == "table" then
      if #a ~= #b then return false end
      for i = 1, #a do if not same(a[i], b[i]) then return false end end
      return true
    end
    return type(a) == "number" and type(b) == "number" and
      (a == b or (a ~= a and b ~= b) or math.abs(a - b) <= tolerance * math.max(1, math.abs(a)))
  end
  return same(arguments[1], arguments[2])
end

say:set("assertion.close.positive", "Expected\n%s\nbut got\n%s\n(tolerance %s)")
assert:register("assertion", "close", close, "assertion.close.positive", "assertion.close.positive")

--- Counts of live objects (a number, or a table of numbers) that have not grown. Not equality:
-- older garbage may be collected in between.
local function at_most(_, arguments)
  local before, now = arguments[1], arguments[2]
  if type(before) == "number" then return now <= before end
  for name, count in pairs(before) do
    if now[name] > count then return false end
  end
  return true
end

say:set("assertion.at_most.positive", "Expected no more than\n%s\nbut got\n%s")
assert:register("assertion", "at_most", at_most, "assertion.at_most.positive",
  "assertion.at_most.positive")
