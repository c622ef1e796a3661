--- later.lua -- the method of tensors without a shape yet, which nn/module/uninitialized.lua
-- creates.

return { methods = { materialize = require "moth.nn.module.uninitialized".materialize } }
