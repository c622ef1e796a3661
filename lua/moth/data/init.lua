--- init.lua -- moth.data: datasets, samplers, the DataLoader, and readers of files.
--
-- A dataset has `:len()` and `:get(i)`, whose results together are one sample. A plain tensor is
-- a dataset of its rows.

local errors = require "moth.error"

local files = {
  Dataset = "dataset", TensorDataset = "dataset", Subset = "dataset", ConcatDataset = "dataset",
  StackDataset = "dataset", random_split = "dataset",
  IterableDataset = "iterable", ChainDataset = "iterable",
  Sampler = "sampler", SequentialSampler = "sampler", RandomSampler = "sampler",
  SubsetRandomSampler = "sampler", WeightedRandomSampler = "sampler", BatchSampler = "sampler",
  DataLoader = "loader", default_collate = "loader",
  idx = "idx", mnist = "idx", csv = "csv",
}

local function names()
  local list = {}
  for name in pairs(files) do list[#list + 1] = name end
  return list
end

return setmetatable({}, {
  __names = names, -- for completion
  __index = function(data, name)
    local file = files[name]
    if not file then
      errors.raise(("moth.data has no '%s'%s"):format(tostring(name),
        errors.nearest(tostring(name), names())))
    end
    local found = require("moth.data." .. file)[name]
    rawset(data, name, found)
    return found
  end,
})
