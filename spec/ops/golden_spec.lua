-- The ops have PyTorch's values, gradients and second derivatives. spec/golden/make.py writes them
-- to spec/golden/data. One claim for each op and dtype; a failure names the sample, the compared
-- part and the first wrong element. MOTH_SPEC_OP=PATTERN selects ops.

local moth = require "moth"
local golden = require "spec.support.golden"
local run = require "spec.support.golden_run"

local only = os.getenv "MOTH_SPEC_OP"

local DTYPES = {"float64", "float32", "float16", "bfloat16"}

-- Kept until the last claim here: live data would slow down every later collection.
local shards = golden.all()
local families = {}
for _, shard in ipairs(shards) do families[shard.family] = shard end
teardown(function() shards, families = nil, nil end)

describe("golden values", function()
  for _, shard in ipairs(shards) do
    local family = shard.family
    local names = {}
    for name in pairs(shard.ops) do names[#names + 1] = name end
    table.sort(names)
    for _, name in ipairs(names) do
      if not only or name:match(only) then
        local fn = run.find(name)
        if not fn then
          it("of " .. name .. ": the op is there", function()
            error(name .. " has golden values, but is not there", 0)
          end)
        else
          for _, dtype in ipairs(DTYPES) do
            if #run.samples(shard.ops[name], name, dtype) > 0 then
              it(("of %s in %s"):format(name, dtype), function()
                local from, wrong, lapack = families[family], {}, 0
                for _, sample in ipairs(run.samples(from.ops[name], name, dtype)) do
                  local ok, message = pcall(run.check, from, name, fn, sample, dtype)
                  if not ok then
                    wrong[#wrong + 1] = ("%s [%s]: %s"):format(name, sample.name,
                      tostring(message))
                    if wrong[#wrong]:find("needs LAPACK", 1, true) then lapack = lapack + 1 end
                  end
                end
                if lapack > 0 and lapack == #wrong then pending("there is no LAPACK") end
                assert(#wrong == 0, "\n  " .. table.concat(wrong, "\n  "))
              end)
            end
          end
        end
      end
    end
  end
end)

-- The comparison must find a golden value that is wrong: one changed value in each of many cases.
describe("the comparison", function()
  it("fails if a golden value is changed", function()
    local seen, missed = 0, {}
    for _, shard in ipairs(shards) do
      for name, samples in pairs(shard.ops) do
        local fn = (not only or name:match(only)) and run.find(name)
        local sample = fn and run.samples(samples, name, "float64")[1]
        if sample and not sample.error and pcall(run.check, shard, name, fn, sample, "float64") then
          for _, part in ipairs{"y", "grads", "second"} do
            if run.has(sample, part) then
              seen = seen + 1
              local ok = pcall(run.check, shard, name, fn, sample, "float64", part)
              if ok then missed[#missed + 1] = name .. " " .. part end
            end
          end
        end
      end
    end
    assert.same({}, missed)
    assert(only or seen > 100, "only " .. seen .. " cases were tried")
  end)

  it("reads special floats by their bits", function()
    for _, dtype in ipairs(DTYPES) do
      local x = moth.tensor({1.5, -0.25, math.huge, -math.huge, 0, 2 ^ -14}, {dtype = moth[dtype]})
      local bytes = {float64 = 8, float32 = 4}
      local raw = moth.tensor({0}, {dtype = moth[dtype]})
      assert.equal(bytes[dtype] or 2, raw:element_size())
      assert.same({1.5, -0.25, math.huge, -math.huge, 0, 2 ^ -14}, x:tolist())
    end
  end)
end)
