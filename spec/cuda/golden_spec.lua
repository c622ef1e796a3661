-- The ops have PyTorch's values and gradients on a GPU, too: the samples of golden_spec, with
-- their inputs on "cuda". One claim for each op. MOTH_SPEC_OP=PATTERN selects ops.

local golden = require "spec.support.golden"
local run = require "spec.support.golden_run"
local cuda = require "spec.support.cuda"

local only = os.getenv "MOTH_SPEC_OP"

-- Tensor cores use the weights of attention as half types, which adds a rounding.
local CLASSES = { scaled_dot_product_attention = "composed" }

local DTYPES = {"float64", "float32", "float16", "bfloat16"}

-- Runs all samples of an op. @return the errors
local function check_all(shard, name, fn)
  local wrong = {}
  for _, dtype in ipairs(DTYPES) do
    for _, sample in ipairs(run.samples(shard.ops[name], name, dtype)) do
      local ok, message = pcall(run.check, shard, name, fn, sample, dtype)
      if not ok then
        wrong[#wrong + 1] = ("%s in %s [%s]: %s"):format(name, dtype, sample.name,
          tostring(message))
      end
    end
  end
  return wrong
end

-- Kept until the last claim: live objects slow down every collection.
local shards = cuda.here and golden.all() or {}
local families = {}
for _, shard in ipairs(shards) do families[shard.family] = shard end
teardown(function() shards, families = nil, nil end)

describe("golden values on a GPU", function()
  for _, shard in ipairs(shards) do
    local family, names = shard.family, {}
    for name in pairs(shard.ops) do
      if (not only or name:match(only)) and run.find(name) then names[#names + 1] = name end
    end
    table.sort(names)
    for _, name in ipairs(names) do
      it("of " .. name, function()
        run.device, run.classes = "cuda", CLASSES
        local ok, wrong = pcall(check_all, families[family], name, run.find(name))
        run.device, run.classes = nil, {}
        assert(ok, wrong)
        assert(#wrong == 0, "\n  " .. table.concat(wrong, "\n  "))
      end)
    end
  end

  if not cuda.here then pending("are compared: " .. cuda.why) end
end)
