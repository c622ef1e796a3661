--- cuda.lua -- the GPU of the specs: a real one if `--device=cuda` asks for it, else the plugin
-- that runs kernels on the CPU (cuda/emulator/), if it was built.

local moth = require "moth"

local cuda = {}

--- Whether specs may put tensors on "cuda" here.
cuda.here = moth.cuda.is_available()

--- "a GPU", or what stands for it.
cuda.name = cuda.here and moth.cuda.get_device_name() or "no GPU"

--- Why claims about a GPU wait where there is none.
cuda.why = "there is no GPU, nor a C++ compiler to build what stands for it"

return cuda
