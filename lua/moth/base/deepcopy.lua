--- deepcopy.lua -- moth.deepcopy and net:deepcopy(): a copy that shares no tensor with the
-- original, for target networks, averages of weights and layers copied from a template.
--
-- An object with two references is copied once, so tied weights stay tied. Functions, strings,
-- dtypes, classes and tables whose metatable is no class are shared with the original.

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local MAX_DEPTH = 200 -- the largest depth of nested tables

local parameter, Module

local copy

-- Returns a new leaf. As in PyTorch a Parameter's gradient is not copied; another tensor's gradient
-- is.
local function copied_tensor(x, memo, path)
  if x.requires_grad and not x.is_leaf then
    errors.raise(("deepcopy: %s%s was computed and has a history; copy x:detach()"):format(
      path ~= "" and path .. ", " or "", errors.describe(x)), "E_GRAPH")
  end
  if parameter.waiting[x] ~= nil then
    memo[x] = require("moth.nn.module.uninitialized").like(x)
    if memo[1] then parameter.keep(memo[x]) end
    return memo[x]
  end
  local kind = parameter.kind(x)
  local new = require("moth").no_grad(function() return (x:detach():clone()) end)
  if x.requires_grad then new.requires_grad = true end
  memo[x] = new
  if kind then parameter.mark(new, kind) end
  if kind ~= "parameter" and x.grad then new.grad = copied_tensor(x.grad, memo, path) end
  if memo[1] then parameter.keep(new) end -- memo[1]: true inside a module
  return new
end

local function step(path, key)
  if key == Module.store_key or key == "fields" then return path end
  if type(key) == "string" then return path == "" and key or path .. "." .. key end
  return path .. "[" .. tostring(key) .. "]"
end

local function copied_table(value, memo, path, depth)
  if depth > MAX_DEPTH then errors.raise("deepcopy: tables nest deeper than " .. MAX_DEPTH) end
  local new = {}
  memo[value] = new
  local outside = memo[1]
  if class.isinstance(value, Module) then memo[1] = true end
  local key, inner = next(value)
  while key ~= nil do
    new[copy(key, memo, path, depth + 1)] = copy(inner, memo, step(path, key), depth + 1)
    key, inner = next(value, key)
  end
  memo[1] = outside
  return setmetatable(new, getmetatable(value))
end

function copy(value, memo, path, depth)
  local kind = type(value)
  if kind ~= "table" and kind ~= "cdata" then return value end
  if memo[value] ~= nil then return memo[value] end
  if kind == "cdata" then
    return lib.istensor(value) and copied_tensor(value, memo, path) or value
  end
  if getmetatable(value) == nil or class.of(value) then
    return (copied_table(value, memo, path, depth))
  end
  return value
end

local function begin(value)
  parameter = parameter or require "moth.nn.module.parameter"
  Module = Module or require "moth.nn.module"
  return (copy(value, {false}, "", 1))
end

local of_table = define {
  name = "deepcopy",
  doc = "A copy that shares no tensor with the original: of a module with its parameters, "
    .. "buffers and hooks, of a tensor without history, of a table of them.",
  examples = "moth.nn.Linear(2, 3)\n{weight = moth.randn(2), step = 3}",
  outputs = "copy",
  args = {{"map", "value", "module, tensor, or plain table"}},
  run = begin,
}

local copying = {}

--- moth.deepcopy(value): copies a module with its parameters, buffers, hooks and plain fields, a
-- tensor, or a plain table of them.
-- @return the copy; E_GRAPH for a tensor that was computed and has a history
function copying.deepcopy(value, ...)
  if lib.istensor(value) and select("#", ...) == 0 then return (begin(value)) end
  return (of_table(value, ...))
end
bind.register(copying.deepcopy, bind.signature(of_table))

return copying
