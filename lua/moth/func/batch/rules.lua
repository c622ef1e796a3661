--- rules.lua -- batch rules: how one call of an op replaces a call for each sample. A rule changes
-- the arguments of a call whose tensors have the batch as an extra first dimension.
--
-- A rule is a function(replay, entry, meta) that returns the results, or nil if it does not apply.
-- Most rules follow from the kinds of the arguments in the registry: an elementwise op aligns its
-- tensors; an op with dimensions shifts them by one. named.lua has the rules of other ops. For an
-- op without a rule, replay.lua calls the op for each sample.

local bit = require "bit"
local ffi = require "ffi"
local bind = require "moth.binding.bind"
local lib = require "moth.binding.lib"

local C, ops = lib.C, bind.ops

local rules = {}

local ELEMENTWISE = C.MOTH_OP_STRIDED
local NO_INT = -0x8000000000000000LL

-- ---- reading and changing calls ----

--- The tensor argument with that name, or nil.
function rules.tensor(entry, meta, name)
  local arg = meta.by[name]
  local number = arg and tonumber(entry.slots[arg.slot].integer) or 0
  return number > 0 and entry.tensors[number] or nil
end

--- The tensors of a list argument; false for an absent one.
function rules.tensors(entry, meta, name)
  local at, list = meta.by[name].slot, {}
  local first, n = tonumber(entry.slots[at].integer), tonumber(entry.slots[at + 1].integer)
  for k = 1, n do list[k] = entry.tensors[first + k - 1] or false end
  return list
end

--- An integer argument; nil if absent.
function rules.int(entry, meta, name)
  local value = entry.slots[meta.by[name].slot].integer
  if value == NO_INT then return nil end
  return tonumber(value)
end

--- A list of integers; nil if absent.
function rules.ints(entry, meta, name)
  local at = meta.by[name].slot
  local from = ffi.cast("const moth_slot *", entry.slots[at].pointer)
  if from == nil then return nil end
  local list = {}
  for k = 1, tonumber(entry.slots[at + 1].integer) do
    list[k] = tonumber(from[k - 1].integer)
  end
  return list
end

--- The number of the choice `name` of an enum argument, or nil.
function rules.choice(meta, arg, name)
  local i = 0
  for text in meta.by[arg].fallback:gsub("^=", ""):gmatch "[^|]+" do
    if text == name then return i end
    i = i + 1
  end
end

