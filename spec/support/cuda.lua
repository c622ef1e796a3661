--- cuda.lua -- the GPU of the specs: a real one with `--device=cuda`, else the GPU emulator, which
-- runs kernels on the CPU (cuda/emulator/), if it was built.

local moth = require "moth"

local cuda = {}

--- Returns true if specs may put tensors on "cuda" here.
cuda.here = moth.cuda.is_available()

--- "a GPU", or the name of the emulator.
cuda.name = cuda.here and moth.cuda.get_device_name() or "no GPU"

--- The reason why claims about a GPU are skipped without one.
cuda.why = "there is no GPU, nor a C++ compiler to build the GPU emulator"

return cuda
