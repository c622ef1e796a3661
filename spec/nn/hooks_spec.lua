-- Hooks of modules: their order, the changes that they may make, their removal, and errors inside
-- them.

local moth = require "moth"
local nn, F = moth.nn, moth.nn.functional

local log
local function note(text) log[#log + 1] = text end
local function notes() return table.concat(log, " ") end

local handles
local function keep(handle)
  handles[#handles + 1] = handle
  return handle
end

before_each(function() log, handles = {}, {} end)
after_each(function()
  for _, handle in ipairs(handles) do handle:remove() end
end)

local function linear()
  local m = nn.Linear(2, 2)
  moth.no_grad(function()
    m.weight:copy_(moth.tensor {{1, 2}, {3, 4}})
    m.bias:copy_(moth.tensor {10, 20})
  end)
  return m
end

describe("forward hooks", function()
  it("run global hooks before the module's own, before and after forward, in order of registration",
    function()
      local m = linear()
      m:register_forward_pre_hook(function() note "pre1" end)
      m:register_forward_pre_hook(function() note "pre2" end)
      m:register_forward_hook(function() note "post1" end)
      m:register_forward_hook(function() note "post2" end)
      keep(nn.register_module_forward_pre_hook(function() note "all-pre" end))
      keep(nn.register_module_forward_hook(function() note "all-post" end))
      m(moth.ones(1, 2))
      assert.equal("all-pre pre1 pre2 all-post post1 post2", notes())
    end)

  it("can be registered before the others", function()
    local m = linear()
    m:register_forward_pre_hook(function() note "a" end)
    m:register_forward_pre_hook(function() note "b" end, {prepend = true})
    m(moth.ones(1, 2))
    assert.equal("b a", notes())
  end)

  it("receive the module, the arguments as a list and the output itself", function()
    local m, x = linear(), moth.ones(1, 2)
    local seen
    m:register_forward_hook(function(module, args, output) seen = {module, args, output} end)
    local y = m(x)
    assert.equal(m, seen[1])
    assert.equal(1, #seen[2])
    assert.equal(x, seen[2][1])
    assert.equal(y, seen[3])
  end)

  it("receive a list if forward returns several outputs, and may replace it", function()
    local Two = nn.class("Two", nn.Module)
    function Two:forward(x) return x, x * 2 end
    local m = Two()
    m:register_forward_hook(function(_, _, output) return {output[2], output[1]} end)
    local a, b = m(moth.ones(1))
    assert.equal(2, a:item())
    assert.equal(1, b:item())
  end)

  it("replace the arguments and the output by their results", function()
    local m = linear()
    m:register_forward_pre_hook(function(_, args) return args[1] * 2 end)
    m:register_forward_hook(function(_, _, output) return output + 1 end)
    assert.close({{17, 35}}, m(moth.ones(1, 2)):tolist())
  end)

  it("replace several arguments by a list", function()
    local Sub = nn.class("Sub", nn.Module)
    function Sub:forward(a, b) return a - b end
    local m = Sub()
    m:register_forward_pre_hook(function(_, args) return {args[2], args[1]} end)
    assert.equal(4, m(moth.tensor(1), moth.tensor(5)):item())
  end)

  it("pass nil arguments and results through", function()
    local Odd = nn.class("Odd", nn.Module)
    function Odd:forward(...) return select("#", ...), nil, nil end
    local m = Odd()
    m:register_forward_pre_hook(function() note "pre" end)
    assert.equal(3, (m(1, nil, nil)))
    assert.equal(3, select("#", m(1, nil, nil)))
  end)

  it("see the results of the previous hook", function()
    local m = nn.Identity()
    for _ = 1, 3 do m:register_forward_hook(function(_, _, y) return y * 2 end) end
    assert.equal(8, m(moth.tensor(1)):item())
  end)

  it("are removed by remove, also twice, also by a running hook", function()
    local m = linear()
    local first
    first = m:register_forward_hook(function() note "once" first:remove() end)
    m:register_forward_hook(function() note "always" end)
    m(moth.ones(1, 2))
    m(moth.ones(1, 2))
    first:remove()
    m(moth.ones(1, 2))
    assert.equal("once always always always", notes())
  end)

  it("raise for unknown options", function()
    local m, ran = linear(), {}
    local function mark(name) return function() ran[#ran + 1] = name end end
    local function refuses(wanted, name, ...)
      local ok, message = pcall(m[name], m, mark "never", ...)
      assert.is_false(ok)
      assert.is_truthy(tostring(message):find(wanted, 1, true), message)
    end
    refuses("'register_forward_hook' has no argument 'prepned'; did you mean 'prepend'?",
      "register_forward_hook", {prepned = true})
    refuses("no argument 'with_kwargs'", "register_forward_hook", {with_kwargs = true})
    refuses("no argument 'always_call'", "register_forward_hook", {always_call = true})
    refuses("no argument 'with_kwargs'", "register_forward_pre_hook", {with_kwargs = true})
    refuses("bad argument 'prepend' to 'register_full_backward_hook'",
      "register_full_backward_hook", {prepend = 3})
    refuses("takes 2 arguments, got one more", "register_state_dict_post_hook", true, 1)
    assert.has_error_like(function()
      nn.register_module_forward_hook(mark "never", {always_call = true})
    end, "'register_module_forward_hook' has no argument 'always_call'")
    m:register_forward_hook(mark "second")
    m:register_forward_hook(mark "first", true)
    m:register_forward_hook {mark "before", prepend = true}
    m(moth.ones(1, 2))
    assert.same({"before", "first", "second"}, ran)
  end)

  it("must be functions", function()
    assert.has_error_like(function() linear():register_forward_hook(3) end,
      "bad argument 'hook' to 'register_forward_hook' %(a function is needed, got 3%)")
  end)
end)

describe("an error in a hook", function()
  it("is passed on unchanged, with the hook's line, and the module works afterwards", function()
    local m = linear()
    local line = debug.getinfo(1, "l").currentline + 1
    local handle = m:register_forward_pre_hook(function() error "no luck" end)
    assert.has_error_like(function() m(moth.ones(1, 2)) end,
      "hooks_spec%.lua:" .. line .. ": no luck")
    handle:remove()
    assert.close({{13, 27}}, m(moth.ones(1, 2)):tolist())
  end)

  it("in backward is passed on, and the next backward works", function()
    local m, fail = linear(), true
    m:register_full_backward_hook(function() if fail then error "no luck back there" end end)
    local x = moth.ones(1, 2):requires_grad_()
    assert.has_error_like(function() m(x):sum():backward() end, "no luck back there")
    fail = false
    m:zero_grad()
    x.grad = nil
    m(x):sum():backward()
    assert.close({{4, 6}}, x.grad:tolist())
    assert.close({{1, 1}, {1, 1}}, m.weight.grad:tolist())
  end)
end)

describe("full backward hooks", function()
  it("receive the gradients of inputs and outputs; the pre hook runs first", function()
    local m, x = linear(), moth.ones(1, 2):requires_grad_()
    m:register_full_backward_hook(function(module, grad_input, grad_output)
      note "back"
      assert.equal(m, module)
      assert.close({{4, 6}}, grad_input[1]:tolist())
      assert.close({{1, 1}}, grad_output[1]:tolist())
    end)
    m:register_full_backward_pre_hook(function(module, grad_output)
      note "pre"
      assert.equal(m, module)
      assert.close({{1, 1}}, grad_output[1]:tolist())
    end)
    m(x):sum():backward()
    assert.equal("pre back", notes())
  end)

  it("replace the gradient of the output and of the input", function()
    local m, x = linear(), moth.ones(1, 2):requires_grad_()
    m:register_full_backward_pre_hook(function(_, grad_output) return {grad_output[1] * 2} end)
    m:register_full_backward_hook(function(_, grad_input) return {grad_input[1] * 10} end)
    m(x):sum():backward()
    assert.close({{80, 120}}, x.grad:tolist())
    assert.close({2, 2}, m.bias.grad:tolist())
  end)

  it("run if no input needs a gradient, with nil in its place", function()
    local m = linear()
    m:register_full_backward_hook(function(_, grad_input, grad_output)
      note "back"
      assert.is_nil(grad_input[1])
      assert.close({{1, 1}}, grad_output[1]:tolist())
    end)
    m(moth.ones(1, 2)):sum():backward()
    assert.equal("back", notes())
  end)

  it("run for all modules, from the last to the first", function()
    keep(nn.register_module_full_backward_hook(function(m) note("back-" .. nn.typename(m)) end))
    keep(nn.register_module_full_backward_pre_hook(function(m) note("pre-" .. nn.typename(m)) end))
    local a, b = linear(), nn.Tanh()
    b(a(moth.ones(1, 2):requires_grad_())):sum():backward()
    assert.equal("pre-Tanh back-Tanh pre-Linear back-Linear", notes())
  end)

  it("do not run without gradients", function()
    local m = linear()
    m:register_full_backward_hook(function() note "back" end)
    moth.no_grad(function() m(moth.ones(1, 2)) end)
    assert.equal("", notes())
  end)

  it("raise for a result that is no list of gradients", function()
    local m, x = linear(), moth.ones(1, 2):requires_grad_()
    m:register_full_backward_hook(function() return 3 end)
    assert.has_error_like(function() m(x):sum():backward() end,
      "a list of gradients or nothing is needed from a backward hook of Linear, got 3")
  end)

  it("do not change gradients by their presence", function()
    local m = nn.Sequential(linear(), nn.Tanh(), linear())
    local x = moth.randn(3, 2):requires_grad_()
    m(x):sum():backward()
    local without, weight = x.grad:tolist(), m[1].weight.grad:tolist()
    x.grad = nil
    m:zero_grad()
    for _, module in ipairs(m:modules()) do module:register_full_backward_hook(function() end) end
    m(x):sum():backward()
    assert.close(without, x.grad:tolist())
    assert.close(weight, m[1].weight.grad:tolist())
  end)
end)

describe("hooks on registration", function()
  it("see modules, parameters and buffers of all modules and may replace them", function()
    keep(nn.register_module_module_registration_hook(function(m, name, value)
      note(nn.typename(m) .. "." .. name .. "=" .. nn.typename(value))
    end))
    keep(nn.register_module_parameter_registration_hook(function(_, name) note(name) end))
    keep(nn.register_module_buffer_registration_hook(function(_, name)
      note(name)
      return nn.Buffer(moth.full({1}, 7))
    end))
    local m = nn.Module()
    m.act = nn.ReLU()
    m.w = nn.Parameter(moth.ones(1))
    m:register_buffer("mean", moth.zeros(1))
    assert.equal("Module.act=ReLU w mean", notes())
    assert.equal(7, m.mean:item())
  end)

  it("can be removed", function()
    local handle = nn.register_module_module_registration_hook(function() note "seen" end)
    handle:remove()
    nn.Module().act = nn.ReLU()
    assert.equal("", notes())
  end)
end)

describe("state dict hooks", function()
  it("run around saving", function()
    local m = linear()
    m:register_state_dict_pre_hook(function(module, prefix, keep_vars)
      assert.equal(m, module)
      note("pre[" .. prefix .. "]" .. tostring(keep_vars))
    end)
    m:register_state_dict_post_hook(function(_, state_dict, prefix)
      note("post[" .. prefix .. "]")
      state_dict[prefix .. "extra"] = moth.ones(1)
    end)
    local sd = nn.Sequential(nn.ReLU(), m):state_dict()
    assert.same({"1.weight", "1.bias", "1.extra"}, sd:keys())
    assert.equal("pre[1.]false post[1.]", notes())
  end)

  it("rename keys before loading, and change the result afterwards", function()
    local m = linear()
    m:register_load_state_dict_pre_hook(function(_, state_dict, prefix)
      state_dict[prefix .. "weight"] = state_dict[prefix .. "w"]
      state_dict[prefix .. "w"] = nil
    end)
    m:register_load_state_dict_post_hook(function(_, keys)
      note("missing " .. table.concat(keys.missing_keys, ","))
    end)
    local given = {w = moth.ones(2, 2)}
    m:load_state_dict(given, {strict = false})
    assert.close({{1, 1}, {1, 1}}, m.weight:tolist())
    assert.equal("missing bias", notes())
    assert.is_not_nil(given.w)
  end)
end)

describe("a hook", function()
  it("may call the module's functions and other modules", function()
    local probe, m = linear(), linear()
    m:register_forward_hook(function(_, _, output) return probe(F.relu(output)) end)
    assert.close({{13 + 54 + 10, 39 + 108 + 20}}, m(moth.ones(1, 2)):tolist())
  end)
end)
