--- backends.lua -- moth.backends: settings of external libraries, with PyTorch's names.
--
--     moth.backends.cudnn.benchmark = true

local ffi = require "ffi"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local settings = require "moth.base.settings"

local C, ctx = lib.C, lib.ctx

-- Replacements for names that Moth does not have.
local function hint(path, name, names)
  local text = type(name) == "string" and require("moth.error.instead").find(path, name)
  return text and "; " .. text or errors.nearest(name, names)
end

-- A table that has the names of `known` only. It calls get(entry) and set(entry, name, value).
local function guarded(path, known, get, set)
  local names = {}
  for name in pairs(known) do names[#names + 1] = name end
  table.sort(names)
  local function found(name)
    return known[name]
      or errors.raise(("%s has no '%s'%s"):format(path, tostring(name), hint(path, name, names)))
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

-- A table of tables or functions.
local function fixed(path, known)
  return guarded(path, known, function(value) return value end, function(value, name)
    errors.raise(("%s.%s cannot be assigned%s"):format(path, name,
      type(value) == "table" and "; assign to its fields" or ""))
  end)
end

-- A table of functions, and of settings with a getter and a setter.
local function switches(path, known)
  return guarded(path, known, function(value)
    if type(value) == "function" then return value end
    return (value.get())
  end, function(switch, name, value)
    if type(switch) == "function" then
      errors.raise(("%s.%s is a function and cannot be assigned"):format(path, name))
    end
    if type(value) ~= "boolean" then
      errors.refuse(path:match "^moth%.(.*)", name, "a boolean is needed", value, "E_TYPE")
    end
    switch.set(value)
  end)
end

-- ---- cuDNN ----

local function cudnn_switch(what)
  return {
    get = function() return C.moth_cudnn(ctx, what, -1) == 1 end,
    set = function(value) C.moth_cudnn(ctx, what, value and 1 or 0) end,
  }
end

-- The text on cuDNN in the plugin, with its version and file; nil if it was not found.
local function found_cudnn()
  local buffer = ffi.new "char[4096]"
  if C.moth_device_report(ctx, buffer, 4096) < 0 then return nil end
  local text = ffi.string(buffer):match "cuDNN\t([^\n]*)"
  return text and not text:find("^not found") and text or nil
end

local cudnn = switches("moth.backends.cudnn", {
  enabled = cudnn_switch(C.MOTH_CUDNN_ENABLED),
  benchmark = cudnn_switch(C.MOTH_CUDNN_BENCHMARK),
  allow_tf32 = cudnn_switch(C.MOTH_CUDNN_TF32),
  deterministic = {get = function() return true end, set = function() end},
  is_available = function() return found_cudnn() ~= nil end,
  version = function() return tonumber((found_cudnn() or ""):match "^%d+") end,
})

-- ---- matrix products on GPUs ----

local matmul = switches("moth.backends.cuda.matmul", {
  allow_tf32 = {
    get = function() return settings.get_float32_matmul_precision() ~= "highest" end,
    set = function(value)
      if value == (settings.get_float32_matmul_precision() ~= "highest") then return end
      settings.set_float32_matmul_precision(value and "high" or "highest")
    end,
  },
})

-- ---- attention on GPUs ----

local sdp = cudnn_switch(C.MOTH_CUDNN_SDP)

--- Sets whether attention of half types on a GPU may use cuDNN.
local function enable_cudnn_sdp(enabled)
  if type(enabled) ~= "boolean" then
    errors.refuse("backends.cuda.enable_cudnn_sdp", "enabled", "a boolean is needed", enabled,
      "E_TYPE")
  end
  sdp.set(enabled)
end

return fixed("moth.backends", {
  cudnn = cudnn,
  cuda = fixed("moth.backends.cuda", {
    matmul = matmul, enable_cudnn_sdp = enable_cudnn_sdp, cudnn_sdp_enabled = sdp.get,
  }),
  mps = fixed("moth.backends.mps", { -- portable scripts call it
    is_available = function() return false end, is_built = function() return false end,
  }),
})
