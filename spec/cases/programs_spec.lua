-- Ordinary programs: results passed on, Python's words, layouts, dropout, checkpoints, misspelt
-- names, batched gradients.

local moth = require "moth"

local T = moth.tensor

local function message(fn)
  local ok, text = pcall(fn)
  assert.is_false(ok, "nothing was raised")
  return text
end

local function says(fn, ...)
  local text = message(fn)
  for _, wanted in ipairs { ... } do
    assert.truthy(text:find(wanted, 1, true), ("wanted '%s' in: %s"):format(wanted, text))
  end
end

describe("out", function()
  local state = moth.ones(2)
  local function cell() return moth.zeros(2), state end
  local one_more = "a second result passed on? wrap the call in parentheses"

  it("is never a second result that was passed on", function()
    moth.no_grad(function()
      says(function() return (moth.tanh(cell())) end,
        "'tanh' takes 1 argument by position, got one more: f32 (2)", one_more)
      says(function() return (moth.add(state, state, 1, cell())) end, "'add' takes 3 arguments")
      says(function() return (moth.matmul(state, cell())) end, "'matmul' takes 2 arguments")
      says(function() return (moth.where(T { true, false }, 1, cell())) end, "'where' takes 3")
      says(function() return (moth.tanh { cell() }) end, "'tanh' takes 1 argument by position")
      says(function() return (moth.sum(moth.ones(2, 2), { 1 }, true, nil, state)) end,
        "'sum' takes 4 arguments by position")
      says(function() return (moth.sum(moth.ones(2, 2), { 1 }, true, nil, state, {})) end,
        "'sum' takes 4 arguments by position")
    end)
    assert.same({ 1, 1 }, state:tolist())
  end)

  it("is no positional argument of any function", function()
    local bind = require "moth.binding.bind"
    local counted = 0
    for _, name in ipairs(bind.names()) do
      local sig = bind.signature(bind.ops[name])
      if sig.index.out then
        counted = counted + 1
        local row = {}
        row[sig.index.out] = state
        says(function() return (bind.ops[name](unpack(row, 1, sig.index.out))) end, "by position")
      end
    end
    assert.is_true(counted > 100)
    assert.same({ 1, 1 }, state:tolist())
  end)

  it("is passed by name", function()
    moth.no_grad(function()
      local y = moth.zeros(2)
      assert.equal(y, moth.exp(moth.zeros(2), { out = y }))
      assert.same({ 1, 1 }, y:tolist())
      assert.equal(y, moth.add { state, state, out = y })
      assert.same({ 2, 2 }, y:tolist())
      assert.equal(y, moth.where { T { true, false }, 1, 3, out = y })
      assert.same({ 1, 3 }, y:tolist())
    end)
  end)
end)

describe("Python's words", function()
  local process = require "spec.support.process"
  local function run(code)
    return process.shell(process.program .. " -e '" .. code .. "'")
  end

  it("raise with Lua's own word in scripts of ./moth", function()
    assert.truthy(run("nn.Linear{3, 4, bias = False}")
      :find("(command line):1: 'False' is no word of Lua; write false", 1, true))
    assert.truthy(run("return True"):find("'True' is no word of Lua; write true", 1, true))
    assert.truthy(run("print(None)"):find("'None' is no word of Lua; write nil", 1, true))
    assert.truthy(run("print(unknown, True == 1)"):find("write true", 1, true))
    assert.equal("nil\nrc=0\n", run("print(unknown)"))
    assert.equal("1\nrc=0\n", run("True = 1 print(True)"))
  end)

  it("raise if a host requests it; other names are found as before", function()
    local text = run("setmetatable(_G, {__index = {known = 5}}) moth.strict() print(known, rest) "
      .. "print(pcall(function() return None end))")
    assert.truthy(text:find("5\tnil\n", 1, true), text)
    assert.truthy(text:find("'None' is no word of Lua; write nil", 1, true), text)
  end)
end)

describe("dropout with p = 0", function()
  it("is the input, and draws no random numbers", function()
    local F = moth.nn.functional
    local x = moth.randn(4, 6, 5, 5):requires_grad_()
    for _, name in ipairs { "dropout", "dropout2d" } do
      moth.manual_seed(3)
      local first = moth.rand(1):item()
      moth.manual_seed(3)
      local y = F[name](x, 0, true)
      assert.equal(first, moth.rand(1):item())
      assert.is_true(moth.equal(x, y))
      x.grad = nil
      y:sum():backward()
      assert.is_true(moth.equal(x.grad, moth.ones_like(x)))
    end
  end)
end)

describe("checkpoint", function()
  local checkpoint = moth.utils.checkpoint.checkpoint

  it("accepts its arguments by name", function()
    local x = moth.randn(3):requires_grad_()
    checkpoint { moth.exp, x }:sum():backward()
    local wanted = x.grad
    x.grad = nil
    checkpoint { moth.exp, x, use_reentrant = false, preserve_rng_state = false }:sum():backward()
    assert.is_true(moth.equal(wanted, x.grad))
  end)

  it("raises for an unknown name", function()
    says(function() return (checkpoint(moth.exp, moth.ones(2), { foo = false })) end,
      "'checkpoint' has no argument 'foo'")
    says(function() return (checkpoint { moth.exp, moth.ones(2), use_reentrent = false }) end,
      "did you mean 'use_reentrant'?")
  end)
end)

