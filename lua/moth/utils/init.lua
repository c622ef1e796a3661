--- init.lua -- moth.utils: what PyTorch has in torch.utils and Moth has nowhere else.

local lazy = require "moth.lazy"

return (lazy.namespace("moth.utils", {}, {checkpoint = {"moth.utils.checkpoint"}}))
