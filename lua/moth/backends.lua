--- backends.lua -- moth.backends: how libraries of others are used, with PyTorch's names.
--
--     moth.backends.cudnn.benchmark = true

local errors = require "moth.error"
local lib = require "moth.lib"

local C, ctx = lib.C, lib.ctx

local backends = {}

-- By name: what tells the value, and what sets it.
local switches = {
  benchmark = {
    get = function() return C.moth_cudnn_benchmark(ctx, -1) == 1 end,
    set = function(value) C.moth_cudnn_benchmark(ctx, value and 1 or 0) end,
  },
}

local function switch(name)
  return switches[name]
    or errors.argument("backends.cudnn", tostring(name), "there is only 'benchmark'")
end

--- How cuDNN, NVIDIA's library for convolutions, is used. `benchmark`: the first time that a
-- convolution of some shape is asked for, several of cuDNN's plans for it are run and the fastest
-- is kept, instead of the one that its heuristics name first. Which is fastest may differ from run
-- to run, and with it the last bits of results, so use_deterministic_algorithms turns it off.
backends.cudnn = setmetatable({}, {
  __index = function(_, name) return switch(name).get() end,
  __newindex = function(_, name, value)
    local found = switch(name)
    if type(value) ~= "boolean" then
      errors.argument("backends.cudnn", name, "a boolean is needed, got " .. errors.describe(value),
        "E_TYPE")
    end
    found.set(value)
  end,
})

return backends
