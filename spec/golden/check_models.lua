-- Compares the models that check_models.py wrote with moth.models, on the same weights and input.
-- ./moth spec/golden/check_models.lua FOLDER

local json = require "moth.json"
local moth = require "moth"
local skip = require("moth.nn.initialization").skip

-- ---- names and shapes of all models ----

local file = assert(io.open "spec/golden/models.json")
local golden = json.decode(file:read "*a")
file:close()

local function hash(text)
  local h = 7
  for i = 1, #text do h = (h * 31 + text:byte(i)) % (2 ^ 31 - 1) end
  return h
end

local names = moth.models.list_models()
for _, name in ipairs(names) do
  local net, rows, parameters = skip(moth.models[name]), {}, 0
  for key, x in net:state_dict():items() do
    rows[#rows + 1] = key .. " " .. table.concat(x.shape, ",")
  end
  for _, p in ipairs(net:parameters()) do parameters = parameters + p:numel() end
  table.sort(rows)
  assert(hash(table.concat(rows, "\n")) == golden.state[name].hash, name)
  assert(parameters == golden.state[name].parameters, name)
  net = nil -- luacheck: ignore 311
  collectgarbage()
end
print(#names .. " models have PyTorch's names, shapes and numbers of parameters")

-- ---- results ----

local folder, most = arg[1], 1e-4
local pipe, worst, count = io.popen("ls '" .. folder .. "'"), 0, 0
for entry in pipe:lines() do
  local name = entry:match "^(.*)%.io$"
  if name then
    local run = moth.load(folder .. "/" .. entry)
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
