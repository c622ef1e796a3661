--- later.lua -- the method of tensors that wait for their shape, which nn/uninitialized.lua makes.

return { methods = { materialize = require "moth.nn.uninitialized".materialize } }
