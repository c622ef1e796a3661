-- Optimizers: PyTorch's steps, groups, closures, missing gradients, and errors.

local moth = require "moth"
local nn, F, optim = moth.nn, moth.nn.functional, moth.optim

-- Two parameters; the loss is sum(p^3), from the third step on + sum(q^2), so q has no gradient at
-- first. Returns the parameters after steps 1, 3 and 5.
local function trace(make, dtype)
  local p = nn.Parameter(moth.tensor({0.5, -1.5, 2.0}, {dtype = dtype}))
  local q = nn.Parameter(moth.tensor({{0.25, 1.0}}, {dtype = dtype}))
  local opt, rows = make(p, q), {}
  for i = 1, 5 do
    opt:zero_grad()
    local loss = (p * p * p):sum()
    if i > 2 then loss = loss + (q * q):sum() end
    loss:backward()
    opt:step()
    if i % 2 == 1 then rows[#rows + 1] = moth.cat {p:detach(), q:detach():view(-1)}:tolist() end
  end
  return rows
end

-- PyTorch 2.15's results in float64.
local cases = {
  {"SGD", function(p, q) return optim.SGD({p, q}, {lr = 0.0625}) end, {
    {0.453125, -1.921875, 1.25, 0.25, 1.0},
    {0.3823928980418714, -3.896029695562902, 0.7852983474731445, 0.21875, 0.875},
    {0.33134936561589945, -15.265087390762226, 0.5855828819105218, 0.16748046875, 0.669921875},
  }},
  {"SGD with momentum", function(p, q) return optim.SGD({p, q}, 0.0625, 0.5) end, {
    {0.453125, -1.921875, 1.25, 0.25, 1.0},
    {0.33152887209143955, -4.773859172753873, 0.18452930450439453, 0.21875, 0.875},
    {0.2410560785437521, -31.474359079863717, -0.1232536321622509, 0.13232421875, 0.529296875},
  }},
  {"SGD with Nesterov's momentum",
    function(p, q) return optim.SGD({p, q}, {lr = 0.0625, momentum = 0.5, nesterov = true}) end, {
    {0.4296875, -2.1328125, 0.875, 0.25, 1.0},
    {0.3138436099260389, -7.263780951590093, 0.27982669323682785, 0.203125, 0.8125},
    {0.2403171971914744, -172.0594300090764, 0.13185797859680187, 0.11749267578125,
     0.469970703125},
  }},
  {"SGD with dampening",
    function(p, q) return optim.SGD({p, q}, {lr = 0.0625, momentum = 0.5, dampening = 0.25}) end, {
    {0.453125, -1.921875, 1.25, 0.25, 1.0},
    {0.35206691005964785, -4.006599189351846, 0.29752813279628754, 0.21875, 0.875},
    {0.27582363579624175, -15.183905202781128, 0.0089600983348231, 0.147430419921875,
     0.5897216796875},
  }},
  {"SGD with weight decay",
    function(p, q) return optim.SGD({p, q}, {lr = 0.0625, weight_decay = 0.5}) end, {
    {0.4375, -1.875, 1.1875, 0.25, 1.0},
    {0.3475981540977955, -3.547322452068329, 0.711117047816515, 0.2109375, 0.84375},
    {0.28576978392419683, -11.913282814733211, 0.5093391174806776, 0.15016937255859375,
     0.600677490234375},
  }},
  {"SGD with all at once", function(p, q)
    return optim.SGD {{p, q}, lr = 0.0625, momentum = 0.5, weight_decay = 0.5, nesterov = true}
  end, {
    {0.40625, -2.0625, 0.78125, 0.25, 1.0},
    {0.26146299552056007, -6.315168906468898, 0.17775955723482184, 0.19140625, 0.765625},
    {0.17668119190938425, -108.43563596938372, 0.03567363397455995, 0.0923624038696289,
     0.3694496154785156},
  }},
  {"SGD that climbs", function(p, q)
    return optim.SGD {{p, q}, lr = 0.0625, momentum = 0.5, weight_decay = 0.25, maximize = true}
  end, {
    {0.5390625, -1.0546875, 2.71875, 0.25, 1.0},
    {0.6965570402489902, -0.30456655496254825, 8.86957015353255, 0.27734375, 1.109375},
    {0.9996390890643913, -0.039248875826478596, 157.61639518983216, 0.37850093841552734,
     1.5140037536621094},
  }},
  {"SGD with a group of its own for q", function(p, q)
    return optim.SGD({{params = {p}}, {params = {q}, lr = 0.25, momentum = 0.5}}, {lr = 0.0625})
  end, {
    {0.453125, -1.921875, 1.25, 0.25, 1.0},
    {0.3823928980418714, -3.896029695562902, 0.7852983474731445, 0.125, 0.5},
    {0.33134936561589945, -15.265087390762226, 0.5855828819105218, -0.0625, -0.25},
  }},
  {"Adam", function(p, q) return optim.Adam({p, q}, {lr = 0.125}) end, {
    {0.37500000166666664, -1.6249999998148148, 1.8750000001041667, 0.25, 1.0},
    {0.1491690487478938, -1.8754749831222584, 1.6275477837493804, 0.12500000249999996,
     0.875000000625},
    {-0.023273776064295967, -2.1273539171839073, 1.387083487585744, -0.08397615077999675,
     0.62777508393859},
  }},
  {"Adam with all at once", function(p, q)
    return optim.Adam {{p, q}, lr = 0.125, betas = {0.5, 0.75}, eps = 0.0625, weight_decay = 0.5}
  end, {
    {0.38235294117647056, -1.6237113402061856, 1.875598086124402, 0.25, 1.0},
    {0.1819873121929586, -1.8767101939879678, 1.6330774287935659, 0.13636363636363635,
     0.8780487804878049},
    {0.055413422977399984, -2.1393998341116607, 1.4048581126678101, -0.03256186603217416,
     0.6414573398587228},
  }},
  {"Adam that climbs", function(p, q) return optim.Adam({p, q}, {lr = 0.125, maximize = true}) end,
  {
    {0.6249999983333333, -1.3750000001851852, 2.1249999998958335, 0.25, 1.0},
    {0.8708652723833202, -1.1289076491138872, 2.3756097258492304, 0.3749999975, 1.124999999375},
    {1.1143981482157175, -0.8937090950646983, 2.6277860148126435, 0.6222769254018711,
     1.3756162315752527},
  }},
  {"AdamW", function(p, q) return optim.AdamW({p, q}, 0.125) end, {
    {0.37437500166666665, -1.6231249998148147, 1.8725000001041667, 0.25, 1.0},
    {0.1479479889498435, -1.8694007537216752, 1.620597311146297, 0.12468750249999996,
     0.8737500006250001},
    {-0.024377542738227037, -2.1164827977132488, 1.37650136051851, -0.0842578460521628,
     0.6245388124120304},
  }},
  {"AdamW with strong decay", function(p, q)
    return optim.AdamW {{p, q}, lr = 0.125, weight_decay = 0.5, betas = {0.75, 0.5}}
  end, {
    {0.34375000166666664, -1.5312499998148148, 1.7500000001041667, 0.25, 1.0},
    {0.06083846922604168, -1.5863376889468537, 1.287846712430225, 0.10937500249999996,
     0.812500000625},
    {-0.17102637676764504, -1.632041850161576, 0.8610001162724827, -0.1173053095502725,
     0.4648392905489287},
  }},
}

describe("five steps, by PyTorch's numbers, of", function()
  for _, case in ipairs(cases) do
    it(case[1], function()
      assert.close(case[3], trace(case[2], moth.float64), 1e-12)
      assert.close(case[3], trace(case[2], moth.float32), 2e-5)
    end)
  end
end)

describe("an optimizer", function()
  local function parameter() return nn.Parameter(moth.tensor {1.0, 2.0}) end

  it("skips parameters without a gradient", function()
    for _, make in ipairs {optim.SGD, optim.Adam, optim.AdamW} do
      local p, q = parameter(), parameter()
      p.grad = moth.ones(2)
      local opt = make({p, q}, {lr = 0.5, weight_decay = 0.5})
      opt:step()
      assert.close({1, 2}, q:tolist())
      assert.are_not.equal(1, p[1]:item())
      assert.is_nil(opt.state[q])
    end
  end)

  it("clears gradients, or fills them with zeros", function()
    local p = parameter()
    local opt = optim.SGD {p}
    p.grad = moth.ones(2)
    opt:zero_grad {set_to_none = false}
    assert.close({0, 0}, p.grad:tolist())
    opt:zero_grad()
    assert.is_nil(p.grad)
    opt:zero_grad()
  end)

  it("writes zeros into existing gradients, which may share one buffer", function()
    local net, flat = nn.Linear(2, 2), moth.zeros(6)
    net.weight.grad, net.bias.grad = flat[{{1, 4}}]:view(2, 2), flat[{{5, 6}}]
    for _, owner in ipairs {optim.SGD(net:parameters()), net} do
      for _ = 1, 2 do
        net(moth.ones(3, 2)):sum():backward()
        assert.same({3, 3, 3, 3, 3, 3}, flat:tolist())
        owner:zero_grad {set_to_none = false}
        assert.same({0, 0, 0, 0, 0, 0}, flat:tolist())
      end
    end
  end)

  it("detaches the gradients that it fills with zeros", function()
    local p = parameter()
    local opt = optim.SGD {p}
    p:square():sum():backward {create_graph = true}
    assert.is_true(p.grad.requires_grad)
    opt:zero_grad {set_to_none = false}
    assert.is_false(p.grad.requires_grad)
    assert.same({0, 0}, p.grad:tolist())
  end)

  it("reads the learning rate from its groups at each step", function()
    local p = parameter()
    local opt = optim.SGD({p}, {lr = 1})
    p.grad = moth.ones(2)
    opt:step()
    opt.param_groups[1].lr = 0.25
    opt:step()
    assert.close({-0.25, 0.75}, p:tolist())
  end)

  it("runs a closure with gradients and returns its loss", function()
    local p = parameter()
    local opt = optim.SGD({p}, {lr = 0.5})
    local function closure()
      opt:zero_grad()
      local loss = (p * p):sum()
      loss:backward()
      return loss
    end
    assert.equal(5, opt:step(closure):item())
    assert.close({0, 0}, p:tolist())
    moth.no_grad(function() assert.equal(0, opt:step(closure):item()) end)
    assert.is_nil(opt:step())
  end)

  it("passes an error of the closure on and changes nothing", function()
    local p = parameter()
    local opt = optim.SGD({p}, {lr = 0.5})
    p.grad = moth.ones(2)
    assert.has_error_like(function() opt:step(function() error "no luck" end) end, "no luck")
    assert.close({1, 2}, p:tolist())
    assert.is_true(moth.is_grad_enabled())
  end)

  it("changes no parameter if memory runs out before all states exist", function()
    for name, options in pairs {SGD = {momentum = 0.5}, Adam = {lr = 0.5}, RMSprop = {lr = 0.5}} do
      local p, q = parameter(), nn.Parameter(moth.ones(2 ^ 18))
      local opt = optim[name]({p, q}, options)
      p.grad = moth.ones(2)
      opt:step() -- p has its state, q has none yet
      q.grad = moth.ones(2 ^ 18)
      local before = p:tolist()
      moth.collect()
      moth.set_memory_limit(moth.memory().live_bytes + 2 ^ 16)
      local ok = pcall(opt.step, opt)
      moth.set_memory_limit(0)
      assert.is_false(ok)
      assert.same(before, p:tolist(), name)
      opt:step()
      assert.is_true(p[1]:item() < before[1] and q[1]:item() < 1)
    end
  end)

  it("does not record its steps", function()
    local p = parameter()
    local opt = optim.SGD({p}, {lr = 0.5, momentum = 0.5});
    (p * p):sum():backward()
    opt:step()
    assert.is_true(p.is_leaf)
    assert.is_true(p.requires_grad)
    assert.is_false(opt.state[p].momentum_buffer.requires_grad)
  end)

  it("raises for a backward pass that needs a value overwritten by its step", function()
    local p = parameter()
    local loss = (p * p):sum()
    loss:backward {retain_graph = true}
    optim.SGD({p}, {lr = 0.5}):step()
    assert.has_error_like(function() loss:backward() end, "version")
  end)

  it("accepts groups with their own options, also later", function()
    local p, q, r = parameter(), parameter(), parameter()
    local opt = optim.SGD({{params = {p}, lr = 1}, {params = q}}, {lr = 0.5})
    opt:add_param_group {params = {r}, lr = 0.25}
    for _, x in ipairs {p, q, r} do x.grad = moth.ones(2) end
    opt:step()
    assert.close({{0, 1}, {0.5, 1.5}, {0.75, 1.75}}, {p:tolist(), q:tolist(), r:tolist()})
    assert.has_error_like(function() opt:add_param_group {params = {p}} end,
      "element 1 of a group is also in an earlier group")
  end)

  it("keeps its state when scopes end", function()
    local p = parameter()
    local opt
    moth.scope(function()
      opt = optim.SGD({p}, {lr = 0.5, momentum = 0.5})
      p.grad = moth.ones(2)
      opt:step()
    end)
    moth.scope(function() opt:step() end)
    assert.close({1 - 0.5 - 0.75, 2 - 0.5 - 0.75}, p:tolist())
  end)

  it("prints its groups", function()
    local text = tostring(optim.SGD({parameter()}, {lr = 0.5}))
    assert.is_truthy(text:find("SGD (", 1, true))
    assert.is_truthy(text:find("lr: 0.5", 1, true))
  end)

  it("can be written by the user", function()
    local Plain = nn.class("Plain", optim.Optimizer)
    function Plain:init(params, lr) optim.Optimizer.init(self, params, {lr = lr}) end
    function Plain:update(group)
      for _, p in ipairs(group.params) do
        if p.grad ~= nil then p:add_(p.grad, {alpha = -group.lr}) end
      end
    end
    local p = parameter()
    p.grad = moth.ones(2)
    Plain({p}, 0.5):step()
    assert.close({0.5, 1.5}, p:tolist())
    local Lazy = nn.class("Lazy", optim.Optimizer)
    assert.has_error_like(function() Lazy({p}):step() end, "has no method ':update%(group%)'")
  end)

  describe("with a user's step, as in PyTorch,", function()
    local function owner(count)
      local Own = nn.class("Own", optim.Optimizer)
      function Own:init(params, lr) optim.Optimizer.init(self, params, {lr = lr}) end
      function Own:step(closure)
        local loss = closure and closure()
        moth.no_grad(function()
          for _, group in ipairs(self.param_groups) do
            for _, p in ipairs(group.params) do
              local own = self.state[p] or {mean = moth.zeros_like(p), step = moth.zeros(1)}
              self.state[p] = own
              count(self, own)
              own.mean:add_(p.grad)
              p:sub_(own.mean * own.step, {alpha = group.lr})
            end
          end
        end)
        return loss
      end
      return Own
    end
    local function in_place(_, own) own.step:add_(1) end

    local function losses(wrap, count)
      local p = parameter()
      local opt = owner(count or in_place)({p}, 0.1)
      local schedule = optim.lr_scheduler.ExponentialLR(opt, 0.5)
      local step = wrap(function()
        opt:zero_grad()
        local loss = p:square():sum()
        loss:backward()
        opt:step()
        return loss
      end)
      local list = {}
      for i = 1, 5 do
        list[i] = step():item()
        schedule:step()
      end
      return list
    end
    local function plainly(step) return step end

    it("keeps the state that it stores beyond a scope", function()
      assert.same(losses(plainly), losses(function(step)
        return function() return (moth.scope(step)) end
      end))
    end)

    it("is captured like others, or raises", function()
      assert.same(losses(plainly), losses(moth.capture))
      for _, count in ipairs {
        function(_, own)
          own.step:add_(1)
          own.n = (own.n or 0) + 1
        end,
        function(self, own)
          own.step:add_(1)
          self.n = (self.n or 0) + 1
        end,
      } do
        assert.has_error_like(function() losses(moth.capture, count) end,
          "the step of Own, which replaces 'n' in its state")
      end
    end)

    it("runs hooks once, also if it calls its base's step", function()
      local p, seen = parameter(), {}
      local function note(word)
        return function()
          seen[#seen + 1] = word
          return 3
        end
      end
      local Above = nn.class("Above", optim.SGD)
      function Above:step(closure) return optim.SGD.step(self, closure) end
      for _, opt in ipairs {Above({p}, {lr = 0}), owner(in_place)({p}, 0)} do
        p.grad, seen = moth.ones(2), {}
        opt:register_step_pre_hook(note "pre")
        opt:register_step_post_hook(note "post")
        assert.equal(3, (opt:step(note "closure")))
        assert.same({"pre", "closure", "post"}, seen)
      end
    end)
  end)
end)

describe("an optimizer raises for", function()
  local p = moth.zeros(2)

  it("parameters that are no leaf tensors", function()
    assert.has_error_like(function() optim.SGD {} end, "a list of tensors is needed, got an empty")
    assert.has_error_like(function() optim.SGD(p) end, "'params' to 'SGD'")
    assert.has_error_like(function() optim.SGD({p, 3}) end, "element 2 is 3, not a tensor")
    assert.has_error_like(function() optim.SGD({p:clone():requires_grad_() * 2}) end,
      "element 1, f32 %(2%), is the result of an op; only leaves are optimized")
    assert.has_error_like(function() optim.SGD({p, p}) end, "elements 1 and 2 are the same tensor")
    assert.has_error_like(function() optim.SGD({{p}, {p}}, {lr = 1}) end,
      "'params' to 'SGD' %(element 1 is a list of tensors; join the lists, or write {params = li")
    assert.has_error_like(function() optim.SGD({{parms = {p}}}, {lr = 1}) end,
      "group 1 has 'parms'; did you mean 'params'%?")
  end)

  it("options out of their range", function()
    assert.has_error_like(function() optim.SGD({p}, {lr = -1}) end,
      "bad argument 'lr' to 'SGD' %(a number from 0 on is needed, got %-1%)")
    assert.has_error_like(function() optim.SGD({p}, {lr = 0 / 0}) end, "'lr' to 'SGD'")
    assert.has_error_like(function() optim.SGD({p}, {nesterov = true}) end,
      "needs momentum above 0 and dampening 0")
    assert.has_error_like(function() optim.Adam({p}, {betas = {0.9, 1}}) end,
      "two numbers from 0 to below 1 are needed")
    assert.has_error_like(function() optim.SGD({{params = {p}, lr = "fast"}}) end, "got .*'fast'")
  end)

  it("unknown options, and suggests the nearest", function()
    assert.has_error_like(function() optim.SGD({p}, {lrr = 1}) end,
      "'SGD' has no argument 'lrr'; did you mean 'lr'%?")
    assert.has_error_like(function() optim.SGD({{params = {p}, momentun = 1}}) end,
      "SGD has no option 'momentun'; did you mean 'momentum'%?")
  end)

  it("but not for a user's fields in a group, which it keeps and saves", function()
    local function make()
      return optim.SGD({{params = {p}, name = "head", lr_scale = 0.5}}, {lr = 0.1})
    end
    local first, second = make(), make()
    assert.same({"head", 0.5, 0.1}, {first.param_groups[1].name, first.param_groups[1].lr_scale,
                                     first.param_groups[1].lr})
    first.param_groups[1].lr_scale = 0.25
    second:load_state_dict(first:state_dict())
    assert.equal(0.25, second.param_groups[1].lr_scale)
  end)
end)

describe("a tiny regression", function()
  local makers = {
    SGD = function(params) return optim.SGD(params, {lr = 0.2, momentum = 0.5}) end,
    Adam = function(params) return optim.Adam(params, {lr = 0.1}) end,
    AdamW = function(params) return optim.AdamW(params, {lr = 0.1, weight_decay = 0}) end,
  }
  for name, make in pairs(makers) do
    it("is solved by " .. name, function()
      local x = moth.randn(64, 2)
      local y = x:matmul(moth.tensor {{2.0}, {-3.0}}) + 0.5
      local net = nn.Linear(2, 1)
      local opt = make(net:parameters())
      local loss
      for _ = 1, 300 do
        opt:zero_grad()
        loss = F.mse_loss(net(x), y)
        loss:backward()
        opt:step()
      end
      assert.is_true(loss:item() < 1e-5, "loss " .. loss:item())
      assert.close({{2, -3}}, net.weight:tolist(), 1e-2)
      assert.close({0.5}, net.bias:tolist(), 1e-2)
    end)
  end
end)
