--- special.lua -- hints for names of torch.special.

return {["moth.special"] = {}}
