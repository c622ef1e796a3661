--- Cases: inputs at the boundary between valid and invalid: entries of files that overlap by one
-- byte, NaN as a bound, the second of two symmetric arguments, and captured steps whose operands
-- overlap in part.

local moth = require "moth"
local files = require "spec.support.files"
local forms = require "spec.support.forms"
local registry = require "spec.support.registry"

local nn, F = moth.nn, moth.nn.functional
local NAN = 0 / 0

setup(files.setup)
teardown(files.teardown)

local function refuses(fn, pattern)
  local ok, message = pcall(fn)
  assert.is_false(ok, "was taken")
  assert.has_match(pattern, message)
end

-- A safetensors file of uint8 tensors at these offsets.
local function safetensors(entries, size)
  local list = {}
  for i, e in ipairs(entries) do
    list[i] = ('"%s":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}')
      :format(e[1], e[3] - e[2], e[2], e[3])
  end
  local header = "{" .. table.concat(list, ",") .. "}"
  local length = string.char(#header % 256, math.floor(#header / 256)) .. ("\0"):rep(6)
  return length .. header .. ("x"):rep(size)
end

describe("entries of a safetensors file", function()
  local cases = {
    {"that overlap by one byte", {{"a", 0, 4}, {"b", 3, 6}}, 6,
      "'b' overlaps tensor 'a' at byte 3"},
    {"that overlap by one byte, the later one first", {{"b", 3, 6}, {"a", 0, 4}}, 6, "overlaps"},
    {"of which the third overlaps the second by one byte",
      {{"a", 0, 2}, {"b", 2, 4}, {"c", 3, 6}}, 6, "'c' overlaps tensor 'b' at byte 3"},
    {"with one byte between them", {{"a", 0, 3}, {"b", 4, 6}}, 6, "a hole before tensor 'b'"},
    {"of which one lies inside another", {{"a", 0, 6}, {"b", 2, 3}}, 6, "overlaps"},
    {"that end one byte after the data", {{"a", 0, 3}, {"b", 3, 7}}, 6, "ends at byte 7"},
    {"that end one byte before the data", {{"a", 0, 3}, {"b", 3, 5}}, 6, "the last 1 byte"},
  }
  for _, case in ipairs(cases) do
    it(case[1] .. " raise", function()
      local path = files.write("overlap.safetensors", safetensors(case[2], case[3]))
      refuses(function() return moth.load(path) end, case[4])
    end)
  end

  it("that touch are read", function()
    local path = files.write("touch.safetensors", safetensors({{"b", 3, 6}, {"a", 0, 3}}, 6))
    assert.equal(3, moth.load(path).b:numel())
  end)
end)

describe("NaN", function()
  it("raises for each number of an op for which -1 raises", function()
    local taken = {}
    for _, op in ipairs(registry.ops()) do
      for _, arg in ipairs(op.args) do
        for _, example in ipairs(arg.kind:find "^float" and op.examples or {}) do
          local function takes(v)
            local given = forms.named(op, forms.positional(op, example.arguments()))
            given[arg.name] = arg.kind:find "^floats" and {v, v} or v
            return (pcall(op.fn, given))
          end
          if not takes(-1) and takes(NAN) then
            taken[#taken + 1] = op.name .. " " .. arg.name .. " of " .. example.code
          end
        end
      end
    end
    assert.equal("", table.concat(taken, "\n"))
  end)

  local x, p = moth.ones(2, 3), moth.zeros(2):requires_grad_()
  local cases = {
    allclose = {"rtol", function() return moth.allclose(x, x, {rtol = NAN}) end},
    isclose = {"atol", function() return moth.isclose(x, x, {atol = NAN}) end},
    assert_close = {"atol", function() moth.testing.assert_close(x, x, {atol = NAN, rtol = 0}) end},
    cdist = {"p", function() return moth.cdist(x, x, {p = NAN}) end},
    dropout = {"p", function() return F.dropout(x, {p = NAN}) end},
    Dropout = {"p", function() return nn.Dropout(NAN) end},
    quantile = {"q", function() return moth.quantile(x, NAN) end},
    clip_grad_norm_ = {"max_norm", function() nn.utils.clip_grad_norm_({p}, NAN) end},
    clip_grad_value_ = {"clip_value", function() nn.utils.clip_grad_value_({p}, NAN) end},
    BatchNorm1d = {"eps", function() return nn.BatchNorm1d(3, {eps = NAN}) end},
    LayerNorm = {"eps", function() return nn.LayerNorm(3, {eps = NAN}) end},
    gumbel_softmax = {"tau", function() return F.gumbel_softmax(x, {tau = NAN}) end},
    SGD = {"lr", function() return moth.optim.SGD({p}, {lr = NAN}) end},
    Adam = {"eps", function() return moth.optim.Adam({p}, {eps = NAN}) end},
    AdamW = {"weight_decay", function() return moth.optim.AdamW({p}, {weight_decay = NAN}) end},
    RMSprop = {"alpha", function() return moth.optim.RMSprop({p}, {alpha = NAN}) end},
    clip_grads_with_norm_ = {"max_norm", function()
      nn.utils.clip_grads_with_norm_({p}, NAN, moth.tensor(1.0))
    end},
    Normal = {"scale", function() return moth.distributions.Normal(0, NAN) end},
    smooth_l1_loss = {"beta", function() return F.smooth_l1_loss(x, x, {beta = NAN}) end},
    huber_loss = {"delta", function() return F.huber_loss(x, x, {delta = NAN}) end},
    gradcheck = {"eps", function()
      return moth.autograd.gradcheck(moth.exp, {p:double()}, {eps = NAN})
    end},
  }
  for name, case in pairs(cases) do
    it(("raises as '%s' of %s"):format(case[1], name), function()
      refuses(case[2], "'" .. case[1] .. "' to '" .. name .. "'")
    end)
  end
end)

describe("the second of two symmetric arguments is checked like the first:", function()
  local cell, layer = nn.LSTMCell(2, 3), nn.LSTM(2, 3)
  local x, h = moth.ones(4, 2), moth.ones(4, 3)
  for name, c in pairs {["another batch"] = moth.ones(5, 3), ["another size"] = moth.ones(4, 2),
    ["no batch"] = moth.ones(3), ["another dtype"] = moth.ones(4, 3):double()} do
    it("the c0 of LSTMCell with " .. name, function()
      refuses(function() return cell(x, {h, c}) end, "bad argument 'hx' to 'lstm_cell'")
      refuses(function() return cell(x, {c, h}) end, "bad argument 'hx' to 'lstm_cell'")
    end)
  end

  it("the c0 of LSTM", function()
    local y, one, other = moth.ones(5, 4, 2), moth.ones(1, 4, 3), moth.ones(1, 5, 3)
    refuses(function() return layer(y, {one, other}) end, "bad argument 'hx' to 'lstm'")
    refuses(function() return layer(y, {other, one}) end, "bad argument 'hx' to 'lstm'")
  end)

  it("a zero vector on either side of cosine_similarity, whose gradients are finite", function()
    local a, zero = moth.tensor {3, 4}, moth.zeros(2)
    for _, pair in ipairs {{a, zero}, {zero, a}, {zero, zero}} do
      local u, v = pair[1]:clone():requires_grad_(), pair[2]:clone():requires_grad_()
      local y = F.cosine_similarity(u, v, {dim = 1})
      assert.equal(0, y:item())
      y:backward()
      assert.is_true(u.grad:isfinite():all():item())
      assert.is_true(v.grad:isfinite():all():item())
    end
  end)

  it("each projection of an attention with kdim and vdim is drawn by xavier_uniform", function()
    local m = nn.MultiheadAttention {32, 4, kdim = 48, vdim = 80}
    for name, fan in pairs {q_proj_weight = 64, k_proj_weight = 80, v_proj_weight = 112} do
      local w, bound = m[name], math.sqrt(6 / fan)
      assert.is_true(w:abs():max():item() <= bound, name)
      assert.is_true(w:max():item() > 0.9 * bound, name)
      assert.is_true(w:min():item() < -0.9 * bound, name)
    end
    assert.is_false(m.q_proj_weight:equal(m.k_proj_weight[{{}, {1, 32}}]))
  end)
end)

describe("a checkpointed function that raises", function()
  it("does not change modes, memory or the random stream, 20 times in a row", function()
    local x = moth.randn(64, 64):requires_grad_()
    local second, fail = false, true
    local function fn(y)
      local z = F.dropout(y:tanh(), {p = 0.5}) * y
      if fail and (second or not moth.is_grad_enabled()) then error("raised inside", 0) end
      return z
    end
    local function run()
      second = false
      moth.scope(function()
        local ok, message = pcall(function()
          local y = moth.utils.checkpoint.checkpoint(fn, x)
          second = true
          y:sum():backward()
        end)
        assert.is_false(ok)
        assert.has_match("raised inside", message)
      end)
      x.grad = nil
    end
    for _ = 1, 3 do run() end
    moth.collect()
    local before = moth.memory()
    for _ = 1, 20 do run() end
    moth.collect()
    local after = moth.memory()
    for _, name in ipairs {"live_bytes", "live_tensors", "live_nodes", "live_tasks"} do
      assert.equal(before[name], after[name], name)
    end
    assert.is_true(moth.is_grad_enabled())
    fail = false
    moth.manual_seed(3)
    local y = moth.utils.checkpoint.checkpoint(fn, x)
    y:sum():backward()
    local got = x.grad:clone()
    x.grad = nil
    moth.manual_seed(3)
    fn(x):sum():backward()
    assert.is_true(got:equal(x.grad))
  end)
end)

describe("a captured operand that overlaps a result of its group, without coinciding,", function()
  -- Views of a buffer of 4,000 elements, and a step that writes one view and reads others.
  local function parts(b)
    return {low = b[{{1, 3000}}], high = b[{{2, 3001}}], far = b[{{601, 3600}}],
      rows = b[{{1, 3600}}]:view(60, 60), all = b}
  end
  local function change(x)
    moth.mul(x, 0.5, {out = x})
    moth.add(x, 1, {out = x})
  end
  local steps = {
    ["one element later"] = function(v)
      change(v.low)
      return v.high * 3 + v.low
    end,
    ["one element earlier"] = function(v)
      change(v.high)
      return v.low * 3 + v.high
    end,
    ["a block of elements later"] = function(v)
      change(v.low)
      return v.far * 3 + v.low
    end,
    ["a block of elements earlier"] = function(v)
      change(v.far)
      return v.low * 3 + v.far
    end,
    ["transposed"] = function(v)
      change(v.rows)
      return v.rows:t() * 3 + v.rows
    end,
    ["and is written after it was read"] = function(v)
      local y = v.low * 3 + 1
      moth.add(y, 1, {out = v.high})
      return y * 2 + v.low
    end,
    ["and whose place is written twice"] = function(v)
      moth.add(v.low, 1, {out = v.low})
      moth.mul(v.low, 0.5, {out = v.high})
      moth.add(v.high, 2, {out = v.low})
      return v.low + v.high
    end,
  }
  for name, fn in pairs(steps) do
    it(name .. ": replays equal plain calls", function()
      local a, b = moth.arange(1, 4001):float(), moth.arange(1, 4001):float()
      local plain, captured = parts(a), parts(b)
      local step = moth.capture(function() return (fn(captured)) end)
      for i = 1, 4 do
        assert.is_true(fn(plain):equal(step()), "turn " .. i)
        assert.is_true(a:equal(b), "the buffer in turn " .. i)
      end
    end)
  end
end)

describe("empty sizes and freed handles:", function()
  it("a constant of an ONNX file without elements is read", function()
    local models = require "spec.support.onnx_models"
    local x = moth.ones(2, 3)
    for _, dtype in ipairs {moth.float32, moth.int64} do
      local graph = models.graph({models.node("Concat", "x none", "y", {axis = 0})}, "x", "y",
        {none = moth.zeros(0, 3, {dtype = dtype})})
      assert.equal("(2, 3)", tostring(models.load(graph, {x:to(dtype)})(x:to(dtype)).shape))
    end
  end)

  it("moth.keep raises for a freed tensor", function()
    local x = moth.ones(2)
    x:free()
    local function keep() moth.scope(function() moth.keep(x) end) end
    refuses(keep, "keep: this tensor was released")
    local lost
    moth.scope(function() lost = moth.ones(2) end)
    refuses(function() moth.keep(lost) end, "keep: this tensor was released")
  end)
end)

describe("out of memory", function()
  local lib = require "moth.binding.lib"

  it("a Function raises with its own name and leaves no node, at any allocation", function()
    local Twice = nn.class("Twice", moth.autograd.Function)
    function Twice.forward(ctx, x)
      ctx:save_for_backward(x)
      return x * 2
    end
    function Twice.backward(_, dy) return dy * 2 end
    local x = moth.ones(3):requires_grad_()
    local own, done = 0, 0
    for after = 1, 12 do -- the core repeats some allocations
      moth.scope(function()
        lib.C.moth_fail_allocation(lib.ctx, after)
        local ok, y = pcall(Twice.apply, x)
        lib.C.moth_fail_allocation(lib.ctx, 0)
        if ok then
          x.grad = nil
          y:sum():backward()
          assert.equal(2, x.grad[1]:item())
          done = done + 1
        else
          assert.has_match("out of memory", y)
          own = own + (y:find("Twice.apply: out of memory", 1, true) and 1 or 0)
        end
      end)
    end
    assert.is_true(own > 0)
    assert.is_true(done > 0)
  end)
end)
