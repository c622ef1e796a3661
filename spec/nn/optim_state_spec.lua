-- Optimizers make PyTorch's steps, keep the same state under the same names, and continue from a
-- state dict of PyTorch; hooks, and a user's optimizers with their own state.

local moth = require "moth"
local golden = require "spec.support.golden"
local nn, optim = moth.nn, moth.optim

local function T(values) return (moth.tensor(values, {dtype = moth.float64})) end

-- JSON values as Lua's and Moth's: tensors, none, and the numbers of parameters as keys.
local function restored(value)
  if value == golden.null then return moth.none end
  if type(value) ~= "table" then return value end
  if value.tensor then return T(value.tensor) end
  local t = {}
  for key, v in pairs(value) do t[tonumber(key) or key] = restored(v) end
  return t
end

local cases = restored(golden.cases "optim")
local hints = {foreach = true, fused = true, capturable = true, differentiable = true}

-- The first two parameters, as in golden/optim.py.
local function parameters(row, dtype, name)
  row = row or {0.5, -1.5, 2.0, 0.25, 1.0}
  local p = T({row[1], row[2], row[3]}):to(dtype or moth.float64)
  return nn.Parameter(name == "Muon" and p:view(3, 1) or p),
    nn.Parameter(T({{row[4], row[5]}}):to(dtype or moth.float64))
end

local function loss_of(opt, p, q, i)
  if nn.typename(opt) == "LBFGS" then
    local hills = (p * p - 1):square() + p
    return hills:sum() + (q * q):sum() * 2 + q[{1, 1}] * p[2]
  end
  local loss = (p * p * p):sum() / 8
  return i > 2 and loss + (q * q):sum() / 2 or loss
end

local function step(opt, p, q, i)
  opt:step(function()
    opt:zero_grad()
    local loss = loss_of(opt, p, q, i)
    loss:backward()
    return loss
  end)
end

local function row_of(p, q)
  return moth.cat {p:detach():view(-1), q:detach():view(-1)}:tolist()
end

local function make(case, p, q)
  if next(case.options) == nil then return (optim[case.optimizer] {p, q}) end
  return (optim[case.optimizer]({p, q}, case.options))
end

