-- Distributions of one number at the ends of their supports and parameters: PyTorch's values
-- (spec/golden/distribution_edges.py), and what checks take and refuse.

local json = require "moth.json"
local moth = require "moth"
local cases = require "spec.support.distribution_cases"

local D = moth.distributions
local golden = cases.golden "distribution_edges"
local NAMES = { inf = math.huge, ["-inf"] = -math.huge, nan = 0 / 0 }

local function decoded(list)
  local out = {}
  for i, value in pairs(list) do out[i] = NAMES[value] or value end
  return out
end

-- Compares the results that the list has: null is none.
local function same(wanted, x, what, tolerance)
  local at, list, got = {}, {}, x:flatten()
  assert.equal(#wanted, got:numel(), what)
  for i, value in ipairs(wanted) do
    if value ~= json.null then at[#at + 1], list[#list + 1] = i, value end
  end
  cases.same(list, got:index_select(1, moth.tensor(at, { dtype = moth.int64 })), what, tolerance)
end

local function made(case, checked)
  local params = { validate_args = checked or false }
  for name, value in pairs(decoded(case.params or case[2])) do params[name] = cases.f64(value) end
  return D[case.class or case[1]](params)
end

local function text_of(case)
  local parts = {}
  for name, value in pairs(case.params or case[2]) do
    parts[#parts + 1] = name .. "=" .. tostring(value)
  end
  table.sort(parts)
  return (case.class or case[1]) .. "(" .. table.concat(parts, ", ") .. ")"
end

describe("at the ends of its support and parameters,", function()
  for _, case in ipairs(golden.cases) do
    local title = text_of(case)
    it(title .. " has PyTorch's values", function()
      local d, near = made(case), case.class == "VonMises" and 1e-6 or 1e-9 -- PyTorch's digits
      local x = cases.f64(decoded(case.values))
      for name, wanted in pairs(case.fields) do
        local value = d[name]
        if type(value) == "function" then value = value(d) end
        same(wanted, value, title .. "." .. name, near)
      end
      for _, name in ipairs { "log_prob", "cdf" } do
        if case[name] then same(case[name], d[name](d, x), title .. ":" .. name, near) end
      end
      if case.icdf then
        same(case.icdf, d:icdf(cases.f64(golden.shares)), title .. ":icdf", near)
      end
      assert.same(case.inside, d.support:check(x):tolist())
    end)
  end
end)

describe("checks", function()
  for _, case in ipairs(golden.accepted) do
    local title = text_of(case)
    it((case[3] and "take " or "refuse ") .. title, function()
      local fine, problem = pcall(made, case, true)
      assert.equal(case[3], fine, problem)
      if not fine then
        assert.equal("E_DOMAIN", moth.errcode())
        assert.matches("bad argument '[%w_]+' to '" .. case[1] .. "' %(.* are needed", problem)
      end
      assert.is_true((pcall(made, case, false)))
    end)
  end

  it("take the values of the support, and refuse others", function()
    for _, case in ipairs(golden.cases) do
      local d, values = made(case, true), decoded(case.values)
      for i, value in ipairs(values) do
        local fine, problem = pcall(d.log_prob, d, cases.f64(value))
        assert.equal(case.inside[i], fine, text_of(case) .. " " .. value)
        if not fine then
          assert.matches("bad argument 'value' to '" .. case.class .. "%.log_prob' %(.* are needed",
            problem)
        end
      end
      if case.icdf then
        for _, share in ipairs { -1e-9, 1 + 1e-9, 0 / 0 } do
          assert.is_false(pcall(d.icdf, d, cases.f64(share)), text_of(case))
        end
        for _, share in ipairs { 0, 1 } do d:icdf(cases.f64(share)) end
      end
    end
  end)
end)

describe("a distribution", function()
  local f64 = cases.f64

  it("Kumaraswamy has its mode, and its density at 0 and 1", function()
    local inf, log = math.huge, math.log
    for _, case in ipairs { -- a, b, mode, log_prob at 0 and at 1
      { 2, 2, (1 / 3) ^ 0.5, -inf, -inf }, { 1, 2, 0, log(2), -inf }, { 2, 1, 1, -inf, log(2) },
      { 1, 1, 0 / 0, 0, 0 }, { 0.5, 2, 0 / 0, inf, -inf }, { 2, 0.5, 0 / 0, -inf, inf },
      { 0.5, 0.5, 0 / 0, inf, inf },
    } do
      local d = D.Kumaraswamy(f64(case[1]), f64(case[2]))
      cases.same({ case[3] }, d.mode, "mode")
      cases.same({ case[4], case[5] }, d:log_prob(f64 { 0, 1 }), "log_prob")
      cases.same({ 0, 1 }, d:cdf(f64 { 0, 1 }), "cdf")
      cases.same({ 0, 1 }, d:icdf(f64 { 0, 1 }), "icdf")
    end
  end)

  it("Weibull has its mode at 0 for a concentration up to 1", function()
    cases.same({ 0, 0, 2 * 0.5 ^ 0.5 }, D.Weibull(f64(2), f64 { 0.5, 1, 2 }).mode, "mode")
  end)

  it("Gumbel has infinite quantiles of 0 and 1", function()
    cases.same({ -math.huge, math.huge }, D.Gumbel(f64(0), f64(2)):icdf(f64 { 0, 1 }), "icdf")
  end)

  it("Binomial with a probability of 0 or 1 is certain", function()
    for n = 0, 3 do
      local d = D.Binomial(f64 { n, n }, f64 { 0, 1 })
      cases.same({ 0, 0 }, d:log_prob(f64 { 0, n }), "log_prob")
      cases.same({ 0, 0 }, d:entropy(), "entropy")
      cases.same({ 0, n }, d.mean, "mean")
      cases.same({ 0, n }, d.mode, "mode")
      if n > 0 then
        cases.same({ -math.huge, -math.huge }, d:log_prob(f64 { n, 0 }), "log_prob")
      end
      local m = D.Multinomial(n, f64 { 0, 1 })
      cases.same({ 0 }, m:entropy(), "Multinomial's entropy")
      cases.same({ 0 }, m:log_prob(f64 { 0, n }), "Multinomial's log_prob")
    end
    cases.same({ 0, -math.huge }, D.NegativeBinomial(f64(3), f64(0)):log_prob(f64 { 0, 1 }), "none")
  end)

  it("GeneralizedPareto with a concentration of 0 is exponential", function()
    for _, c in ipairs { 0, 1e-9, -1e-9 } do
      local d, e = D.GeneralizedPareto(f64(0), f64(2), f64(c)), D.Exponential(f64(0.5))
      local x, shares = f64 { 0, 0.5, 3 }, f64 { 0, 0.25, 0.75 }
      cases.same(e:log_prob(x):tolist(), d:log_prob(x), "log_prob", 1e-8)
      cases.same(e:cdf(x):tolist(), d:cdf(x), "cdf", 1e-8)
      cases.same(e:icdf(shares):tolist(), d:icdf(shares), "icdf", 1e-8)
      cases.same({ 1 }, d:cdf(f64(math.huge)), "cdf")
      cases.same({ -math.huge }, d:log_prob(f64(math.huge)), "log_prob")
      cases.same({ math.huge }, d:icdf(f64(1)), "icdf")
    end
  end)

  it("of counts refuses infinity, in each float dtype", function()
    for _, dtype in ipairs { moth.float64, moth.float32, moth.float16, moth.bfloat16 } do
      local inf = moth.tensor(math.huge, { dtype = dtype })
      local largest = moth.tensor(moth.finfo(dtype).max, { dtype = dtype })
      for _, d in ipairs { D.Poisson(moth.tensor(2, { dtype = dtype })),
          D.Geometric(moth.tensor(0.5, { dtype = dtype })) } do
        assert.is_false((pcall(d.log_prob, d, inf)))
        assert.is_true((pcall(d.log_prob, d, largest)))
      end
      assert.is_false(D.constraints.positive_integer:check(inf):item())
      assert.is_false(D.constraints.positive_integer:check(largest * 0):item())
      assert.is_true(D.constraints.positive_integer:check(largest):item())
    end
  end)
end)
