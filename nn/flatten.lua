--- flatten.lua -- nn.Flatten.

local class = require "moth.class"
local define = require "moth.define"
local Module = require "moth.nn.module"

local flatten = {}

--- Joins the dimensions from start_dim to end_dim into one; by default all but the first.
local Flatten = class("Flatten", Module)
flatten.Flatten = Flatten

Flatten.signature = define.signature("Flatten", {
  {"dim", "start_dim", "the first that is joined", default = 2},
  {"dim", "end_dim", "the last that is joined", default = -1},
})

function Flatten:init(start_dim, end_dim)
  self.start_dim, self.end_dim = start_dim, end_dim
end

function Flatten:forward(input)
  return (input:flatten(self.start_dim, self.end_dim))
end

function Flatten:extra_repr()
  return ("start_dim=%d, end_dim=%d"):format(self.start_dim, self.end_dim)
end

return flatten
