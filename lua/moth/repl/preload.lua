--- preload.lua -- defines the globals of the prompt and of `moth -e`: moth, nn, F, optim and data.

local moth = require "moth"

local globals = {
  moth = moth, nn = moth.nn, F = moth.nn.functional, optim = moth.optim, data = moth.data,
}
for name, value in pairs(globals) do rawset(_G, name, value) end

return globals
