--- pad.lua -- nn.ConstantPad1d and its kin: borders around sequences, images and
-- volumes.

local class = require "moth.class"
local define = require "moth.define"
local Module = require "moth.nn.module"
local errors = require "moth.error"
local functional = require "moth.nn.functional"
local window = require "moth.nn.window"

local pad = {}

local ORDER = {"left, right", "left, right, top, bottom",
  "left, right, top, bottom, front, back"}

-- One class; kind Constant takes a value too.
local function make(Pad, kind, mode, n)
  local name = kind .. "Pad" .. n .. "d"
  pad[name] = Pad
  Pad.signature = define.signature(name, {
    {"ints", "padding", "for all sides, or {" .. ORDER[n] .. "}; negative cuts off"},
    kind == "Constant" and {"float", "value", "what the border is filled with"} or nil,
  })

  function Pad:init(padding, value)
    local one = type(padding) == "table" and #padding == 1 and padding[1] -- as sizes in a row
    self.padding, self.value = window.list(one or padding, 2 * n), value
    if #self.padding ~= 2 * n then
      errors.argument(name, "padding", ("a number or {%s} is needed, got %s"):format(ORDER[n],
        errors.describe(padding)), "E_SHAPE")
    end
  end

  function Pad:forward(input)
    return (functional.pad(input, self.padding, mode, self.value))
  end
  Module.passing[Pad.forward] = true

  function Pad:extra_repr()
    if kind ~= "Constant" then return window.text(self.padding) end
    return ("padding=%s, value=%s"):format(window.text(self.padding), tostring(self.value))
  end
end

--- A border of one value: (..., L).
local ConstantPad1d = class("ConstantPad1d", Module)
make(ConstantPad1d, "Constant", "constant", 1)
--- A border of one value: (..., H, W).
local ConstantPad2d = class("ConstantPad2d", Module)
make(ConstantPad2d, "Constant", "constant", 2)
--- A border of one value: (..., D, H, W).
local ConstantPad3d = class("ConstantPad3d", Module)
make(ConstantPad3d, "Constant", "constant", 3)
--- A border of zeros: (..., L).
local ZeroPad1d = class("ZeroPad1d", Module)
make(ZeroPad1d, "Zero", "constant", 1)
--- A border of zeros: (..., H, W).
local ZeroPad2d = class("ZeroPad2d", Module)
make(ZeroPad2d, "Zero", "constant", 2)
--- A border of zeros: (..., D, H, W).
local ZeroPad3d = class("ZeroPad3d", Module)
make(ZeroPad3d, "Zero", "constant", 3)
--- A border that mirrors the inside without its edge: (..., L).
local ReflectionPad1d = class("ReflectionPad1d", Module)
make(ReflectionPad1d, "Reflection", "reflect", 1)
--- A border that mirrors the inside without its edge: (..., H, W).
local ReflectionPad2d = class("ReflectionPad2d", Module)
make(ReflectionPad2d, "Reflection", "reflect", 2)
--- A border that mirrors the inside without its edge: (..., D, H, W).
local ReflectionPad3d = class("ReflectionPad3d", Module)
make(ReflectionPad3d, "Reflection", "reflect", 3)
--- A border that repeats the edge: (..., L).
local ReplicationPad1d = class("ReplicationPad1d", Module)
make(ReplicationPad1d, "Replication", "replicate", 1)
--- A border that repeats the edge: (..., H, W).
local ReplicationPad2d = class("ReplicationPad2d", Module)
make(ReplicationPad2d, "Replication", "replicate", 2)
--- A border that repeats the edge: (..., D, H, W).
local ReplicationPad3d = class("ReplicationPad3d", Module)
make(ReplicationPad3d, "Replication", "replicate", 3)
--- A border from the other side: (..., L).
local CircularPad1d = class("CircularPad1d", Module)
make(CircularPad1d, "Circular", "circular", 1)
--- A border from the other side: (..., H, W).
local CircularPad2d = class("CircularPad2d", Module)
make(CircularPad2d, "Circular", "circular", 2)
--- A border from the other side: (..., D, H, W).
local CircularPad3d = class("CircularPad3d", Module)
make(CircularPad3d, "Circular", "circular", 3)

return pad
