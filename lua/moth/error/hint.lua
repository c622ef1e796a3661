--- hint.lua -- adds a suggestion to Lua's own error messages, for scripts and the prompt.
--
-- An unknown field of a module is nil, as in any Lua table: `if self.bias then` must not raise. So
-- net:zero_gard() ends in Lua's "attempt to call method 'zero_gard' (a nil value)". If such an
-- error ends a script, the launcher's handler calls this file to suggest the right name, or the
-- Lua syntax for Python's.
--
-- A pcall gets Lua's own message. Otherwise each read of an absent field would have to inspect the
-- caller's bytecode for a call, and layers without a bias read an absent field in every call.

local class = require "moth.base.class"
local errors = require "moth.error"

-- The first user's function on the stack: its level for the caller, and the function.
local function failed()
  local level = 2
  while true do
    local info = debug.getinfo(level, "f")
    if not info then return nil end
    if not errors.is_own(info.func) then return level - 1, info.func end
    level = level + 1
  end
end

-- Calls visit(value, name) for the names that the function at a level can use.
local function each_value(level, fn, visit)
  for i = 1, 250 do
    local name, value = debug.getlocal(level + 1, i)
    if not name then break end
    visit(value, name)
  end
  for i = 1, 60 do
    local name, value = debug.getupvalue(fn, i)
    if not name then break end
    visit(value, name)
  end
  for name, value in pairs(_G) do visit(value, name) end
end

local WRITE = {
  ["attempt to call a table value$"] = "iterate over a list by `for i, x in ipairs(list) do`, over "
    .. "a dataset by `for x, y in data.DataLoader(dataset) do`",
  ["'ipairs' %(table expected, got function%)$"] =
    "an iterator needs no ipairs: `for name, x in net:named_parameters() do`",
  ["attempt to index local 'self' %(a %a+ value%)$"] =
    "a method that was called by '.' does not know its object; call it with ':': x:name()",
  ["global 'nn' %(a nil value%)$"] = "write first: local nn = moth.nn",
  ["global 'F' %(a nil value%)$"] = "write first: local F = moth.nn.functional",
  ["global 'optim' %(a nil value%)$"] = "write first: local optim = moth.optim",
  ["global 'data' %(a nil value%)$"] = "write first: local data = moth.data",
  ["%(number expected, got cdata%)$"] = "the number in a tensor is x:item()",
}

-- The text for a called object that is no module, by its name in the function.
local function uncalled(message)
  local wanted = message:match "attempt to call %w+ '([%w_]+)' %(a table value%)$"
  local level, fn = failed()
  local found
  if not wanted or not level then return nil end
  each_value(level, fn, function(value, name)
    if name == wanted and type(value) == "table" then found = found or class.typename(value) end
  end)
  return found and ("%s (%s is no module: nn.class(\"%s\", nn.Module) has forward called)"):format(
    message, found, found)
end

-- The nearest name among the fields and methods of the modules that the function can use.
local function field_of_module(field)
  local level, fn = failed()
  local names = {}
  if not level then return "" end
  each_value(level, fn, function(value)
    local module = class.typename(value) and type(value.named_children) == "function"
    if not module then return end
    for name in value:named_children() do names[#names + 1] = name end
    for name in value:named_parameters(nil, false) do names[#names + 1] = name end
    for _, name in ipairs(class.methods(value)) do names[#names + 1] = name end
  end)
  return errors.nearest(field, names)
end

--- A message with a hint at its end, or unchanged.
-- @param message  an error's text; the stack must still be that of the error
return function(message)
  for pattern, text in pairs(WRITE) do
    if message:find(pattern) then return ("%s (%s)"):format(message, text) end
  end
  local name = message:match "attempt to call method '([%w_]+)' %(a nil value%)$"
  local field = message:match "attempt to %a+ field '([%w_]+)' %(a nil value%)$"
  if field then return message .. field_of_module(field) end
  if not name then return uncalled(message) or message end
  local level, fn = failed()
  if not level then return message end
  local names = {}
  each_value(level, fn, function(value)
    if type(value) ~= "table" or not class.typename(value) then return end
    for _, method in ipairs(class.methods(value)) do
      if method == name then return end
      names[#names + 1] = method
    end
  end)
  -- The frames with the ctx of a Function are no longer on the stack.
  if rawget(require "moth.autograd", "Function") then
    for _, method in ipairs(class.methods(require("moth.autograd.function").FunctionCtx)) do
      names[#names + 1] = method
    end
  end
  return message .. errors.nearest(name, names)
end
