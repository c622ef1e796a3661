-- Invalid arguments: sizes beyond the memory raise before any allocation, messages name the
-- function and the argument that the user wrote, and nothing is changed.

local moth = require "moth"
local nn, L = moth.nn, moth.linalg
local T = moth.tensor

local function message(f, ...)
  local ok, why = pcall(f, ...)
  assert(not ok, "computed")
  return why
end

local function says(wanted, f, ...)
  local why = message(f, ...)
  assert(why:find(wanted, 1, true), why)
  assert(not why:find("attempt to", 1, true), why)
  return why
end

local function quickly(f)
  local before = os.clock()
  f()
  assert(os.clock() - before < 1, "it took " .. os.clock() - before .. " s")
end

describe("a length beyond the memory", function()
  for _, name in ipairs { "hann_window", "hamming_window", "blackman_window", "bartlett_window",
                          "kaiser_window" } do
    it("raises at once in " .. name, function()
      quickly(function()
        says(name, moth[name], 2 ^ 52)
        says(name, moth[name], 2 ^ 45)
      end)
    end)
  end

  for _, name in ipairs { "fftfreq", "rfftfreq" } do
    it("raises at once in " .. name, function()
      quickly(function()
        says(name, moth.fft[name], 2 ^ 52)
        says(name, moth.fft[name], 2 ^ 45)
      end)
    end)
  end

  it("raises at once in moth.signal.windows", function()
    quickly(function()
      says("hann", moth.signal.windows.hann, 2 ^ 45)
      says("kaiser", moth.signal.windows.kaiser, 2 ^ 45)
    end)
  end)

  it("or a number of parts raises before the parts are made", function()
    quickly(function()
      says("bad argument 'indices_or_sections' to 'tensor_split'", moth.tensor_split,
        moth.rand(3), 2 ^ 40)
      says("bad argument 'p' to 'mvlgamma'", moth.mvlgamma, moth.rand(3), 2 ^ 40)
      says("bad argument 'num_layers' to 'LSTM'", nn.LSTM, 3, 3, 2 ^ 40)
      says("bad argument 'num_encoder_layers' to 'Transformer'", nn.Transformer, 8, 2, 2 ^ 40)
    end)
  end)

  it("does not affect usual lengths", function()
    local list = moth.hann_window(5, { dtype = moth.float64 }):tolist()
    for k, wanted in ipairs { 0, 0.3454915028125263, 0.9045084971874737, 0.9045084971874737,
                              0.3454915028125263 } do
      assert(math.abs(list[k] - wanted) < 1e-15)
    end
    assert.same({ 0, 0.25, -0.5, -0.25 }, moth.fft.fftfreq(4):tolist())
    assert.same({ 0, 0.2, 0.4, -0.4, -0.2 }, moth.fft.fftfreq(5, { dtype = moth.float64 })
      :tolist())
    assert.same({ 0, 0.25, 0.5 }, moth.fft.rfftfreq(4):tolist())
    assert.same({ 0 }, { unpack(moth.hann_window(0).shape) })
    assert.same({ 1 }, moth.hann_window(1):tolist())
    local long = moth.hann_window(200001, { requires_grad = true, dtype = moth.float64 })
    assert(long.requires_grad)
    assert(math.abs(long:detach()[100001]:item() - 1) < 1e-9)
  end)
end)

describe("a layer beyond the memory", function()
  it("is named with its arguments and its size", function()
    local why = says("bad arguments to 'Linear'", nn.Linear, 2 ^ 31, 2 ^ 31)
    for _, text in ipairs { "in_features = 2147483648", "out_features = 2147483648",
                            "18446744073709551616 bytes" } do
      assert(why:find(text, 1, true), why)
    end
    says("bad arguments to 'Linear'", nn.Linear, 2 ^ 40, 3)
    says("bad arguments to 'Conv2d'", nn.Conv2d, 3, 3, 2 ^ 40)
    says("bad arguments to 'Embedding'", nn.Embedding, 2 ^ 40, 2 ^ 40)
    says("bad arguments to 'LSTM'", nn.LSTM, 2 ^ 40, 2 ^ 30)
    says("bad arguments to 'BatchNorm1d'", nn.BatchNorm1d, 2 ^ 50)
    says("bad arguments to 'TransformerEncoderLayer'", nn.TransformerEncoderLayer, 2 ^ 40, 1)
  end)

  it("is named, not the user's module around it", function()
    local Net = nn.class("Net", nn.Module)
    function Net:init(n) self.part = nn.Linear(n, n) end
    says("bad arguments to 'Linear'", Net, 2 ^ 31)
  end)

  it("raises at a memory limit, too", function()
    moth.set_memory_limit(moth.memory().live_bytes + 2 ^ 20)
    local ok, why = pcall(nn.Linear, 1024, 1024)
    moth.set_memory_limit(0)
    assert(not ok and why:find("bad arguments to 'Linear' (in_features = 1024", 1, true), why)
  end)

  it("whose argument is a tensor has the tensor's message", function()
    says("bad argument 'size' to 'empty'", moth.empty, 2 ^ 40, 2 ^ 40)
  end)
end)

