-- moth.signal.windows: PyTorch's values, symmetric and periodic.

local moth = require "moth"
local windows = moth.signal.windows

-- The name, its arguments, the symmetric and the periodic window of 5 elements.
local ROWS = {
  { "bartlett", {},
    { 0, 0.5, 1, 0.5, 0 },
    { 0, 0.4, 0.8, 0.8, 0.4 } },
  { "blackman", {},
    { 0, 0.34, 1, 0.34, 0 },
    { 0, 0.2007701, 0.8492299, 0.8492299, 0.2007701 } },
  { "cosine", {},
    { 0.309017, 0.809017, 1, 0.809017, 0.309017 },
    { 0.258819, 0.7071068, 0.9659258, 0.9659258, 0.7071068 } },
  { "exponential", { tau = 2.0 },
    { 0.3678794, 0.6065307, 1, 0.6065307, 0.3678794 },
    { 0.2865048, 0.4723666, 0.7788008, 0.7788008, 0.4723666 } },
  { "exponential", { tau = 1.0 },
    { 0.1353353, 0.3678794, 1, 0.3678794, 0.1353353 },
    { 0.082085, 0.2231302, 0.6065307, 0.6065307, 0.2231302 } },
  { "gaussian", { std = 0.9 },
    { 0.08465799, 0.5394075, 1, 0.5394075, 0.08465799 },
    { 0.02110966, 0.2493522, 0.8569969, 0.8569969, 0.2493522 } },
  { "general_hamming", { alpha = 0.46 },
    { -0.08, 0.46, 1, 0.46, -0.08 },
    { -0.08, 0.2931308, 0.8968692, 0.8968692, 0.2931308 } },
  { "hamming", {},
    { 0.08, 0.54, 1, 0.54, 0.08 },
    { 0.08, 0.3978522, 0.9121478, 0.9121478, 0.3978522 } },
  { "hann", {},
    { 0, 0.5, 1, 0.5, 0 },
    { 0, 0.3454915, 0.9045085, 0.9045085, 0.3454915 } },
  { "kaiser", { beta = 3.0 },
    { 0.2048848, 0.7269255, 1, 0.7269255, 0.2048848 },
    { 0.2048848, 0.6247462, 0.9522219, 0.9522219, 0.6247462 } },
  { "nuttall", {},
    { 0.0003628, 0.2269824, 1, 0.2269824, 0.0003628 },
    { 0.0003628, 0.1105153, 0.7982581, 0.7982581, 0.1105153 } },
  { "general_cosine", { a = { 0.46, 0.23, 0.31 } },
    { 0.54, 0.15, 1, 0.15, 0.54 },
    { 0.54, 0.1381308, 0.7418692, 0.7418692, 0.1381308 } },
}

local function call(name, n, options, sym)
  local all = { sym = sym, dtype = moth.float64 }
  for key, value in pairs(options) do all[key] = value end
  return windows[name](n, all)
end

local function near(list, y)
  assert.equal(#list, y:numel())
  for i, value in ipairs(y:tolist()) do assert.near(list[i], value, 1e-6) end
end

describe("moth.signal.windows", function()
  it("are symmetric, to the last bit", function()
    for _, name in ipairs {"bartlett", "blackman", "cosine", "hamming", "hann", "kaiser",
                           "nuttall"} do
      for _, n in ipairs {2, 3, 64, 65, 70001} do
        local y, part = windows[name](n), windows[name](n, {sym = false}):narrow(1, 2, n - 1)
        assert.is_true(y:equal(y:flip(1)), name .. n)
        if name ~= "cosine" then assert.is_true(part:equal(part:flip(1)), name .. n) end
      end
    end
  end)

  for _, row in ipairs(ROWS) do
    it(row[1] .. " has PyTorch's values", function()
      near(row[3], call(row[1], 5, row[2], true))
      near(row[4], call(row[1], 5, row[2], false))
    end)

    it(row[1] .. " with one element is 1, with none empty", function()
      if row[1] ~= "exponential" or row[2].tau == 1 then
        near({ 1 }, call(row[1], 1, row[2], true))
        near({ 1 }, call(row[1], 1, row[2], false))
      end
      assert.same({ 0 }, { unpack(call(row[1], 0, row[2], true).shape) })
    end)
  end

  it("exponential accepts its center, counted from 0", function()
    near({ 0.6065307, 1, 0.6065307, 0.3678794, 0.2231302 },
      windows.exponential(5, { center = 1, tau = 2 }))
    near({ 0.6065307, 1, 0.6065307, 0.3678794, 0.2231302 },
      windows.exponential(5, { center = 1, tau = 2, sym = false }))
  end)

  it("accepts dtype and requires_grad, and arguments by position", function()
    local y = windows.gaussian(4, 2, true, moth.float64, nil, true)
    assert.equal(moth.float64, y.dtype)
    assert.is_true(y.requires_grad)
    assert.equal(moth.float32, windows.hann(4).dtype)
  end)

  it("raises for values out of range", function()
    assert.error_matches(function() windows.hann(-1) end,
      "bad argument 'M' to 'hann' (a number from 0 is needed, got -1)", 1, true)
    assert.error_matches(function() windows.gaussian(4, 0) end,
      "bad argument 'std' to 'gaussian' (a number above 0 is needed, got 0)", 1, true)
    assert.error_matches(function() windows.exponential(4, { tau = -1 }) end,
      "bad argument 'tau' to 'exponential' (a number above 0 is needed, got -1)", 1, true)
    assert.error_matches(function() windows.kaiser(4, -1) end,
      "bad argument 'beta' to 'kaiser' (a number from 0 is needed, got -1)", 1, true)
    assert.error_matches(function() windows.general_cosine(4) end,
      "bad argument 'a' to 'general_cosine'", 1, true)
  end)
end)
