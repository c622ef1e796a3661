--- random.lua -- hints for names of torch.random.

return {["moth.random"] = {
  thread_safe_generator = "moth.Generator belongs to one thread",
}}
