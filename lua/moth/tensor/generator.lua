--- generator.lua -- moth.Generator: a separate stream of random numbers.
--
--   local g = moth.Generator{seed = 7}
--   moth.randn(2, 3, {generator = g})
--
-- Numbers come from a counter (Philox): a generator is an int64 tensor {seed, offset}, and each
-- draw advances the offset. Two generators with equal state draw equal numbers, for any number of
-- threads.

local ffi = require "ffi"
local autograd = require "moth.autograd"
local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local create = require "moth.tensor.create"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local C, ctx, Handle, ops, istensor = lib.C, lib.ctx, lib.Handle, bind.ops, lib.istensor

local I64 = C.MOTH_I64
local Generator = class("Generator")

local SEED = {"float", "seed", "integer from 0 to 2^53"}

local function checked_seed(fname, seed)
  if seed % 1 ~= 0 or seed < 0 or seed > 2 ^ 53 then
    errors.refuse(fname, "seed", "an integer from 0 to 2^53 is needed", seed)
  end
  return seed
end

local function checked_state(fname, state)
  if istensor(state) then
    local info = lib.inspect(state)
    if info.dtype == I64 and info.ndim == 1 and info.shape[0] == 2 then return state end
  end
  errors.refuse(fname, "state", "i64 (2) is needed", state)
end

Generator.signature = define.signature("Generator", {
  {"float", "seed", "integer from 0 to 2^53", default = 0},
  {"device?", "device", "ignored: a generator works for every device"}})

--- moth.Generator{seed = n}: a new source of random numbers; the default seed is 0.
-- @param seed   integer from 0 to 2^53
-- @param device ignored, accepted as in PyTorch: a generator works for every device
function Generator:init(seed)
  checked_seed("Generator", seed)
  local values = ffi.new("int64_t[2]", seed, 0)
  self.state = create.convert("Generator", {values[0], values[1]}, I64)
  C.moth_keep_always(ctx, self.state)
end

local parse_seed = define.signature("manual_seed", {SEED})

--- Starts the stream again from a seed. @return the generator
function Generator:manual_seed(...)
  local seed = checked_seed("manual_seed", parse_seed(...))
  return self:set_state(create.convert("manual_seed", {seed, 0}, I64))
end

--- Starts the stream again from a seed taken from the clock. @return that seed
function Generator:seed()
  local seed = (os.time() * 1000003 + math.floor(os.clock() * 1e6) * 7919) % 2 ^ 48
  self:manual_seed(seed)
  return seed
end

--- The seed that the stream began with.
function Generator:initial_seed() return ops.select(self.state, 1, 1):item() end

--- The state as an i64 tensor {seed, offset}, a copy.
function Generator:get_state() return ops.clone(self.state) end

--- Restores a state from get_state. @return the generator
function Generator:set_state(state)
  autograd.no_grad(ops.copy_, self.state, checked_state("set_state", state))
  return self
end

function Generator:__tostring()
  return ("Generator{seed = %d}"):format(tonumber(self:initial_seed()))
end

local generators = {Generator = Generator}

local default

--- The default generator: moth.default_generator.
function generators.default()
  local h = Handle()
  local status = C.moth_generator(ctx, h) -- reseeds after a fork
  if status < 0 then errors.status(status, "Generator") end
  if not default then
    local state = lib.adopt(h, status)
    C.moth_keep_always(ctx, state)
    default = setmetatable({state = state}, getmetatable(Generator()))
  end
  return default
end

--- moth.manual_seed(seed): starts the default stream again. @return the default generator
generators.manual_seed = define {
  name = "manual_seed",
  doc = "Seeds the default random number generator.",
  examples = "7",
  outputs = "generator",
  args = {SEED},
  run = function(seed)
    checked_seed("manual_seed", seed)
    local status = C.moth_seed(ctx, seed)
    if status < 0 then errors.status(status, "manual_seed") end
    return generators.default()
  end,
}

--- moth.seed(): starts the default stream again from the clock. @return the seed
function generators.seed() return generators.default():seed() end

--- The seed of the default generator.
function generators.initial_seed() return generators.default():initial_seed() end

--- The state of the default generator, for a checkpoint: an int64 tensor {seed, offset}.
function generators.get_rng_state() return generators.default():get_state() end

--- Sets the default generator to a state from get_rng_state.
function generators.set_rng_state(state)
  generators.default():set_state(checked_state("set_rng_state", state))
end

return generators
