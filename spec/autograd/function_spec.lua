--- function_spec.lua -- Functions written in Lua: errors name the user's line, help knows the ctx,
-- and once_differentiable marks a backward without a second derivative.

local moth = require "moth"
local help = require "moth.help"
local intact = require "spec.support.intact"

local nn, ag = moth.nn, moth.autograd
local refuses = intact.refuses

local function line() return debug.getinfo(2, "l").currentline end

-- The message of the error of f, which must begin with line `at` of this file.
local function message_at(at, f)
  local ok, problem = pcall(f)
  assert.is_false(ok)
  local place = ("function_spec.lua:%d: "):format(at)
  assert.is_truthy(problem:find(place, 1, true), place .. "is not in: " .. problem)
  return problem
end

local function function_of(forward, backward)
  local Own = nn.class("Own", ag.Function)
  Own.forward, Own.backward = forward, backward
  return Own
end

local function double(_, x) return x * 2 end

describe("a mistake in a Function", function()
  local x = moth.ones(2, {requires_grad = true})

  it("that an op finds names its line, also after `return`", function()
    local at = line() + 1
    local Wrong = function_of(function(_, y) return y:sum(9) end)
    local text = message_at(at, function() return (Wrong.apply(x)) end)
    assert.is_truthy(text:find("in a return call of Own.forward", 1, true), text)
    at = line() + 2
    Wrong = function_of(double, function(_, dy)
      local dx = dy:sum(9)
      return dx
    end)
    message_at(at, function() Wrong.apply(x):sum():backward() end)
    at = line() + 1
    Wrong = function_of(double, function(_, dy) return dy:sum(9) end)
    text = message_at(at, function() Wrong.apply(x):sum():backward() end)
    assert.is_truthy(text:find("in a return call of Own.backward", 1, true), text)
  end)

  it("in the results of forward names the line of forward", function()
    local at = line() + 1
    local Wrong = function_of(function() return 3 end)
    message_at(at, function() return (Wrong.apply(x)) end)
    at = line() + 1
    Wrong = function_of(function(ctx, y)
      ctx:mark_dirty(y)
      return y * 2
    end)
    message_at(at, function() return (Wrong.apply(x:detach())) end)
  end)

  it("in the results of backward names the line of backward", function()
    for wrong, text in pairs {
      [{moth.ones(2), moth.ones(2)}] = "Own.backward returned 2 gradients, but Own.forward has 1",
      [{}] = "Own.backward returned 0 gradients",
      [{3}] = "Own.backward returned 3 as gradient 1",
      [{moth.ones(3)}] = "Own.backward: gradient 1 is f32 (3)",
    } do
      local at = line() + 1
      local Wrong = function_of(double, function() return unpack(wrong) end)
      local message = message_at(at, function() Wrong.apply(x):sum():backward() end)
      assert.is_truthy(message:find(text, 1, true), message)
    end
  end)

  it("such as a missing backward names the line of the backward pass", function()
    local Half = function_of(double)
    local at = line() + 1
    message_at(at, function() Half.apply(x):sum():backward() end)
  end)

  it("in a hook names the line of the hook", function()
    local y = x * 2
    local at = line() + 1
    y:register_hook(function() return 3 end)
    message_at(at, function() y:sum():backward() end)
    local z = x * 2
    at = line() + 1
    z:register_hook(function(dz) return dz:sum(9) end)
    message_at(at, function() z:sum():backward() end)
  end)

  it("that raises an error value of the user passes the value unchanged", function()
    local own = {}
    local Raises = function_of(double, function() error(own) end)
    local ok, problem = pcall(function() Raises.apply(x):sum():backward() end)
    assert.is_false(ok)
    assert.equal(own, problem)
  end)

  it("with ':' or '.' names the right form", function()
    local Wrong = nn.class("Wrong", ag.Function)
    function Wrong:forward(ctx, y) return y end -- luacheck: ignore 212
    refuses(function() return (Wrong.apply(x)) end, "write function Wrong.forward(ctx, ...)")
    function Wrong.forward(_, y) return y * 2 end
    function Wrong:backward(ctx, dy) return dy end -- luacheck: ignore 212
    assert.has_error_like(function() Wrong.apply(x):sum():backward() end,
      "write function Wrong.backward%(ctx, ...%)")
    Wrong = function_of(function(ctx, y)
      ctx.save_for_backward(y)
      return y
    end)
    assert.has_error_like(function() return (Wrong.apply(x)) end, "ctx:save_for_backward%(%)")
    refuses(function() return (ag.FunctionCtx()) end, "each call of apply creates a ctx")
  end)
end)

describe("help", function()
  it("knows the methods and fields of ctx", function()
    for _, name in ipairs {"save_for_backward", "mark_dirty", "mark_non_differentiable",
                           "set_materialize_grads", "saved_tensors", "needs_input_grad",
                           "ctx.saved_tensors", "once_differentiable"} do
      assert.is_truthy(help.text(name):find(name:match "[%w_]+$", 1, true), name)
    end
    local text = help.text "ctx"
    assert.is_truthy(text:find("save_for_backward", 1, true))
    assert.is_truthy(text:find("ctx.needs_input_grad", 1, true))
    refuses(function() return (help.text "saved_tensor") end, "did you mean 'saved_tensors'")
  end)

  it("knows the fields of tensors", function()
    local x = moth.ones(2, 2)
    for _, name in ipairs {"shape", "ndim", "dtype", "grad_fn", "requires_grad", "is_leaf"} do
      assert.is_not_nil(x[name] ~= nil or name == "grad_fn" or nil, name)
      assert.is_truthy(help.text("x." .. name):find("^x%." .. name .. ": "), name)
    end
    assert.matches("also of that name: .*x%.grad", help.text "grad")
    assert.is_truthy(help.text "x.grad":find("^x%.grad: "))
    assert.is_truthy(help.text "param_groups":find("^optimizer%.param_groups: "))
  end)
end)

describe("once_differentiable", function()
  local Square = nn.class("Square", ag.Function)
  local recorded
  function Square.forward(ctx, x)
    ctx:save_for_backward(x)
    return x * x, x:detach() * 3
  end
  Square.backward = ag.once_differentiable(function(ctx, dy)
    recorded = moth.is_grad_enabled()
    return 2 * ctx.saved_tensors[1] * dy
  end)
  local x = moth.tensor({3, -1}, {requires_grad = true})

  it("computes the gradient without recording", function()
    Square.apply(x):sum():backward()
    assert.same({6, -2}, x.grad:tolist())
    local g = ag.grad(Square.apply(x):sum(), x, {create_graph = true})
    assert.same({6, -2}, g:tolist())
    assert.is_false(recorded)
  end)

  it("raises for second derivatives, for every way to request them", function()
    local w = moth.ones(2, {requires_grad = true})
    local function first()
      return (ag.grad((Square.apply(x) * w):sum(), x, {create_graph = true}))
    end
    first()
    refuses(function() first():sum():backward() end, "marked by once_differentiable")
    refuses(function() return (ag.grad(first():sum(), x)) end, "marked by once_differentiable")
    refuses(function() return (ag.grad(first():sum(), w)) end, "marked by once_differentiable")
    ag.grad((Square.apply(x) * w):sum() * 1, w, {create_graph = true}):sum()
  end)

  it("raises errors with the line of the backward", function()
    local at = line() + 2
    local Wrong = function_of(double,
      ag.once_differentiable(function(_, dy) return dy:sum(9) end))
    message_at(at, function() Wrong.apply(x):sum():backward() end)
    refuses(function() return (ag.once_differentiable(3)) end, "'fn' to 'once_differentiable'")
  end)
end)
