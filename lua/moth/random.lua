--- random.lua -- moth.random: the default random generator, with the names of torch.random.

local define = require "moth.binding.define"
local generator = require "moth.tensor.generator"
local lazy = require "moth.base.lazy"

local random = {}

local function restore(state, ok, ...)
  generator.set_rng_state(state)
  if not ok then error((...), 0) end
  return ...
end

local fork_rng = define {
  name = "fork_rng",
  doc = "Calls f(...) and restores the state of the random generator afterwards too "
    .. "after an error. Returns the results of f. (torch.random.fork_rng is a context manager.)",
  examples = "function() return moth.rand(2) end\nfunction() return moth.rand(2) end, {enabled = "
    .. "true}",
  args = {
    {"function", "f", "the function to call"},
    {"bool", "enabled", "restore the state?", default = true},
  },
  outputs = "...",
  run = function(f, enabled)
    if not enabled then return f() end
    return restore(generator.get_rng_state(), pcall(f))
  end,
}
random.fork_rng = fork_rng

local rows = {}
lazy.from(rows, "moth.tensor.generator", "manual_seed seed initial_seed get_rng_state "
  .. "set_rng_state")

return (lazy.namespace("moth.random", random, rows))
