--- ops.lua -- hints for names of torchvision.ops.

return {["moth.ops"] = {}}
