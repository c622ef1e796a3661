--- dropout.lua -- nn.Dropout and its kin: while training, zeros at random, and the rest scaled up.

local class = require "moth.class"
local define = require "moth.define"
local Module = require "moth.nn.module"
local errors = require "moth.error"
local functional = require "moth.nn.functional"

local dropout = {}

-- Dropout: single elements; Dropout1d, 2d, 3d: whole channels of sequences, images, volumes.
for name, fname in pairs {Dropout = "dropout", Dropout1d = "dropout1d", Dropout2d = "dropout2d",
                          Dropout3d = "dropout3d", AlphaDropout = "alpha_dropout"} do
  local Layer = class(name, Module)
  dropout[name] = Layer

  Layer.signature = define.signature(name, {
    {"float", "p", "probability of a zero", default = 0.5},
    {"bool", "inplace", "write the input itself?", default = false},
  })

  function Layer:init(p, inplace)
    if not (p >= 0 and p <= 1) then
      errors.argument(name, "p", "a probability from 0 to 1 is needed, got " .. errors.describe(p),
        "E_DOMAIN")
    end
    self.p, self.inplace = p, inplace
  end

  function Layer:forward(input)
    local y = functional[fname](input, self.p, self.training)
    if self.inplace and self.training then return (input:copy_(y)) end
    return y
  end

  function Layer:extra_repr()
    return ("p=%g, inplace=%s"):format(self.p, tostring(self.inplace))
  end
end

return dropout
