--- init.lua -- moth.data: datasets, samplers, the DataLoader, and readers of files.
--
-- A dataset has `:len()` and `:get(i)`; the results of `get` together are one sample. A plain
-- tensor is a dataset of its rows.

local lazy = require "moth.base.lazy"

local rows = {}
lazy.from(rows, "moth.data.dataset",
  "Dataset TensorDataset Subset ConcatDataset StackDataset random_split")
lazy.from(rows, "moth.data.iterable", "IterableDataset ChainDataset")
lazy.from(rows, "moth.data.sampler", "Sampler SequentialSampler RandomSampler SubsetRandomSampler "
  .. "WeightedRandomSampler BatchSampler DistributedSampler")
lazy.from(rows, "moth.data.loader", "DataLoader default_collate")
lazy.from(rows, "moth.data.source", "source")
lazy.from(rows, "moth.data.workers", "get_worker_info get_shard_info")
lazy.from(rows, "moth.data.idx", "idx mnist")
lazy.from(rows, "moth.data.csv", "csv")
lazy.from(rows, "moth.data.json_lines", "JSONLines write_json_lines")
lazy.from(rows, "moth.data.webdataset", "WebDataset")
lazy.from(rows, "moth.data.tar_writer", "TarWriter")
lazy.from(rows, "moth.data.folder", "DatasetFolder ImageFolder")

return (lazy.namespace("moth.data", {}, rows))
