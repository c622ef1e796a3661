--- token.lua -- tokens, by which one Lua state gives a tensor to another. A state that only opens a
-- token and calls a network loads little else.

local ffi = require "ffi"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local C, ctx = lib.C, lib.ctx

local tokens = {}

local number = ffi.new("uint64_t[1]")

--- A string by which another Lua state, also on another thread, opens this tensor. It is valid for
-- one call of moth.open_token. The opened tensor shares the memory and has no history.
function tokens.token(x)
  if not lib.istensor(x) then
    errors.refuse("token", "x", "a tensor is needed", x, "E_TYPE")
  end
  lib.check(C.moth_token(ctx, x, number), "token", x)
  return (tostring(number[0]):gsub("ULL$", ""))
end

--- The tensor that a token names.
function tokens.open_token(token)
  local digits = type(token) == "string" and token:match("^%d+$")
  if not digits then
    errors.refuse("open_token", "token", "a token is needed", token, "E_TYPE")
  end
  number[0] = 0
  for digit in digits:gmatch("%d") do number[0] = number[0] * 10 + tonumber(digit) end
  local h = lib.Handle()
  local status = C.moth_token_open(ctx, number[0], h)
  return lib.adopt(h, lib.check(status, "open_token"))
end

return tokens
