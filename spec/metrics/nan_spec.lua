-- Metrics of plain values for each nan_strategy: NaNs are left out, reported, replaced or used.

local moth = require "moth"

local metrics, NAN = moth.metrics, 0 / 0

-- metric -> results for {1, NaN, 3} by strategy; a number replaces NaN
local ROWS = {
  SumMetric = {ignore = 4, warn = 4, [5] = 9}, MeanMetric = {ignore = 2, warn = 2, [5] = 3},
  MaxMetric = {ignore = 3, warn = 3, [5] = 5}, MinMetric = {ignore = 1, warn = 1, [-5] = -5},
  CatMetric = {ignore = {1, 3}, warn = {1, 3}, [5] = {1, 5, 3}},
}

local function warned(f)
  local texts, warn = {}, moth.warn
  moth.warn = function(text) texts[#texts + 1] = text end
  finally(function() moth.warn = warn end)
  return f(), texts
end

describe("a metric of values with NaN", function()
  for name, row in pairs(ROWS) do
    for strategy, wanted in pairs(row) do
      it(("%s, nan_strategy = %s"):format(name, tostring(strategy)), function()
        local value, texts = warned(function()
          local metric = metrics[name](strategy)
          metric:update(moth.tensor {1, NAN, 3})
          return metric:compute()
        end)
        assert.same(wanted, type(wanted) == "table" and value:tolist() or value:item())
        assert.equal(strategy == "warn" and 1 or 0, #texts)
        if texts[1] then
          assert.matches(name .. ": 1 of the values were NaN and are left out", texts[1], 1, true)
        end
      end)
    end

    it(name .. " raises, by request", function()
      local ok, problem = pcall(function()
        metrics[name]("error"):update(moth.tensor {1, NAN, 3})
      end)
      assert.is_false(ok)
      assert.matches("f32 (3) has NaNs", problem, 1, true)
      local fine = metrics[name] "error"
      fine:update(moth.tensor {1, 3})
      assert.is_not_nil(fine:compute())
    end)

    it(name .. " uses NaN, by request", function()
      local metric = metrics[name] "disable"
      metric:update(moth.tensor {1, NAN, 3})
      local value = metric:compute()
      assert.is_true(value:isnan():any():item())
    end)

    it(name .. " has no other strategies", function()
      for _, strategy in ipairs {"drop", true, {}} do
        local ok, problem = pcall(metrics[name], strategy)
        assert.is_false(ok)
        assert.matches("bad argument 'nan_strategy' to '" .. name .. "'", problem, 1, true)
      end
    end)
  end

  it("leaves the weight of a NaN out", function()
    local metric = metrics.MeanMetric "ignore"
    metric:update(moth.tensor {1, NAN, 3}, moth.tensor {1, 2, 3})
    assert.equal(2.5, metric:compute():item())
    metric:update(moth.tensor {NAN, 5}, 2)
    assert.near(20 / 6, metric:compute():item(), 1e-6)
    metric:update(7, 2)
    assert.near(34 / 8, metric:compute():item(), 1e-6)
    metric:update(NAN, 2)
    assert.near(34 / 8, metric:compute():item(), 1e-6)
  end)
end)
