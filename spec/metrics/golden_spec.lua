-- Values of metrics against torchmetrics and scikit-learn (spec/golden/metrics.py).

local moth = require "moth"
local json = require "moth.json"
local metrics = moth.metrics

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  return json.decode(text)
end

local golden = read "spec/golden/metrics.json"

-- Makes the tensors of an argument: `dtypes` has their dtypes in the same places.
local function made(value, dtypes)
  if type(dtypes) == "string" then
    local x = moth.tensor(value, { dtype = moth[dtypes] })
    return x
  elseif not dtypes then
    return value
  end
  local out = {}
  for key, inner in pairs(value) do out[key] = made(inner, dtypes[key]) end
  return out
end

-- The arguments of batch i. The batches of detections differ in their number of images.
local function batch_of(name, i)
  local dtypes = golden.dtypes[name]
  return unpack(made(golden.data[name][i], name:find "^d" and dtypes[i] or dtypes))
end

local WORDS = { nan = 0 / 0, inf = math.huge, ["-inf"] = -math.huge }

-- Compares a value of Moth with a number or a nested list.
local function same(wanted, got, where)
  if type(wanted) == "table" then
    if moth.is_tensor(got) then got = got:tolist() end
    assert.is_table(got, where)
    local n = 0
    for key, inner in pairs(wanted) do
      n = n + 1
      same(inner, got[key], where .. "[" .. tostring(key) .. "]")
    end
    if wanted[1] ~= nil then assert.equal(n, #got, where) end
    return
  end
  wanted = WORDS[wanted] or wanted
  if moth.is_tensor(got) then got = tonumber(got:item()) end
  assert.is_number(got, where)
  if wanted ~= wanted then
    assert.is_true(got ~= got, where .. " is not NaN")
  elseif wanted ~= got then
    local near = math.abs(got - wanted) <= 1e-6 * math.max(1, math.abs(wanted))
    assert.is_true(near, ("%s: wanted %.9g, got %.9g"):format(where, wanted, got))
  end
end

local function one_of(...)
  if select("#", ...) > 1 then return { ... } end
  return (...)
end

local function named(case)
  local parts = {}
  for name, value in pairs(case.args) do
    parts[#parts + 1] = name .. " = " .. tostring(value)
  end
  table.sort(parts)
  return ("%s on %s {%s}"):format(case.name, case.data, table.concat(parts, ", "))
end

local by_name, names = {}, {}
for _, case in ipairs(golden.cases) do
  if not by_name[case.name] then
    by_name[case.name] = {}
    names[#names + 1] = case.name
  end
  table.insert(by_name[case.name], case)
end

describe("torchmetrics' and scikit-learn's values", function()
  for _, name in ipairs(names) do
    it("of " .. name .. ": one batch, two batches, and two states merged", function()
      for _, case in ipairs(by_name[name]) do
        local where = named(case)
        local function new() return metrics[name](next(case.args) and case.args or nil) end
        local metric, other = new(), new()
        local first = one_of(metric(batch_of(case.data, 1)))
        if case.first ~= nil then same(case.first, first, where .. ", first") end
        metric:update(batch_of(case.data, 2))
        same(case.all, one_of(metric:compute()), where .. ", all")
        metric:reset()
        metric:update(batch_of(case.data, 1))
        other:update(batch_of(case.data, 2))
        metric:merge(other:state_dict())
        same(case.all, one_of(metric:compute()), where .. ", merged")
      end
    end)
  end
end)

-- "MulticlassF1Score" -> "multiclass_f1_score".
local WHOLE = { AUROC = "auroc", ROC = "roc", BLEUScore = "bleu_score", R2Score = "r2_score",
  F1Score = "f1_score", FBetaScore = "fbeta_score" }

local function function_of(name)
  local task, rest = name:match "^(Binary)(.+)$"
  if not task then task, rest = name:match "^(Multi[a-z]+)(.+)$" end
  rest = rest or name
  rest = WHOLE[rest] or rest:gsub("(%l)(%u)", "%1_%2"):lower()
  return metrics.functional[(task and task:lower() .. "_" or "") .. rest]
end

describe("the function of", function()
  for _, name in ipairs(names) do
    local found = function_of(name)
    if found then
      it(name .. " returns the value of a batch", function()
        for _, case in ipairs(by_name[name]) do
          local preds, target = batch_of(case.data, 1)
          if case.first ~= nil then
            local args = next(case.args) and case.args or nil
            local value = one_of(found(preds, target, args))
            same(case.first, value, named(case))
          end
        end
      end)
    end
  end

  it("each metric that takes predictions and targets exists", function()
    for _, name in ipairs(names) do
      local plain = name:find "^Sum" or name:find "^Mean" or name:find "^M%l%lMetric"
        or name:find "^Cat"
      assert.is_true(function_of(name) ~= nil or plain ~= nil, name)
    end
  end)
end)
