-- The ops give PyTorch's values and gradients on a GPU too: the samples of golden_spec, with their
-- inputs on "cuda". One claim for each op; an op without a kernel there is pending, by its name.
-- MOTH_SPEC_OP=PATTERN looks at some ops alone.

local golden = require "spec.support.golden"
local run = require "spec.support.golden_run"
local cuda = require "spec.support.cuda"

local only = os.getenv "MOTH_SPEC_OP"

local DTYPES = {"float64", "float32", "float16", "bfloat16"}

local MISSING = "there is no kernel for it on"

-- Runs all samples of an op. @return what went wrong, and the ops that had no kernel
local function check_all(shard, name, fn)
  local wrong, missing = {}, nil
  for _, dtype in ipairs(DTYPES) do
    for _, sample in ipairs(run.samples(shard.ops[name], name, dtype)) do
      local ok, message = pcall(run.check, shard, name, fn, sample, dtype)
      message = tostring(message)
      if not ok and message:find(MISSING, 1, true) then
        missing = message:match("([%w_]+): " .. MISSING) or name
      elseif not ok then
        wrong[#wrong + 1] = ("%s in %s [%s]: %s"):format(name, dtype, sample.name, message)
      end
    end
  end
  return wrong, missing
end

describe("golden values on a GPU", function()
  for _, shard in ipairs(cuda.here and golden.all() or {}) do
    local names = {}
    for name in pairs(shard.ops) do
      if (not only or name:match(only)) and run.find(name) then names[#names + 1] = name end
    end
    table.sort(names)
    for _, name in ipairs(names) do
      it("of " .. name, function()
        run.device = "cuda"
        local ok, wrong, missing = pcall(check_all, shard, name, run.find(name))
        run.device = nil
        assert(ok, wrong)
        assert(#wrong == 0, "\n  " .. table.concat(wrong, "\n  "))
        if missing then pending("no kernel for '" .. missing .. "'") end
      end)
    end
  end

  if not cuda.here then pending("are compared: " .. cuda.why) end
end)
