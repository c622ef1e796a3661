--- later.lua -- the method of uninitialized tensors, which have no shape yet;
-- nn/module/uninitialized.lua creates them.

return {methods = {materialize = require("moth.nn.module.uninitialized").materialize}}
