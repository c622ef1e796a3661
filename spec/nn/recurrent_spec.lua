-- Recurrent modules: arguments, results and states. The registry's specs check their ops.

local moth = require "moth"
local process = require "spec.support.process"
local nn = moth.nn

local function near(a, b, tolerance)
  assert.equal(tostring(b.shape), tostring(a.shape))
  assert.is_true((a - b):abs():max():item() <= (tolerance or 1e-6))
end

local function refuses(fn, text)
  local ok, message = pcall(fn)
  assert.is_false(ok)
  assert.matches(text, message, 1, true)
end

local kinds = {RNN = 1, LSTM = 2, GRU = 1}

describe("a recurrent module", function()
  it("has PyTorch's parameters by name, shape and order", function()
    local names, shapes = {}, {}
    local lstm = nn.LSTM{3, 5, num_layers = 2, bidirectional = true}
    for name, p in lstm:named_parameters() do
      names[#names + 1], shapes[name] = name, tostring(p.shape)
    end
    assert.same({
      "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_ih_l0_reverse",
      "weight_hh_l0_reverse", "bias_ih_l0_reverse", "bias_hh_l0_reverse", "weight_ih_l1",
      "weight_hh_l1", "bias_ih_l1", "bias_hh_l1", "weight_ih_l1_reverse", "weight_hh_l1_reverse",
      "bias_ih_l1_reverse", "bias_hh_l1_reverse"}, names)
    assert.equal("(20, 3)", shapes.weight_ih_l0)
    assert.equal("(20, 10)", shapes.weight_ih_l1)
    assert.equal("LSTM(3, 5, num_layers=2, bidirectional=true)", tostring(lstm))
    assert.equal(4, #nn.GRU(3, 5, {num_layers = 2, bias = false}):parameters())
    assert.equal("RNNCell(3, 5, bias=false, nonlinearity=relu)",
      tostring(nn.RNNCell(3, 5, false, "relu")))
    for _, p in ipairs(lstm:parameters()) do
      assert.is_true(p:abs():max():item() <= 1 / math.sqrt(5))
    end
  end)

  for name, states in pairs(kinds) do
    it("returns output and last state: " .. name, function()
      local net = nn[name](3, 5, {num_layers = 2})
      local out, last = net(moth.randn(4, 2, 3))
      assert.equal("(4, 2, 5)", tostring(out.shape))
      for _, x in ipairs(states == 2 and last or {last}) do
        assert.equal("(2, 2, 5)", tostring(x.shape))
      end
    end)

    it("continues from a state: " .. name, function()
      local net, x = nn[name](3, 5, {num_layers = 2}), moth.randn(6, 2, 3)
      local whole = net(x)
      local first, state = net(x:narrow(1, 1, 2))
      local second = net(x:narrow(1, 3, 4), state)
      near(moth.cat({first, second}, 1), whole)
    end)

    it("equals its cell step by step: " .. name, function()
      local net, cell, x = nn[name](3, 5), nn[name .. "Cell"](3, 5), moth.randn(4, 2, 3)
      for _, part in ipairs {"weight_ih", "weight_hh", "bias_ih", "bias_hh"} do
        cell[part] = net[part .. "_l0"]
      end
      local state, out = nil, {}
      for t = 1, 4 do
        if states == 2 then state = {cell(x[t], state)} else state = cell(x[t], state) end
        out[t] = states == 2 and state[1] or state
      end
      near(moth.stack(out), (net(x)))
      local h = cell(x[1][1])
      near(h, out[1][1])
    end)

    it("accepts a sequence without a batch, and batches first: " .. name, function()
      local net, x = nn[name]{3, 5, bidirectional = true}, moth.randn(4, 3)
      local out, state = net(x)
      local batched = net(x:unsqueeze(2))
      near(out, batched:squeeze(2))
      assert.equal("(2, 5)", tostring((states == 2 and state[1] or state).shape))
      net.batch_first = true
      near((net(x)), out)
      near((net(x:unsqueeze(1)):squeeze(1)), out)
    end)

    it("has the right gradient if its steps exceed the cache: " .. name, function()
      local net = nn[name]{6, 128, bidirectional = true, dtype = moth.float64}
      local x = {}
      for i = 1, 32 do x[i] = moth.randn(42 + i % 7, 6, {dtype = moth.float64}) end
      x[1]:requires_grad_()
      local packed = nn.utils.rnn.pack_sequence(x, {enforce_sorted = false})
      local out, last = net(packed)
      local loss = out.data:pow(3):sum() + (states == 2 and last[2] or last):pow(3):sum()
      local wanted = net:parameters()
      wanted[#wanted + 1] = x[1]
      local fused = {moth.autograd.grad(loss, wanted, {retain_graph = true})}
      local replayed = {moth.autograd.grad(loss, wanted, {create_graph = true})}
      for i, y in ipairs(replayed) do near(fused[i], y, 1e-12 * y:abs():max():item()) end
    end)

    it("accepts a packed sequence of many steps: " .. name, function()
      local rnn = nn.utils.rnn
      local net = nn[name](2, 3)
      local x = {moth.randn(150, 2), moth.randn(70, 2)}
      local out = rnn.pad_packed_sequence((net(rnn.pack_sequence(x))))
      for i = 1, 2 do near(out:select(2, i):narrow(1, 1, #x[i]), net(x[i]), 1e-6) end
    end)

    it("ignores padding in a packed sequence: " .. name, function()
      local rnn = nn.utils.rnn
      local net = nn[name](3, 5, {num_layers = 2, bidirectional = true, dtype = moth.float64})
      local x = {moth.randn(2, 3):double(), moth.randn(4, 3):double(), moth.randn(3, 3):double()}
      for i = 1, 3 do x[i]:requires_grad_() end
      local packed = rnn.pack_sequence(x, {enforce_sorted = false})
      local out, last = net(packed)
      local padded, lengths = rnn.pad_packed_sequence(out)
      assert.same({2, 4, 3}, lengths:tolist())
      assert.equal(0, padded[3][1]:abs():sum():item())
      padded:square():sum():backward()
      for i = 1, 3 do
        local alone = x[i]:detach():requires_grad_()
        local y, state = net(alone)
        near(padded:select(2, i):narrow(1, 1, y:size(1)), y, 1e-12)
        near((states == 2 and last[2] or last):select(2, i), states == 2 and state[2] or state,
          1e-12)
        y:square():sum():backward()
        near(x[i].grad, alone.grad, 1e-12)
      end
    end)
  end

  it("applies dropout between layers in training, repeatably", function()
    local net, x = nn.GRU{3, 5, num_layers = 2, dropout = 0.5}, moth.randn(4, 2, 3)
    local function run()
      moth.manual_seed(3)
      return (net(x))
    end
    local once = run()
    near(run(), once, 0)
    net:eval()
    local quiet = net(x)
    near((net(x)), quiet, 0)
    assert.is_true((quiet - once):abs():max():item() > 1e-3)
    net:train()
    net.dropout = 1 -- the second layer sees zeros only
    net:zero_grad()
    net(x):sum():backward()
    assert.equal(0, net.weight_ih_l0.grad:abs():sum():item())
    assert.is_true(net.weight_hh_l1.grad:abs():sum():item() > 0)
  end)

  it("has second derivatives if its state depends on its input", function()
    local lstm = nn.LSTM{2, 2, bidirectional = true, dtype = moth.float64}
    local x = moth.randn(2, 3, 2):double():transpose(1, 2):requires_grad_()
    local function f(y)
      local h = y:narrow(1, 1, 2)
      return (lstm(y, {h, h:tanh()}))
    end
    moth.autograd.gradcheck(f, {x})
    moth.autograd.gradgradcheck(f, {x})
  end)

  it("accepts an empty batch, and raises for a sequence without steps", function()
    local net = nn.LSTM(3, 5)
    local out = net(moth.randn(4, 0, 3))
    assert.equal("(4, 0, 5)", tostring(out.shape))
    out:sum():backward()
    assert.equal(0, net.weight_hh_l0.grad:abs():sum():item())
    refuses(function() net(moth.randn(0, 2, 3)) end, "at least one step is needed")
  end)

  it("works in half precision", function()
    local net = nn.LSTM(3, 5, {num_layers = 2})
    local x = moth.randn(4, 2, 3)
    local full = net(x)
    net:half()
    local out = net(x:half())
    assert.equal(moth.float16, out.dtype)
    near(out:float(), full, 5e-3)
    out:float():sum():backward()
    assert.equal(moth.float16, net.weight_ih_l0.grad.dtype)
  end)

  it("names the wrong argument", function()
    local lstm = nn.LSTM(3, 5)
    local x = moth.randn(4, 2, 3)
    refuses(function() lstm(moth.randn(4, 2, 7)) end, "3 features are needed")
    refuses(function() lstm(x, moth.zeros(1, 2, 5)) end, "a table of two tensors, {h, c}")
    refuses(function() lstm(x, {moth.zeros(1, 3, 5), moth.zeros(1, 3, 5)}) end,
      "(1, 2, 5) is needed for f32 (4, 2, 3), got f32 (1, 3, 5)")
    refuses(function()
      moth.gru(x, moth.zeros(2, 2, 5), {moth.ones(15, 3), moth.ones(15, 5), moth.ones(15, 4),
        moth.ones(15, 5)}, false, 2)
    end, "weight_ih of layer 2 is f32 (15, 4), but (15, 5) is needed")
    refuses(function() nn.GRU(3, 0) end, "'hidden_size'")
    local weights = {moth.ones(15, 3), moth.ones(15, 5)}
    for batch, sizes in pairs {[0] = {1}, [2] = {2, 0, 0, 0}, [3] = {3, 1, 2, 1}} do
      refuses(function()
        moth.gru(moth.ones(4, batch, 3), moth.zeros(1, batch, 5), weights,
          {has_biases = false, batch_sizes = sizes})
      end, "'batch_sizes'")
    end
    refuses(function()
      nn.utils.rnn.pack_padded_sequence(x, {2, 3})
    end, "enforce_sorted = false")
  end)
end)

describe("recurrent results", function()
  it("have the same bits for any number of threads, at every level of instructions", function()
    for _, level in ipairs { "", "avx2", "plain" } do
      local text = process.lua(([[
        local ffi = require "ffi"
        ffi.cdef "int setenv(const char *name, const char *value, int overwrite);"
        ffi.C.setenv("MOTH_SPLIT", "1", 1) -- before any op
        if "%s" ~= "" then ffi.C.setenv("MOTH_ISA", "%s", 1) end
        local moth = require "moth"
        local function results(net, x)
          for _, p in ipairs(net:parameters()) do p.grad = nil end
          x.grad = nil
          local y = net(x)
          y:pow(3):sum():backward()
          local all = { y, x.grad }
          for _, p in ipairs(net:parameters()) do all[#all + 1] = p.grad end
          return all
        end
        for _, shape in ipairs { { 8, 3 }, { 8, 7 }, { 70, 65 }, { 7, 130 } } do
          for _, kind in ipairs { "RNN", "LSTM", "GRU" } do
            for _, dtype in ipairs { moth.float32, moth.float64 } do
              local net = moth.nn[kind](5, shape[2]):to(dtype)
              local x = moth.randn({ 3, shape[1], 5 }, { dtype = dtype, requires_grad = true })
              moth.set_num_threads(1)
              local first = results(net, x)
              for n = 2, 4 do
                moth.set_num_threads(n)
                for i, y in ipairs(results(net, x)) do
                  assert(moth.equal(y, first[i]), ("%%s %%d %%d %%d"):format(kind, shape[1], n, i))
                end
              end
            end
          end
        end]]):format(level, level))
      assert.equal("rc=0\n", text, level)
    end
  end)
end)

describe("a state that is moth.none", function()
  it("is the zero state, in layers and cells", function()
    local x = moth.randn(2, 1, 3)
    for _, kind in ipairs {"RNN", "LSTM", "GRU"} do
      local layer, cell = nn[kind](3, 4), nn[kind .. "Cell"](3, 4)
      near((layer(x, moth.none)), (layer(x)), 0)
      near((layer {x, hx = moth.none}), (layer(x)), 0)
      near((cell(x[1], moth.none)), (cell(x[1])), 0)
      near((cell {x[1], hx = moth.none}), (cell(x[1])), 0)
      local packed = nn.utils.rnn.pack_sequence({x:squeeze(2)})
      near((layer(packed, moth.none)).data, (layer(packed)).data, 0)
    end
  end)

  it("does not count as a part of a state in errors", function()
    local lstm, x, h = nn.LSTM(3, 4), moth.randn(2, 1, 3), moth.zeros(1, 1, 4)
    assert.has_error_like(function() lstm {x, hx = {h}} end,
      "two tensors, {h, c}, is needed, got a table of 1, {")
    assert.has_error_like(function() lstm {x, hx = {h, 3}} end, "got a table of 2, {.*, 3}")
    local wide = moth.zeros(1, 1, 5)
    assert.has_error_like(function() lstm(x, {wide, wide}) end,
      "'hx' to 'lstm' %(%(1, 1, 4%) is needed for f32 %(2, 1, 3%), got f32 %(1, 1, 5%)")
    assert.has_error_like(function() nn.GRUCell(3, 4)(x[1], wide[1]) end,
      "'hx' to 'gru_cell' %(%(1, 4%) is needed for f32 %(1, 3%), got f32 %(1, 5%)")
  end)
end)

describe("padding", function()
  it("makes one tensor of sequences and splits it again", function()
    local rnn = nn.utils.rnn
    local x = {moth.ones(2, 2), moth.ones(3, 2)}
    local padded = rnn.pad_sequence(x, {batch_first = true, padding_value = -1})
    assert.same({{{1, 1}, {1, 1}, {-1, -1}}, {{1, 1}, {1, 1}, {1, 1}}}, padded:tolist())
    assert.same({{-1, -1}, {1, 1}, {1, 1}},
      rnn.pad_sequence(x, true, -1, "left")[1]:tolist())
    local list = rnn.unpad_sequence(padded, {2, 3}, true)
    near(list[1], x[1], 0)
    near(list[2], x[2], 0)
    local packed = rnn.pack_padded_sequence(padded, {2, 3}, true, false)
    assert.same({2, 2, 1}, packed.batch_sizes:tolist())
    local again, lengths = rnn.pad_packed_sequence(packed, true, -1, 4)
    assert.equal("(2, 4, 2)", tostring(again.shape))
    near(again:narrow(2, 1, 3), padded, 0)
    assert.same({2, 3}, lengths:tolist())
  end)
end)

describe("a recurrent op names the weight that does not fit", function()
  local ops = require("moth.binding.bind").ops
  local fails = require("spec.support.refusals").fails
  local gates = {rnn_tanh = 1, rnn_relu = 1, gru = 3, lstm = 4}

  -- The shapes of layer 1, by position in params: at `k`, `shape`. Features of the input, 2 by the
  -- weights. The message.
  local rows = {
    {0, {}, 5, "'input' to '%s' (2 features are needed, got 5"},
    {1, {4, 2}, 5, "'params' to '%s' (weight_ih of layer 1 is f32 (G + 1, 2), but (G, 5) is"},
    {1, {4, 2}, 2, "'params' to '%s' (weight_ih of layer 1 is f32 (G + 1, 2), but (G, 2) is"},
    {1, {3, 2, 1}, 5, "'params' to '%s' (weight_ih of layer 1 is f32 (G, 2, 1), but (G, 5) is"},
    {1, {3}, 2, "'params' to '%s' (weight_ih of layer 1 is f32 (G), but (G, 2) is needed"},
    {2, {3, 2}, 2, "'params' to '%s' (weight_hh of layer 1 is f32 (G, 2), but (G, 3) is needed"},
    {2, {4, 3}, 2, "'params' to '%s' (weight_hh of layer 1 is f32 (G + 1, 3), but (G, 3) is"},
    {3, {4}, 2, "'params' to '%s' (bias_ih of layer 1 is f32 (G + 1), but (G) is needed"},
    {4, {3, 1}, 2, "'params' to '%s' (bias_hh of layer 1 is f32 (G, 1), but (G) is needed"},
  }
  for name, n in pairs(gates) do
    for i, row in ipairs(rows) do
      it(("%s, row %d"):format(name, i), function()
        local shapes = {{3, 2}, {3, 3}, {3}, {3}}
        if row[1] > 0 then shapes[row[1]] = row[2] end
        local params = {}
        for k, shape in ipairs(shapes) do
          local list = {unpack(shape)}
          list[1] = shape[1] == 4 and n * 3 + 1 or n * 3
          params[k] = moth.randn(list)
        end
        local h = moth.randn(1, 1, 3)
        local text = row[4]:format(name):gsub("G %+ 1", n * 3 + 1):gsub("G", n * 3)
        fails(text, ops[name], moth.randn(4, 1, row[3]), name == "lstm" and {h, h} or h, params)
      end)
    end
  end
end)
