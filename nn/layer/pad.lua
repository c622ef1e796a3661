--- pad.lua -- nn.ConstantPad1d and the other padding layers of sequences, images and volumes.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local Module = require "moth.nn.module"
local errors = require "moth.error"
local functional = require "moth.nn.functional"
local lib = require "moth.binding.lib"
local window = require "moth.nn.layer.window"

local pad = {}

local ORDER = {"left, right", "left, right, top, bottom",
  "left, right, top, bottom, front, back"}

-- Defines one class; only Constant has a value.
local function make(kind, mode, n, doc)
  local name = kind .. "Pad" .. n .. "d"
  local Pad = class(name, Module)
  pad[name], Pad._doc = Pad, doc
  Pad.signature = define.signature(name, {
    {"ints", "padding", "for all sides, or {" .. ORDER[n] .. "}; negative values crop"},
    kind == "Constant" and {"float", "value", "the value of the border"} or nil,
  })

  function Pad:init(padding, value)
    local one = type(padding) == "table" and #padding == 1 and padding[1] -- {n} means n
    self.padding, self.value = window.list(one or padding, 2 * n), value
    if #self.padding ~= 2 * n then
      errors.refuse(name, "padding", ("a number or {%s} is needed"):format(ORDER[n]), padding,
        "E_SHAPE")
    end
  end

  function Pad:forward(input)
    if kind == "Circular" and lib.istensor(input)
       and (input:dim() < n + 1 or input:dim() > n + 2) then
      errors.refuse(name, "input", ("%d or %d dimensions are needed"):format(n + 1, n + 2), input,
        "E_SHAPE")
    end
    return (functional.pad(input, self.padding, mode, self.value))
  end
  Module.passing[Pad.forward] = true

  function Pad:extra_repr()
    if kind ~= "Constant" then return window.text(self.padding) end
    return ("padding=%s, value=%s"):format(window.text(self.padding), tostring(self.value))
  end
end

for kind, row in pairs {
  Constant = {"constant", "of one value"},
  Zero = {"constant", "of zeros"},
  Reflection = {"reflect", "that mirrors the input without its edge"},
  Replication = {"replicate", "that repeats the edge"},
  Circular = {"circular", "with the values of the opposite side"},
} do
  for n = 1, 3 do
    make(kind, row[1], n, ("Adds a border %s, to %s."):format(row[2], window.INPUT[n]))
  end
end

return pad
