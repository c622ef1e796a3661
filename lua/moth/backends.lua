--- backends.lua -- moth.backends: how libraries of others are used, with PyTorch's names.
--
--     moth.backends.cudnn.benchmark = true

local errors = require "moth.error"
local lib = require "moth.lib"

local C, ctx = lib.C, lib.ctx

-- By name: what tells the value, and what sets it.
local switches = {
  benchmark = {
    get = function() return C.moth_cudnn_benchmark(ctx, -1) == 1 end,
    set = function(value) C.moth_cudnn_benchmark(ctx, value and 1 or 0) end,
  },
  deterministic = { get = function() return true end, set = function() end },
}

-- A table that has the names of `known` and no others.
local function guarded(path, known, get, set)
  local names = {}
  for name in pairs(known) do names[#names + 1] = name end
  table.sort(names)
  local function found(name)
    return known[name]
      or errors.raise(("%s has no '%s'%s"):format(path, tostring(name),
        errors.nearest(name, names)))
  end
  return setmetatable({}, {
    __names = function() return names end,
    __tostring = function() return path end,
    __index = function(_, name)
      if type(name) ~= "string" then return nil end
      return (get(found(name)))
    end,
    __newindex = function(_, name, value) set(found(name), name, value) end,
  })
end

local cudnn = guarded("moth.backends.cudnn", switches,
  function(switch) return switch.get() end,
  function(switch, name, value)
    if type(value) ~= "boolean" then
      errors.argument("backends.cudnn", name, "a boolean is needed, got " .. errors.describe(value),
        "E_TYPE")
    end
    switch.set(value)
  end)

return guarded("moth.backends", { cudnn = cudnn },
  function(backend) return backend end,
  function(_, name)
    errors.raise(("moth.backends.%s is not assigned, but what it holds"):format(name))
  end)
