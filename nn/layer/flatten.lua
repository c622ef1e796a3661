--- flatten.lua -- nn.Flatten and nn.Unflatten.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local Module = require "moth.nn.module"
local ops = require("moth.binding.bind").ops

local flatten = {}

--- Flattens the dimensions from start_dim to end_dim into one; default: all but the first.
local Flatten = class("Flatten", Module)
flatten.Flatten = Flatten

Flatten.signature = define.signature("Flatten", {
  {"dim", "start_dim", "the first dimension to flatten", default = 2},
  {"dim", "end_dim", "the last dimension to flatten", default = -1},
})

function Flatten:init(start_dim, end_dim)
  self.start_dim, self.end_dim = start_dim, end_dim
end

function Flatten:forward(input)
  return (ops.flatten(input, self.start_dim, self.end_dim))
end
Module.passing[Flatten.forward] = true

function Flatten:extra_repr()
  return ("start_dim=%d, end_dim=%d"):format(self.start_dim, self.end_dim)
end

--- Splits one dimension into several.
local Unflatten = class("Unflatten", Module)
flatten.Unflatten = Unflatten

Unflatten.signature = define.signature("Unflatten", {
  {"dim", "dim", "the dimension to split"},
  {"shape", "unflattened_size", "the new sizes; one of them may be -1"},
})

function Unflatten:init(dim, unflattened_size)
  self.dim, self.unflattened_size = dim, unflattened_size
end

function Unflatten:forward(input)
  return (ops.unflatten(input, self.dim, self.unflattened_size))
end
Module.passing[Unflatten.forward] = true

function Unflatten:extra_repr()
  return ("dim=%d, unflattened_size=(%s)"):format(self.dim,
    table.concat(self.unflattened_size, ", "))
end

return flatten
