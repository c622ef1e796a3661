--- Epochs over data in memory and files of tensors, on Moth's side.

local moth = require "moth"
local many_parameters = require("train").many_parameters

local data = {step = {}}

local SAMPLES, BATCH = 60000, 64

local function samples()
  return moth.randn(SAMPLES, 784), moth.randint(1, 11, {SAMPLES})
end

--- A plain loop over an epoch.
function data.step.index_batches()
  local x, y = samples()
  return function()
    for _, ids in ipairs(moth.randperm(SAMPLES):split(BATCH)) do
      moth.scope(function()
        local _, _ = x[ids], y[ids]
      end)
    end
  end
end

--- An epoch of a DataLoader without workers.
function data.step.loader()
  local set = moth.data.TensorDataset(samples())
  local loader = moth.data.DataLoader{set, batch_size = BATCH, shuffle = true}
  return function()
    for _, _ in loader do end -- luacheck: ignore
  end
end

-- ---- files ----

local function parameters_by_name()
  local state = {}
  for i, p in ipairs(many_parameters()) do state["p" .. i] = p end
  return state
end

-- A plain table of tensors is written as PyTorch's safetensors writes it; any other value is a
-- checkpoint, Moth's counterpart of torch.save.
local function content(row)
  local state = parameters_by_name()
  if row.options.format == "safetensors" then return state end
  return {epoch = 1, model = state}
end

--- Does not wait for the disk, like the peer; the variant +fsync does.
function data.step.save(row)
  local value, path = content(row), os.tmpname()
  local function save(durable) moth.save{value, path, durable = durable} end
  return save, false, nil, function() os.remove(path) end
end

function data.step.load(row)
  local path = os.tmpname()
  moth.save(content(row), path)
  return function() return (moth.load(path)) end, nil, nil, function() os.remove(path) end
end

return data
