--- seeds.lua -- the random numbers of a DataLoader's batches. Each batch has its own seed, from the
-- seed of the pass and the number of the batch: datasets draw the same numbers for any number of
-- workers, also without workers, and after a resume.

local ffi = require "ffi"
local lib = require "moth.binding.lib"
local ops = require("moth.binding.bind").ops

local seeds = {}

--- Mixes two numbers to a seed below 2^53, by the mixing steps of splitmix64 (Steele et al., 2014).
function seeds.mixed(a, b)
  local x = ffi.cast("uint64_t", a) + 0x9e3779b97f4a7c15ULL * (ffi.cast("uint64_t", b) + 1)
  x = bit.bxor(x, bit.rshift(x, 30)) * 0xbf58476d1ce4e5b9ULL
  x = bit.bxor(x, bit.rshift(x, 27)) * 0x94d049bb133111ebULL
  return tonumber(bit.rshift(bit.bxor(x, bit.rshift(x, 31)), 11))
end

local state -- of the default generator, which exists as long as the Lua state

local function restored(before, fine, ...)
  ops.copy_(state, before)
  before:free()
  if not fine then error((...), 0) end
  return ...
end

--- Calls f(...) with the default generator at a seed; restores the generator's state, also after an
-- error. Returns the results of f.
function seeds.within(seed, f, ...)
  state = state or require("moth").default_generator.state
  local before = ops.clone(state)
  lib.C.moth_seed(lib.ctx, seed)
  return restored(before, pcall(f, ...))
end

return seeds
