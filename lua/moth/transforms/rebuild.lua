--- rebuild.lua -- transforms as functions for the workers of a DataLoader, which have their own Lua
-- states.
--
--     local source = t:worker()     -- a data.source: source(sample) is t(sample)

local class = require "moth.base.class"
local errors = require "moth.error"
local sent = require "moth.data.sent"
local sources = require "moth.data.source"

local rebuild = {}

local made = setmetatable({}, {__mode = "k"}) -- the sent table -> the transform

local function pass_on(...) return ... end

local function apply(n, ...)
  local values = {...}
  local written = values[n]
  made[written] = made[written] or sent.read(written)
  return pass_on(made[written](unpack(values, 1, n - 1)))
end

--- Applies a transform.
-- @param ...  a sample, then the transform as sent.lua wrote it
function rebuild.apply(...) return apply(select("#", ...), ...) end

--- A data.source that applies a transform of moth.transforms; raises for others.
function rebuild.source(t)
  local name = class.typename(t)
  local own = getmetatable(require "moth.transforms").__built_in(name)
  if own == nil or class.of(t) ~= own then
    errors.raise(("%s cannot be sent to a worker: define %s:worker(), which returns a "
      .. "moth.data.source of a function of a sample"):format(name, name), "E_UNSUPPORTED")
  end
  local written, why = sent.write(t)
  if written == nil then
    errors.raise(("%s cannot be sent to a worker, because it has %s: pass a "
      .. "moth.data.source(\"module:name\")"):format(name, why), "E_UNSUPPORTED")
  end
  return (sources.source("moth.transforms.rebuild:apply", written))
end

return rebuild
