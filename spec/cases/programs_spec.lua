-- Claims on what ordinary programs meet: results passed on, Python's words, layouts, dropout,
-- checkpoints, misspelt names, batched gradients.

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

  it("is no position of any function", function()
    local bind = require "moth.bind"
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

  it("is given by name", function()
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