--- Runs the call with of(x) in place of each tensor, and edits: argument -> number or list.
function rules.call(replay, entry, meta, of, edits)
  local slots, anchors = replay:slots_of(entry, of)
  for name, value in pairs(edits or {}) do
    local at = meta.by[name].slot
    if type(value) == "table" then
      local list = lib.slots(math.max(#value, 1))
      for k, v in ipairs(value) do list[k - 1].integer = v end
      slots[at].pointer, slots[at + 1].integer = list, #value
      anchors[#anchors + 1] = list
    else
      slots[at].integer = value
    end
  end
  local got = replay:invoke(meta, slots)
  return got, anchors
end

local function first(...) return (...) end

local function call(...) return (first(rules.call(...))) end

--- Returns true if a tensor has a half type: partial sums and products would round more than once.
function rules.half(replay, x)
  local dtype = replay:facts(x).dtype
  return dtype == C.MOTH_F16 or dtype == C.MOTH_BF16
end

-- ---- aligned tensors ----

--- The tensors of a call, without numbers, and the largest and smallest of their ranks.
function rules.ranks(replay, entry)
  local list, most, least = {}, 0, math.huge
  for k = 1, entry.nin do
    local x = entry.tensors[k]
    if x and not replay.numbers[x._slot] then
      local ndim = replay:facts(x).ndim
      list[#list + 1] = x
      most, least = math.max(most, ndim), math.min(least, ndim)
    end
  end
  return list, most, least
end

--- The value of x with the batch and `rank` dimensions; new dimensions come after the batch.
-- Without a batch: unchanged.
function rules.align(replay, x, rank)
  local y = replay:batched(x)
  if not y then return replay:value(x) end
  local facts = replay:facts(x)
  if facts.ndim == rank then return y end
  local shape = {replay.size}
  for _ = 1, rank - facts.ndim do shape[#shape + 1] = 1 end
  for d = 1, facts.ndim do shape[#shape + 1] = facts.shape[d] end
  return (ops.reshape(y, shape))
end

--- The shape of a result without the batch.
function rules.shape(replay, y)
  return {replay.size, unpack(replay:facts(y).shape)}
end

-- Returns true if the batch would change the result's dtype: a 0-d tensor does not decide the
-- dtype, but with a batch dimension it does. If all tensors have one dtype, nothing changes.
local function decides_dtype(replay, list, most, least)
  if least > 0 or most == 0 then return false end
  local dtype
  for _, x in ipairs(list) do
    local here = replay:facts(x).dtype
    if dtype and here ~= dtype then return true end
    dtype = here
  end
  return false
end

-- ---- elementwise ops ----

local function elementwise(replay, entry, meta)
  local list, most, least = rules.ranks(replay, entry)
  if decides_dtype(replay, list, most, least) then return nil end
  local target = entry.writes and entry.results[1]
  if target and replay:facts(target).ndim < most then return nil end
  local drawn = meta.random and replay.draws or meta.family == "pointloss" -- want equal shapes
  return call(replay, entry, meta, function(x)
    if replay.numbers[x._slot] then return x end
    if drawn then return replay:whole(x) end
    return rules.align(replay, x, most)
  end)
end

-- ---- ops along dimensions ----

local function shifted(d, ndim) return (d < 0 and d + ndim or d) + 1 end

--- Shifts dimensions of a tensor with `ndim` dimensions, counted from 0, by one.
function rules.shift(list, ndim)
  local out = {}
  for k, d in ipairs(list) do out[k] = shifted(d, ndim) end
  return out
end

-- Restores the result's shape after a reduction of a 0-d tensor or of all dimensions.
local function reshaped(replay, entry, got)
  for k, y in ipairs(entry.results) do
    if got and got[k] then got[k] = ops.reshape(got[k], rules.shape(replay, y)) end
  end
  return got
end

local function along(replay, entry, meta)
  local _, most, least = rules.ranks(replay, entry)
  if most ~= least then return nil end
  local edits, flat, ndim = {}, false, most
  for _, arg in ipairs(meta.args) do
    if arg.kind == "dim" then
      edits[arg.name] = shifted(rules.int(entry, meta, arg.name), math.max(ndim, 1))
    elseif arg.kind == "dim?" then
      local d = rules.int(entry, meta, arg.name)
      flat = flat or not d
      edits[arg.name] = d and shifted(d, math.max(ndim, 1)) or 1
    elseif arg.kind == "dims" then
      local dims = rules.ints(entry, meta, arg.name)
      if not dims then
        dims = {}
        for d = 1, math.max(ndim, 1) do dims[d] = d - 1 end
      elseif #dims == 0 then
        return nil
      end
      edits[arg.name] = rules.shift(dims, math.max(ndim, 1))
    end
  end
  local rank = (flat or ndim == 0) and 1 or ndim
  local got = call(replay, entry, meta, function(x)
    local y = replay:whole(x)
    if rank == ndim then return y end
    return (ops.reshape(y, {replay.size, replay:facts(x).numel}))
  end, edits)
  if rank ~= ndim then return reshaped(replay, entry, got) end
  return got
end

-- The argument kinds for which `along` applies, if no other argument counts dimensions or sizes.
local ALONG = {dim = true, ["dim?"] = true, dims = true}
local NEUTRAL = {tensor = true, mask = true, bool = true, float = true, ["float?"] = true,
                 dtype = true, enum = true, int = true, ["int?"] = true, position = true,
                 scalar = true, element = true, ignored = true, device = true, generator = true,
                 ["tensor?"] = true}

-- Returns true if a rule knows the kinds of all arguments, and at least one is in `wanted`.
local function made_of(meta, wanted)
  local found = wanted == nil
  for _, arg in ipairs(meta.args) do
    if wanted and wanted[arg.kind] then found = true
    elseif not NEUTRAL[arg.kind] then return false end
  end
  return found
end

-- Ops for which shifting `dim` is not enough: `dim` counts dimensions of the result, or determines
-- more than where the op computes.
local OTHER_DIMS = {flatten = true, unsqueeze = true, squeeze = true, diag_embed = true,
                    repeat_interleave = true, unique_all = true, permute = true, roll = true,
                    row_pick = true, row_place = true, spread = true, fft_c2r = true,
                    fft_r2c = true, fft_c2c = true}

-- ---- rule lookup ----

--- Returns true if a call writes a tensor that is neither its result nor `self`: running
-- statistics.
function rules.keeps_state(entry, meta)
  return meta.by.running_mean and rules.tensor(entry, meta, "running_mean") ~= nil
    and meta.by.training and entry.slots[meta.by.training.slot].integer ~= 0
    or meta.name == "instance_norm" and rules.tensor(entry, meta, "running_mean") ~= nil
    or meta.name == "embedding" and entry.slots[meta.by.max_norm.slot].number
      == entry.slots[meta.by.max_norm.slot].number
end

--- Returns true if a random op uses only the shape of its tensor.
function rules.like(meta) return meta.name:find "_like$" ~= nil end

--- Returns true if a call uses a generator that the user passed.
function rules.has_generator(entry, meta)
  for _, arg in ipairs(meta.args) do
    if arg.kind == "generator" and entry.slots[arg.slot].integer ~= 0 then return true end
  end
  return false
end

--- The rule of an op, or nil.
function rules.find(meta)
  local named = require "moth.func.batch.named"
  local passes = require "moth.func.batch.passes"
  if named[meta.name] or passes[meta.name] then return named[meta.name] or passes[meta.name] end
  local base = meta.name:gsub("_$", "")
  if base ~= meta.name and (named[base] or passes[base]) then return nil end
  if bit.band(meta.flags, ELEMENTWISE) ~= 0 or named.elementwise[base] then
    return made_of(meta) and elementwise or nil
  end
  if meta.mutates then return named.elementwise[base] and made_of(meta) and elementwise or nil end
  if made_of(meta, ALONG) and not OTHER_DIMS[meta.name] then return along end
end

rules.elementwise, rules.along, rules.run = elementwise, along, call

return rules
