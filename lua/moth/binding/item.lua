--- item.lua -- a 0-d tensor as a number argument.
--
-- Only arguments that PyTorch documents as a number or a tensor accept one. For other arguments a
-- tensor is probably a second result passed on by mistake, as the positions in x:softmax(y:max()).

local calls = require "moth.binding.calls"
local lib = require "moth.binding.lib"

-- name of the op -> names of its arguments. Functions in Lua have `single = true` in their rows.
local TAKE = {
  narrow = "start", linspace = "start stop", full = "fill_value", full_like = "fill_value",
  new_full = "fill_value",
}

local function takes(sig, arg)
  local names = rawget(sig, "op_name") and TAKE[sig.op_name]
  return arg.single or names and (" " .. names .. " "):find(" " .. arg.name .. " ", 1, true)
end

local INTEGERS = {int = true, dim = true, position = true}

--- The number in v, the value of argument i; raises unless it is a 0-d tensor without gradient.
return function(sig, i, v)
  local arg = sig.args[i]
  if not lib.istensor(v) or not takes(sig, arg) or lib.C.moth_alive(lib.ctx, v) == 0
    or v:dim() ~= 0 or v.requires_grad
    or INTEGERS[arg.row.name] and v:is_floating_point() then
    calls.bad(sig, i, v)
  end
  local n = v:item()
  n = type(n) == "boolean" and (n and 1 or 0) or tonumber(n)
  if n == 0 and arg.row.zero then calls.bad(sig, i, n) end
  return n
end
