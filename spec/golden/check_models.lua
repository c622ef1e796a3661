-- Compares the models that check_models.py wrote with moth.models, on the same weights and input.
-- ./moth spec/golden/check_models.lua FOLDER

local moth = require "moth"
local folder, most = arg[1], 1e-4
local pipe, worst, count = io.popen("ls '" .. folder .. "'"), 0, 0
for file in pipe:lines() do
  local name = file:match "^(.*)%.io$"
  if name then
    local run = moth.load(folder .. "/" .. file)
    local net = moth.models[name] {weights = ("%s/%s.safetensors"):format(folder, name)}:eval()
    local y = moth.no_grad(function() return (net(run.input)) end)
    if name == "gpt2" then
      y = y[{{}, {}, {1, -1, 100}}]
    end
    local error = ((y - run.output):abs():max() / run.output:abs():max()):item()
    print(("%-20s %-14s relative error %.1e"):format(name, tostring(y.shape), error))
    worst, count = math.max(worst, error), count + 1
    net = nil -- luacheck: ignore 311
    collectgarbage()
  end
end
pipe:close()
assert(count > 0, "no file ends in .io")
assert(worst < most, "a model differs from PyTorch's")
print(("%d models agree, worst relative error %.1e"):format(count, worst))