describe("a write without memory for its result", function()
  it("does not change the version of the tensor", function()
    local x = moth.zeros(100, 100)
    local at = { moth.randint(1, 101, { 50000 }), moth.randint(1, 101, { 50000 }) }
    local values, square = moth.rand(50000), moth.rand(100, 100)
    moth.collect()
    local before = x._version
    moth.set_memory_limit(moth.memory().live_bytes + 1000)
    local calls = {
      function() x:index_put_(at, values) end,
      function() x:index_put_(at, values, true) end,
      function() x:scatter_(1, at[1]:view(500, 100), values:view(500, 100)) end,
      function() x:scatter_add_(1, at[1]:narrow(1, 1, 10000):view(100, 100), square) end,
      function() x:copy_(x:t()) end,
    }
    local refused = 0
    for _, call in ipairs(calls) do
      if not pcall(call) then refused = refused + 1 end
    end
    moth.set_memory_limit(0)
    assert.equal(#calls, refused)
    assert.equal(before, x._version)
    assert.equal(0, x:sum():item())
    calls[1]()
    assert.equal(before + 1, x._version)
  end)
end)

describe("an argument of another type", function()
  it("raises an error about the argument", function()
    says("bad argument 'B' to 'tensorsolve'", L.tensorsolve, T(1), moth.ones(2, 2):bool(), 3)
    says("bad argument 'dims' to 'tensorsolve'", L.tensorsolve, moth.eye(3), moth.ones(3), 4)
    says("bad argument 'n' to 'laguerre_polynomial_l'", moth.special.laguerre_polynomial_l,
      moth.rand(2), false)
    says("bad argument 'input' to 'hermite_polynomial_h'", moth.special.hermite_polynomial_h, true,
      moth.tensor { 1LL })
    local y = moth.special.legendre_polynomial_p(T { 0.5 }, 2LL) -- an int64 is a number
    assert(math.abs(y:item() + 0.125) < 1e-6)
  end)

  it("raises with the name of the function", function()
    local x = moth.rand(2, 3)
    says("bad argument 'range' to 'histogram'", moth.histogram, x, 4, { range = true })
    says("bad argument 'range' to 'histogram'", moth.histogram, x, 4, { range = 3 })
    says("bad argument 'atol' to 'matrix_rank'", L.matrix_rank, x, { atol = true })
    says("bad argument 'std' to 'normal'", moth.normal, 0, false, { 2 })
    says("bad argument 'zero_point'", moth.fake_quantize_per_tensor_affine, x, 0.1,
      T(true), 0, 255)
    says("bad argument 'parameter_and_buffer_dicts' to 'functional_call'",
      moth.func.functional_call, nn.Linear(2, 2), { 3 }, x)
    says("bad argument 'parameters' to 'global_unstructured'", nn.utils.prune.global_unstructured,
      { 1, 2 }, nn.utils.prune.l1_unstructured, 0.5)
    says("bad argument 'distance_function'", nn.functional.triplet_margin_with_distance_loss, x, x,
      x, { distance_function = function() end })
    assert.same({ 0.46, 0.46, 0.46 }, moth.signal.windows.general_cosine(3, 0.46,
      { dtype = moth.float64 }):tolist())
  end)

  it("makes a Kaiser window, not an endless loop", function()
    says("bad argument 'beta' to 'kaiser_window'", moth.kaiser_window, 4, { beta = 0 / 0 })
    says("bad argument 'beta' to 'kaiser_window'", moth.kaiser_window, 4, { beta = math.huge })
    local list = moth.kaiser_window(5, false, { beta = 1e6, dtype = moth.float64 }):tolist()
    assert.equal(1, list[3])
    assert(list[2] < 1e-300)
    for _, row in ipairs { { 12, 5.27734413201e-5, 0.215672744759 },
                           { 60, 1.69661847065e-25, 3.46985694198e-4 } } do
      list = moth.kaiser_window(5, false, { beta = row[1], dtype = moth.float64 }):tolist()
      assert(math.abs(list[1] / row[2] - 1) < 1e-11, list[1])
      assert(math.abs(list[2] / row[3] - 1) < 1e-11, list[2])
    end
  end)

  it("is named in define", function()
    says("bad argument 'record' to 'define'", moth.define)
    says("bad argument 'name' to 'define'", moth.define, {})
    says("bad argument 'args' to 'define'", moth.define, { name = "mine" })
    says("bad argument 'args' to 'define'", moth.define, { name = "mine", args = 3 })
  end)

  it("in the place of a dimension is named before a missing later argument", function()
    local x = moth.rand(2)
    says("bad argument 'dim' to 'gather'", x.gather, x, "x")
    says("bad argument 'dim' to 'index_select'", x.index_select, x, "x", T { 1LL })
    says("bad argument 'dim' to 'index_select'", x.index_select, x, "x")
    says("bad argument 'dim' to 'index_add'", x.index_add, x, "x")
    says("bad argument 'dim' to 'scatter'", x.scatter, x, "x")
    says("bad argument 'index' to 'gather'", x.gather, x, 1)
    says("bad argument 'dim' to 'gather'", x.gather, x)
  end)
end)

describe("named arguments", function()
  it("after a state dict in one table raise and name their right place", function()
    local net = nn.Linear(2, 2)
    local why = says("bad argument 'state_dict' to 'load_state_dict'", function()
      net:load_state_dict { net:state_dict(), strict = false }
    end)
    assert(why:find("net:load_state_dict(dict, {strict = false})", 1, true), why)
    net:load_state_dict({ weight = moth.ones(2, 2) }, { strict = false })
    assert.equal(4, net.weight:sum():item())
  end)

  it("after one list of data raise and name their right place", function()
    local why = says("bad argument 'data' to 'tensor'", function()
      return moth.tensor { { 1, 2 }, dtype = moth.float64 }
    end)
    assert(why:find("moth.tensor(list, {...})", 1, true), why)
    assert.same({ 2 }, { unpack(moth.tensor { 1, 2, dtype = moth.float64 }.shape) })
    assert.same({ 2, 1 }, { unpack(moth.tensor { { 1 }, { 2 }, dtype = moth.float64 }.shape) })
    assert.same({ 1, 2 }, { unpack(moth.tensor { { 1, 2 } }.shape) })
    assert.same({ 1, 2 }, { unpack(moth.tensor({ { 1, 2 } }, { dtype = moth.float64 }).shape) })
  end)
end)
