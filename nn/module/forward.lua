--- forward.lua -- calls of user-defined modules by argument names.
--
--     Coupling.forward_args = {"x", "inverse"}
--     function Coupling:forward(x, inverse) ... end
--     self.layer{x, inverse = true}
--
-- For a class without forward_args, the table is the first argument. If this is clearly a mistake,
-- the call raises.

local class = require "moth.base.class"
local errors = require "moth.error"

local forward = {}

-- Returns true if a table has positional elements, and names that are all parameters of the
-- function.
local function looks_named(fn, t)
  local parameters, named = {}, false
  for i = 2, debug.getinfo(fn, "u").nparams do parameters[debug.getlocal(fn, i)] = true end
  for key in pairs(t) do
    if type(key) == "string" then
      if not parameters[key] then return false end
      named = true
    end
  end
  return named and type(t[1]) ~= "nil"
end

local function undeclared(self, fn)
  local names = {}
  for i = 2, debug.getinfo(fn, "u").nparams do
    names[i - 1] = ("%q"):format(debug.getlocal(fn, i))
  end
  local name = class.typename(self)
  errors.raise(("%s takes its arguments by position; for names declare %s.forward_args = {%s}")
    :format(name, name, table.concat(names, ", ")), "E_TYPE")
end

--- Returns the arguments {n = count, ...} of a call with a single table; nil if the table is a
-- plain value.
function forward.arguments(self, t)
  local fn = class.written(self.forward)
  if type(fn) ~= "function" or errors.is_own(fn) then return nil end
  local names = self.forward_args
  if type(names) ~= "table" then
    if looks_named(fn, t) then undeclared(self, fn) end
    return nil
  end
  local at, named = {}, false
  for i, name in ipairs(names) do at[name] = i end
  for key in pairs(t) do
    if type(key) == "string" then
      if not at[key] then
        errors.raise(("'%s' has no argument '%s'%s"):format(class.typename(self), key,
          errors.nearest(key, names)))
      end
      named = true
    end
  end
  if not named then return nil end
  local list = {n = #names}
  for i = 1, #t do list[i] = t[i] end
  for key, value in pairs(t) do
    if at[key] then
      if type(list[at[key]]) ~= "nil" then
        errors.argument(class.typename(self), key, "given twice, by position and by name")
      end
      list[at[key]] = value
    end
  end
  return list
end

return forward
