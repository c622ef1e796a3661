-- Optimizers on a GPU compute the same steps as on the CPU: all parameters of a group in one
-- launch, for any number, size and layout of parameters.

local moth = require "moth"
local cuda = require "spec.support.cuda"

local optim = moth.optim

local OPTIMIZERS = {
  {"SGD", {lr = 0.1}}, {"SGD", {lr = 0.1, momentum = 0.9}},
  {"SGD", {lr = 0.1, momentum = 0.9, nesterov = true, weight_decay = 0.1}},
  {"SGD", {lr = 0.1, momentum = 0.9, dampening = 0.3, maximize = true}},
  {"Adam", {lr = 0.1}}, {"Adam", {lr = 0.1, amsgrad = true, weight_decay = 0.1}},
  {"AdamW", {lr = 0.1}}, {"NAdam", {lr = 0.1}}, {"RAdam", {lr = 0.1}}, {"Adamax", {lr = 0.1}},
  {"RMSprop", {lr = 0.1}}, {"RMSprop", {lr = 0.1, momentum = 0.5}},
  {"RMSprop", {lr = 0.1, momentum = 0.5, centered = true}},
  {"Adagrad", {lr = 0.1, lr_decay = 0.1}}, {"Adadelta", {lr = 0.5, rho = 0.8}},
  {"Rprop", {lr = 0.1}}, {"ASGD", {lr = 0.1, lambd = 0.1, t0 = 3, weight_decay = 0.1}},
  {"Adafactor", {lr = 0.1, weight_decay = 0.1}},
}

-- Parameters of several dtypes and layouts: more than one launch holds, one of several chunks, one
-- without elements.
local function parameters()
  local params = {moth.randn(9001), moth.randn(0), moth.randn(4, 5):t(), moth.tensor(0.5),
                  moth.randn(7, {dtype = moth.float64}), moth.randn(40, {dtype = moth.bfloat16}),
                  moth.randn(33)[{{2, 30}}], moth.randn(9001, {dtype = moth.float16}),
                  moth.randn(77, {dtype = moth.bfloat16})[{{2, 70}}]}
  for i = 1, 130 do params[#params + 1] = moth.randn(i) end
  return params
end

describe("an optimizer on a GPU", function()
  if not cuda.here then
    pending("goes the way it goes on the CPU: " .. cuda.why)
    return
  end

  for _, row in ipairs(OPTIMIZERS) do
    local words = {}
    for key, value in pairs(row[2]) do words[#words + 1] = key .. " = " .. tostring(value) end
    table.sort(words)
    local name = row[1] .. " of " .. table.concat(words, ", ")
    it("computes the same steps as on the CPU: " .. name, function()
      local here, there = parameters(), {}
      for i, p in ipairs(here) do
        there[i] = (i == 3 and p:t():cuda():t() or p:cuda()):detach():requires_grad_()
        p:requires_grad_()
      end
      local one, other = optim[row[1]](here, row[2]), optim[row[1]](there, row[2])
      for _ = 1, 7 do
        for i, p in ipairs(here) do
          p.grad = moth.randn(p.shape, {dtype = p.dtype})
          there[i].grad = p.grad:cuda()
        end
        one:step()
        other:step()
      end
      for i, p in ipairs(here) do
        local tolerance = p.dtype == moth.bfloat16 and 1e-2 or p.dtype == moth.float16 and 2e-3
          or 1e-5
        assert.is_true(moth.allclose(p:detach(), there[i]:detach():cpu(), {rtol = tolerance,
          atol = tolerance}), "parameter " .. i)
      end
    end)
  end

  it("orthogonalizes Muon's matrices as the CPU does", function()
    local here, there = {moth.randn(5, 3), moth.randn(4, 9):t(), moth.randn(6, 6)}, {}
    for i, p in ipairs(here) do
      there[i] = p:cuda():detach():requires_grad_()
      p:requires_grad_()
      p.grad = moth.randn(p.shape)
      there[i].grad = p.grad:cuda()
    end
    for _, list in ipairs {here, there} do optim.Muon(list, {lr = 0.1}):step() end
    for i, p in ipairs(here) do
      assert.is_true(moth.allclose(p:detach(), there[i]:detach():cpu(), {rtol = 1e-2, atol = 1e-2}))
    end
  end)

  it("is part of one graph with the step around it, and uses a new learning rate there", function()
    for _, name in ipairs {"SGD", "Adam", "RAdam", "Rprop", "Adafactor", "Muon"} do
      local function steps(device, run)
        moth.manual_seed(5)
        local ws = {moth.randn(4, 6), moth.randn(5, 4)}
        for i, w in ipairs(ws) do ws[i] = w:to(device):detach():requires_grad_() end
        local opt = optim[name](ws, {lr = 0.1})
        local step = run(function(x)
          opt:zero_grad()
          x:matmul(ws[1]:t()):tanh():matmul(ws[2]:t()):square():mean():backward()
          opt:step()
        end)
        for i = 1, 6 do
          if i == 4 then opt.param_groups[1].lr = 0.03 end
          step(moth.randn(3, 6):to(device))
        end
        return ws, step
      end
      local here = steps("cpu", function(f) return f end)
      local there, step = steps("cuda", moth.cuda.graph)
      assert.equal("captured step (1 recording; a call is 1 graph)", tostring(step), name)
      for i, w in ipairs(here) do
        local most = name == "Muon" and 2e-2 or 1e-4
        assert.is_true(moth.allclose(w, there[i]:cpu(), {rtol = most, atol = most}), name)
      end
    end
  end)

  it("counts its writes as versions, so that an older backward graph is refused", function()
    local p = moth.randn(3, {device = "cuda"}):requires_grad_()
    local y = (p * p):mean()
    p.grad = moth.ones(3, {device = "cuda"})
    optim.SGD({p}, {lr = 0.1}):step()
    assert.has_error_like(function() y:backward() end, "changed")
  end)
end)
