--- look.lua -- the check at the start of tensor methods: the type of x, and its metadata.

local ffi = require "ffi"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local C, ctx, istensor = lib.C, lib.ctx, lib.istensor
local SHAPELESS = C.MOTH_IS_SHAPELESS -- the highest flag

local info, seen = ffi.new "moth_tensor_info", 0

--- Raises unless x is a tensor, for methods written in Lua.
local function own(x, fname)
  if not istensor(x) then errors.no_self(fname, "x") end
end

-- The fields and methods that an uninitialized tensor supports.
local KNOWN = {}
for name in ("dtype device is_cuda itemsize _version is_sparse layout element_size is_set_to "
    .. "is_floating_point is_signed requires_grad is_leaf retains_grad grad_fn"):gmatch "%S+" do
  KNOWN[name] = true
end

local function refuse_shapeless(x, fname)
  if KNOWN[fname] then return end
  errors.status(C.moth_retain_grad(ctx, x), fname, nil, x) -- raises, like any other call
end

--- The metadata of x, in a struct that the next call overwrites.
local function inspect(x, fname)
  own(x, fname)
  seen = seen + 1
  info.output = 0 -- see lib.inspect
  local status = C.moth_inspect(ctx, x, info)
  if status < 0 then errors.status(status, fname, nil, x) end
  if info.flags >= SHAPELESS then refuse_shapeless(x, fname) end
  return info
end

--- read(info), for more than one field. read may allocate, so a finalizer may inspect another
-- tensor in between; then it is called again.
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

return {own = own, inspect = inspect, several = several, sizes_of = sizes_of}