describe("a misspelt name", function()
  local process = require "spec.support.process"
  local function run(code)
    return process.shell(process.program .. " -e '" .. code .. "'")
  end

  it("of a method raises with the nearest name", function()
    assert.truthy(run("local net = nn.Linear(2, 3) net:paramters()")
      :find("did you mean 'parameters'?", 1, true))
  end)

  it("of a field of self in forward raises, too", function()
    local net = "local N = nn.class(\"N\", nn.Module) function N:init() self.fc1 = nn.Linear(2, 3) "
      .. "end "
    assert.truthy(run(net .. "function N:forward(x) local y = self.fc_1(x) return y end "
      .. "local n = N() n(moth.ones(2))"):find("did you mean 'fc1'?", 1, true))
    assert.truthy(run(net .. "function N:forward(x) local y = self.fc_1.weight return y end "
      .. "local n = N() n(moth.ones(2))"):find("did you mean 'fc1'?", 1, true))
  end)

  it("of a method called with '.' raises and says so", function()
    says(function() return moth.ones(2).sum() end,
      "got nothing; called by '.'? a method is called with ':', as x:sum()")
    says(function() return moth.ones(2).exp() end,
      "called by '.'? a method is called with ':', as x:exp()")
  end)
end)

describe("a user's module", function()
  local nn = moth.nn
  local Layer = nn.class("Layer", nn.Module)
  function Layer:forward(x, inverse) -- luacheck: ignore 212
    return inverse and -x or x
  end

  it("that declares its arguments accepts them by name", function()
    local Named = nn.class("Named", Layer)
    Named.forward_args = { "x", "inverse" }
    local layer, x = Named(), moth.ones(2)
    assert.same({ -1, -1 }, layer { x, inverse = true }:tolist())
    assert.same({ -1, -1 }, layer { inverse = true, x = x }:tolist())
    assert.same({ 1, 1 }, layer { x, inverse = false }:tolist())
    assert.same({ -1, -1 }, layer(x, true):tolist())
    says(function() return (layer { x, invers = true }) end, "'Named' has no argument 'invers'",
      "did you mean 'inverse'?")
    says(function() return (layer { x, x = x }) end, "given twice")
  end)

  it("that does not declare them raises at the call", function()
    says(function() return (Layer() { moth.ones(2), inverse = true }) end,
      [[Layer takes its arguments by position; for names declare Layer.forward_args = {"x", ]]
      .. [["inverse"}]])
  end)

  it("receives a table unchanged if it is a value", function()
    local Batch = nn.class("Batch", nn.Module)
    function Batch:forward(batch) return batch.x + batch.y end -- luacheck: ignore 212
    assert.same({ 2, 2 }, Batch() { x = moth.ones(2), y = 1 }:tolist())
  end)
end)

describe("vmap", function()
  it("calls a function of batchable ops once, and each sample has its own gradient", function()
    local calls, w = 0, moth.tensor {1, -2, 0.5}
    local function loss(p, x, y)
      calls = calls + 1
      return (moth.dot(p, x) - y) ^ 2
    end
    local x, y = moth.tensor {{1, 2, 3}, {0, 1, 0}, {2, 2, 2}, {1, 0, 0}}, moth.tensor {1, 0, -1, 2}
    local grads = moth.func.vmap(moth.func.grad(loss), {moth.none, 1, 1})(w, x, y)
    assert.equal(1, calls)
    assert.same({{-5, -10, -15}, {0, -4, 0}, {0, 0, 0}, {-2, 0, 0}}, grads:tolist())
  end)
end)

describe("autograd.grad{is_grads_batched}", function()
  local grad = moth.autograd.grad

  it("returns a batch of gradients", function()
    local x = T { 1, 2, 3 }:requires_grad_()
    local y = x * x
    local got = grad { y, x, grad_outputs = moth.eye(3), is_grads_batched = true }
    assert.same({ { 2, 0, 0 }, { 0, 4, 0 }, { 0, 0, 6 } }, got:tolist())
  end)

  it("works for several inputs, second derivatives, and an empty batch", function()
    local x, w = T { 1, 2 }:requires_grad_(), T { 3, 4 }:requires_grad_()
    local y = x * x * w
    local gx, gw = grad { y, { x, w }, grad_outputs = moth.eye(2), is_grads_batched = true,
                          create_graph = true }
    assert.same({ { 6, 0 }, { 0, 16 } }, gx:tolist())
    assert.same({ { 1, 0 }, { 0, 4 } }, gw:tolist())
    assert.same({ 6, 8 }, (grad(gx:sum(), x)):tolist())
    local z = x * 2
    local none = grad { z, x, grad_outputs = moth.ones(0, 2), is_grads_batched = true }
    assert.same({ 0, 2 }, { none:size(1), none:size(2) })
  end)

  it("needs a batch", function()
    local x = T { 1, 2 }:requires_grad_()
    says(function()
      return (grad { x * x, x, grad_outputs = moth.ones(2), is_grads_batched = true })
    end, "bad argument 'grad_outputs' to 'grad'", "one dimension more")
  end)
end)
