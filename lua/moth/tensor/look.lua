--- look.lua -- what the methods of tensors ask first: is that a tensor, and what is known of it?

local ffi = require "ffi"
local errors = require "moth.error"
local lib = require "moth.lib"

local C, ctx, istensor = lib.C, lib.ctx, lib.istensor

local info, seen = ffi.new "moth_tensor_info", 0

--- For methods written in Lua: x stood before a ':'.
local function own(x, fname)
  if not istensor(x) then errors.no_self(fname, "x") end
end

--- The facts about x, in a struct that the next call overwrites.
local function inspect(x, fname)
  own(x, fname)
  seen = seen + 1
  info.output = 0 -- lib.inspect says why
  if C.moth_inspect(ctx, x, info) < 0 then errors.status(C.MOTH_E_STATE, fname, nil, x) end
  return info
end

--- What read(info) makes of several facts. Since it may allocate, a finalizer may ask for the
-- facts of another tensor meanwhile; then it is read again.
local function several(x, fname, read)
  local result, mine
  repeat
    local t = inspect(x, fname)
    mine = seen
    result = read(t)
  until seen == mine
  return result
end

--- The sizes as a new list.
local function sizes_of(x, fname) return several(x, fname, lib.sizes) end

return { own = own, inspect = inspect, several = several, sizes_of = sizes_of }
