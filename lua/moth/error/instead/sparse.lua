--- sparse.lua -- hints for names of torch.sparse.

return {["moth.sparse"] = {}}