local function trace(case, dtype)
  local p, q = parameters(nil, dtype, case.optimizer)
  local opt, rows, marks = make(case, p, q), {}, case.marks
  for i = 1, marks[3] do
    step(opt, p, q, i)
    if i == marks[1] or i == marks[2] or i == marks[3] then rows[#rows + 1] = row_of(p, q) end
  end
  return rows
end

local function keys(t)
  local list = {}
  for key in pairs(t) do list[#list + 1] = tostring(key) end
  table.sort(list)
  return list
end

local function number(x) return type(x) == "number" and x or tonumber(x:item()) end

-- Temporary values in PyTorch's state.
local scratch = {al = true}

-- A value of a state: tensors and numbers (PyTorch has both for numbers), and lists of them.
local function same_state(wanted, got, tolerance)
  if type(wanted) == "table" then
    assert.equal(#wanted, #got)
    for i, value in ipairs(wanted) do same_state(value, got[i], tolerance) end
  elseif type(got) == "number" then
    assert.close(number(wanted), got, math.max(1e-12, tolerance / 1e3))
  else
    assert.close(wanted:tolist(), got:tolist(), tolerance)
  end
end

-- Muon computes in bfloat16, whose products may be rounded in another order.
local LOOSE = {Muon = 2e-2}

for k, case in ipairs(cases) do
  describe(("%s, options %d,"):format(case.optimizer, k), function()
    local loose, halfway, last = LOOSE[case.optimizer], case.marks[2], case.marks[3]

    it("makes PyTorch's steps", function()
      assert.close(case.rows, trace(case, moth.float64), loose or 1e-11)
      assert.close(case.rows, trace(case, moth.float32), loose or 2e-4)
    end)

    it("has PyTorch's state dict, by name and number", function()
      local p, q = parameters(nil, nil, case.optimizer)
      local opt = make(case, p, q)
      for i = 1, halfway do step(opt, p, q, i) end
      local state = opt:state_dict()
      local wanted = case.state
      assert.same(keys(wanted.state), keys(state.state))
      for at, values in pairs(wanted.state) do
        local own = state.state[tostring(at)]
        for name in pairs(scratch) do values[name] = nil end
        assert.same(keys(values), keys(own))
        for name, value in pairs(values) do same_state(value, own[name], loose or 1e-9) end
      end
      for name, value in pairs(wanted.param_groups[1]) do
        if not hints[name] then assert.same(value, state.param_groups[1][name], name) end
      end
    end)

    it("continues from PyTorch's state dict", function()
      local p, q = parameters(case.rows[2], nil, case.optimizer)
      local opt = optim[case.optimizer] {p, q}
      opt:load_state_dict(case.state)
      for i = halfway + 1, last do step(opt, p, q, i) end
      assert.close(case.rows[3], row_of(p, q), loose or 1e-11)
    end)

    it("continues from its own state dict, saved to a file, bit for bit", function()
      local rows = trace(case, moth.float32)
      local p, q = parameters(nil, moth.float32, case.optimizer)
      local opt = make(case, p, q)
      for i = 1, halfway do step(opt, p, q, i) end
      local path = os.tmpname()
      moth.save(opt:state_dict(), path)
      opt = optim[case.optimizer] {p, q}
      opt:load_state_dict(moth.load(path))
      os.remove(path)
      for i = halfway + 1, last do step(opt, p, q, i) end
      assert.same(rows[3], row_of(p, q))
    end)
  end)
end

describe("loading an optimizer's state", function()
  local function made() return (optim.SGD({(parameters())}, {lr = 0.5, momentum = 0.5})) end

  it("raises for an unknown option, and loads nothing", function()
    local opt = made()
    local state = made():state_dict()
    state.param_groups[1].lr = 0.25
    state.param_groups[1].momentun = 0.5
    assert.has_error_like(function() opt:load_state_dict(state) end,
      "its group 1 has the unknown option 'momentun'; did you mean 'momentum'%?")
    assert.equal(0.5, opt.param_groups[1].lr)
    local adam = optim.Adam({(parameters())}, {amsgrad = true})
    assert.has_error_like(function() opt:load_state_dict(adam:state_dict()) end,
      "unknown option")
  end)

  it("raises for options out of range and tensors of another shape", function()
    local opt = made()
    local state = made():state_dict()
    state.param_groups[1].lr = -1
    assert.has_error_like(function() opt:load_state_dict(state) end, "'lr' to 'SGD'")
    state.param_groups[1].lr = 1
    state.state["0"] = {momentum_buffer = moth.zeros(4)}
    assert.has_error_like(function() opt:load_state_dict(state) end,
      "'momentum_buffer' is f32 %(4%), its parameter is f64 %(3%)")
  end)

  it("accepts fields that a schedule stored in the groups", function()
    local opt = made()
    optim.lr_scheduler.OneCycleLR(opt, {max_lr = 1, total_steps = 5})
    local new = made()
    new:load_state_dict(opt:state_dict())
    assert.equal(1, new.param_groups[1].max_lr)
  end)
end)

describe("an optimizer", function()
  it("runs hooks before and after its steps", function()
    local p = nn.Parameter(moth.ones(2))
    p.grad = moth.ones(2)
    local opt, log = optim.SGD({p}, {lr = 0.5}), {}
    opt:register_step_pre_hook(function(o) log[#log + 1] = {o == opt, p[1]:item()} end)
    local after = opt:register_step_post_hook(function() log[#log + 1] = p[1]:item() end)
    opt:step()
    assert.same({{true, 1}, 0.5}, log)
    after:remove()
    opt:step()
    assert.equal(3, #log)
  end)

  it("of a user on top of SGD keeps its own state when scopes end", function()
    local Slow = nn.class("Slow", optim.SGD)
    function Slow:update(group)
      optim.SGD.update(self, group)
      for _, p in ipairs(group.params) do
        local own = self.state[p] or {}
        self.state[p] = own
        own.slow = own.slow and own.slow * 0.5 + p.data * 0.5 or p.data:clone()
      end
    end
    local p = nn.Parameter(moth.ones(2))
    p.grad = moth.ones(2)
    local opt = Slow({p}, {lr = 0.5, momentum = 0.5})
    for _ = 1, 3 do moth.scope(function() opt:step() end) end
    assert.equal(2, #opt.state[p].slow:tolist())
    assert.equal(2, #opt.state[p].momentum_buffer:tolist())
  end)

  it("reads strided and half-type parameters", function()
    for _, dtype in ipairs {moth.float16, moth.bfloat16, moth.float32} do
      for _, name in ipairs {"Adam", "RMSprop", "NAdam", "RAdam", "Adamax", "Adagrad",
                             "Rprop", "ASGD"} do
        local flat = nn.Parameter(moth.full({6}, 1, {dtype = dtype}))
        local x = moth.full({3, 2}, 1, {dtype = dtype}):t():detach():requires_grad_()
        local grad = moth.tensor({1, -2, 3, 4, 0, 0.5}, {dtype = dtype})
        local a, b = optim[name]({flat}, {lr = 0.125}), optim[name]({x}, {lr = 0.125})
        for _ = 1, 3 do
          flat.grad, x.grad = grad, grad:view(2, 3)
          a:step()
          b:step()
        end
        assert.same(flat:tolist(), x:detach():reshape(-1):tolist(), name)
        assert.is_true(flat[1]:item() < 1 and flat[2]:item() > 1)
      end
    end
  end)
end)

describe("an optimizer of named parameters", function()
  local function net() return nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1)) end
  local names = {"0.weight", "0.bias", "1.weight", "1.bias"}

  it("accepts named_parameters() and lists of {name, tensor}, and saves the names", function()
    local n = net()
    local list = {}
    for name, p in n:named_parameters() do list[#list + 1] = {name, p} end
    for _, opt in ipairs {
      optim.SGD(n:named_parameters(), {lr = 0.1}), optim.SGD {n:named_parameters(), lr = 0.1},
      optim.SGD(list, {lr = 0.1}), optim.SGD {params = n:named_parameters(), lr = 0.1},
      optim.LBFGS(n:named_parameters()),
      optim.AdamW {{params = n:named_parameters(), lr = 0.1}},
    } do
      local group = opt.param_groups[1]
      assert.same(names, group.param_names)
      assert.equal(n[2].bias, group.params[4])
      assert.same(names, opt:state_dict().param_groups[1].param_names)
    end
    assert.is_nil(optim.SGD(n:parameters(), {lr = 0.1}):state_dict().param_groups[1].param_names)
  end)

  it("has the names of a loaded state dict, or keeps its own", function()
    local n = net()
    local function names_after(from, to)
      to:load_state_dict(from:state_dict())
      return to.param_groups[1].param_names
    end
    local function plain() return optim.SGD(n:parameters(), {lr = 0.1}) end
    local function named() return optim.SGD(n:named_parameters("net"), {lr = 0.1}) end
    assert.equal("net.0.weight", names_after(named(), plain())[1])
    assert.equal("net.0.weight", names_after(plain(), named())[1])
    assert.equal("0.bias", names_after(optim.SGD(n:named_parameters(), {lr = 1}), named())[2])
    local state = named():state_dict()
    state.param_groups[1].param_names = {"one"}
    assert.has_error_like(function() plain():load_state_dict(state) end,
      "group 1 has 1 name for 4 parameters")
  end)

  it("steps like any other, captured too", function()
    local n = net()
    local opt = optim.Adam(n:named_parameters(), {lr = 0.1})
    local captured = moth.capture(function(x)
      opt:zero_grad()
      local loss = n(x):square():sum()
      loss:backward()
      opt:step()
      return loss
    end)
    local x = moth.ones(4, 2)
    local first, last = captured(x):item(), nil
    for _ = 1, 30 do last = captured(x):item() end
    assert.is_true(last < first / 2)
    assert.equal("captured step (1 recording)", tostring(captured))
  end)

  it("raises for names of only some parameters or groups", function()
    local a, b = nn.Parameter(moth.ones(1)), nn.Parameter(moth.ones(1))
    assert.has_error_like(function() return optim.SGD({{"a", a}, b}, {lr = 1}) end,
      "element 2 has no name")
    assert.has_error_like(function() return optim.SGD({a, {"b", b}}, {lr = 1}) end,
      "element 2 has a name")
    assert.has_error_like(function() return optim.SGD({{"a", 3}}, {lr = 1}) end,
      "element 1 is 3, not a tensor")
    assert.has_error_like(function() return optim.SGD(nn.ReLU():named_parameters(), {lr = 1}) end,
      "got an empty list")
    assert.has_error_like(function() return optim.Muon(net():named_parameters()) end,
      "matrices are needed, but element 2 is")
    local opt = optim.SGD({{"a", a}}, {lr = 1})
    assert.has_error_like(function() opt:add_param_group {params = {b}} end,
      "some groups have names")
    opt:add_param_group {params = {{"b", b}}}
    assert.same({"b"}, opt.param_groups[2].param_names)
  end)
end)

describe("hooks of an optimizer's state dict", function()
  it("run before and after it is made and loaded, and may replace it", function()
    local p, log = nn.Parameter(moth.ones(1)), {}
    local opt = optim.SGD({p}, {lr = 0.5})
    opt:register_state_dict_pre_hook(function(o) log[#log + 1] = o == opt and "saving" end)
    opt:register_state_dict_post_hook(function(_, state) state.note = "kept" end)
    local other = opt:register_state_dict_post_hook(function(_, state)
      return {state = state.state, param_groups = state.param_groups, other = state.note}
    end)
    assert.equal("kept", opt:state_dict().other)
    other:remove()
    local state = opt:state_dict()
    assert.equal("kept", state.note)
    opt:register_load_state_dict_pre_hook(function(_, given)
      return {state = given.state, param_groups = {{lr = 2, params = {0}}}}
    end)
    opt:register_load_state_dict_post_hook(function(o) log[#log + 1] = o.param_groups[1].lr end)
    opt:load_state_dict(state)
    assert.same({"saving", "saving", 2}, log)
  end)

  it("raise if they are no functions, or return no state dict", function()
    local opt = optim.SGD({nn.Parameter(moth.ones(1))}, {lr = 0.5})
    assert.has_error_like(function() opt:register_state_dict_post_hook(3) end,
      "'hook' to 'register_state_dict_post_hook'")
    opt:register_state_dict_post_hook(function() return 3 end)
    assert.has_error_like(function() return opt:state_dict() end,
      "must return a state dict or nothing")
  end)
end)
