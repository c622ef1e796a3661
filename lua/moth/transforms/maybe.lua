--- maybe.lua -- makes transforms that apply a function of moth.transforms.functional with a
-- probability.

local base = require "moth.transforms.transform"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local run = require("moth.transforms.kernels").run

local Maybe = base.Maybe

local P = {"float", "p", "the probability", default = 0.5}

--- Makes the class of one transform.
-- @param name  of the class
-- @param op    of the function; it gets the picture and the value of `arg`
-- @param doc   the first sentence of the documentation
-- @param arg   the row of an argument before p; optional
return function(name, op, doc, arg)
  local New, field = class(name, Maybe), arg and arg[2]
  New._doc = doc
  if not arg then
    New.signature = define.signature(name, {P})
    function New:init(p) Maybe.init(self, p) end
    function New:transform(x, _, kind) return (run(op, kind, x)) end
    return New
  end
  New.signature = define.signature(name, {arg, P})
  function New:init(value, p)
    Maybe.init(self, p)
    self[field] = value
  end
  function New:transform(x, _, kind) return (run(op, kind, x, self[field])) end
  return New
end
