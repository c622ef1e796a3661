-- Tensors as text.

local moth = require "moth"

local function shows(expected, x) assert.equal(expected, tostring(x)) end

describe("print", function()
  after_each(function() moth.set_printoptions{ profile = "default" } end)

  it("shows a 0-d tensor as its number", function()
    shows("3 [moth.float32]", moth.tensor(3))
    shows("2.5 [moth.float32]", moth.tensor(2.5))
    shows("-0.3333 [moth.float64]", moth.tensor(-1 / 3, { dtype = moth.float64 }))
    shows("true [moth.bool]", moth.tensor(true))
    shows("7 [moth.int64]", moth.tensor(7LL))
    shows("nan [moth.float32]", moth.tensor(0 / 0))
    shows("inf [moth.float32]", moth.tensor(math.huge))
    shows("-inf [moth.float32]", moth.tensor(-math.huge))
  end)

  it("writes integers without a point, others with four digits", function()
    shows("{1, 2, 3}\n[moth.float32 of size 3]", moth.tensor{ 1, 2, 3 })
    shows("{1.0000, 2.5000}\n[moth.float32 of size 2]", moth.tensor{ 1, 2.5 })
    shows("{{ 1.0000,  2.5000},\n {-3.0000,  4.0000}}\n[moth.float32 of size 2x2]",
      moth.tensor{ { 1, 2.5 }, { -3, 4 } })
    shows("{ 1, -1,  0}\n[moth.int64 of size 3]", moth.tensor{ 1LL, -1LL, 0LL })
  end)

  it("writes sizes in full", function()
    local x = moth.zeros(2 ^ 50, 0)
    shows("{}\n[moth.float32 of size 1125899906842624x0]", x)
    assert.equal("(1125899906842624, 0)", tostring(x.shape))
  end)

  it("writes powers of ten if magnitudes differ much", function()
    assert.matches("1%.0000e%-08, 1%.0000e%+00", tostring(moth.tensor{ 1e-8, 1 }))
    assert.matches("1%.0000e%+10", tostring(moth.tensor{ 1e10, 1 }))
    assert.matches("1%.0000e%-06", tostring(moth.tensor{ 1e-6 }))
    moth.set_printoptions{ sci_mode = true }
    assert.matches("1%.0000e%+00, 2%.0000e%+00", tostring(moth.tensor{ 1, 2 }))
    moth.set_printoptions{ sci_mode = false }
    assert.matches("0%.0000, 1%.0000", tostring(moth.tensor{ 1e-8, 1 }))
  end)

  it("aligns nan and inf with numbers", function()
    shows("{1.5000,    nan,    inf,   -inf}\n[moth.float32 of size 4]",
      moth.tensor{ 1.5, 0 / 0, math.huge, -math.huge })
    shows("{nan, nan}\n[moth.float32 of size 2]", moth.tensor{ 0 / 0, 0 / 0 })
    shows("{  1, nan}\n[moth.float32 of size 2]", moth.tensor{ 1, 0 / 0 })
  end)

  it("keeps all bits of int64", function()
    shows("{ 9223372036854775807, -9223372036854775808}\n[moth.int64 of size 2]",
      moth.tensor{ 0x7fffffffffffffffLL, -0x8000000000000000LL })
    shows("9007199254740993 [moth.int64]", moth.tensor(9007199254740993LL))
  end)

  it("shows booleans as Lua does", function()
    shows("{ true, false}\n[moth.bool of size 2]", moth.tensor{ true, false })
  end)

  it("shows the half types by their values", function()
    shows("{0.3333, 2.0000}\n[moth.float16 of size 2]",
      moth.tensor({ 1 / 3, 2 }, { dtype = moth.float16 }))
    shows("{0.3340, 2.0000}\n[moth.bfloat16 of size 2]",
      moth.tensor({ 1 / 3, 2 }, { dtype = moth.bfloat16 }))
    shows("{  1, 255}\n[moth.uint8 of size 2]",
      moth.tensor({ 1, 255 }, { dtype = moth.uint8 }))
  end)

  it("shows empty tensors by their size", function()
    shows("{}\n[moth.float32 of size 0]", moth.zeros(0))
    shows("{}\n[moth.float32 of size 2x0x3]", moth.zeros(2, 0, 3))
  end)

  it("separates blocks of more than two dims by an empty line", function()
    shows("{{{0, 1},\n  {2, 3}},\n\n {{4, 5},\n  {6, 7}}}\n[moth.int64 of size 2x2x2]",
      moth.arange(8):view(2, 2, 2))
  end)

  it("leaves out the middle above a thousand elements", function()
    local text = tostring(moth.arange(1001))
    assert.matches("^{   0,    1,    2, ...,  998,  999, 1000}\n%[moth.int64 of size 1001%]$", text)
    text = tostring(moth.zeros(1000, 1000))
    assert.is_true(#text < 400, text)
    assert.matches("moth.float32 of size 1000x1000", text)
    local _, rows = tostring(moth.zeros(50, 50)):gsub("{0", "")
    assert.equal(6, rows)
    assert.is_nil(tostring(moth.arange(1000)):find("...", 1, true))
  end)

  it("reads only the elements that it shows", function()
    local start = os.clock()
    local text = tostring(moth.zeros(1):expand(1000000, 1000000))
    assert.is_true(os.clock() - start < 1)
    assert.matches("1000000x1000000", text)
  end)

  it("wraps long rows at the line width", function()
    for line in tostring(moth.arange(200):mul(1000)):gmatch("[^\n]+") do
      assert.is_true(#line <= 80, line)
    end
    moth.set_printoptions{ linewidth = 40 }
    for line in tostring(moth.arange(200)):gmatch("[^\n]+") do
      assert.is_true(#line <= 40, line)
    end
  end)

  it("shows grad_fn and requires_grad", function()
    local x = moth.ones(2):requires_grad_()
    shows("{1, 1}\n[moth.float32 of size 2, requires_grad]", x)
    shows("{2, 2}\n[moth.float32 of size 2, grad_fn=<Mul>]", x * 2)
    assert.equal("<Mul>", tostring((x * 2).grad_fn))
    assert.is_nil(x.grad_fn)
    assert.matches("grad_fn=<LogSoftmax>", tostring((x * 1):log_softmax(1)))
  end)

  it("shows views, transposed and strided, with their values", function()
    local x = moth.arange(6):view(2, 3)
    shows("{{0, 3},\n {1, 4},\n {2, 5}}\n[moth.int64 of size 3x2]", x:t())
    shows("{0, 3}\n[moth.int64 of size 2]", x[{ {}, 1 }])
    shows("{7, 7, 7}\n[moth.float32 of size 3]", moth.full({ 1 }, 7):expand(3))
  end)

  it("accepts options and raises for unknown ones", function()
    moth.set_printoptions{ precision = 2 }
    shows("{1.00, 2.50}\n[moth.float32 of size 2]", moth.tensor{ 1, 2.5 })
    moth.set_printoptions{ threshold = 3, edgeitems = 1 }
    shows("{0, ..., 3}\n[moth.int64 of size 4]", moth.arange(4))
    moth.set_printoptions{ profile = "default" }
    shows("{1.0000, 2.5000}\n[moth.float32 of size 2]", moth.tensor{ 1, 2.5 })
    assert.has_error_like(function() moth.set_printoptions{ precison = 2 } end,
      "did you mean 'precision'%?")
    assert.has_error_like(function() moth.set_printoptions{ precision = -1 } end, "'precision'")
    assert.has_error_like(function() moth.set_printoptions{ profile = "long" } end, "'profile'")
    assert.has_error_like(function() moth.set_printoptions(3) end, "got 3")
  end)

  it("can write text that creates the tensor again", function()
    local x = moth.tensor{ { 1, 2.5 }, { -3, 4 } }
    local data = loadstring("return " .. tostring(x):match("^(.-)\n%["))()
    assert.same(x:tolist(), data)
  end)

  it("is concatenated with strings", function()
    assert.equal("x = 3 [moth.float32]!", "x = " .. moth.tensor(3) .. "!")
  end)
end)

describe("a Size", function()
  it("prints, compares and multiplies", function()
    local size = moth.zeros(2, 3).shape
    assert.equal("(2, 3)", tostring(size))
    assert.equal("()", tostring(moth.tensor(1).shape))
    assert.equal("shape (2, 3)", "shape " .. size)
    assert.is_true(size == moth.Size{ 2, 3 })
    assert.is_true(size == moth.Size(2, 3))
    assert.is_false(size == moth.Size{ 3, 2 })
    assert.is_false(size == moth.Size{ 2, 3, 1 })
    assert.equal(6, size:numel())
    assert.equal(1, moth.Size{}:numel())
    assert.equal(2, #size)
    assert.same({ 2, 3 }, { unpack(size) })
    assert.has_error_like(function() moth.Size{ 1.5 } end, "integers are needed, got 1.5")
  end)

  it("is new each time: changing it changes no tensor", function()
    local x = moth.zeros(2, 3)
    x.shape[1] = 7
    assert.equal(2, x.shape[1])
  end)
end)
