--- later.lua -- the method of tensors that wait for their shape, which nn/module/uninitialized.lua
-- makes.

return { methods = { materialize = require "moth.nn.module.uninitialized".materialize } }
