--- signal.lua -- hints for names of torch.signal.

return {["moth.signal"] = {}}
