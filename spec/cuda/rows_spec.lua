-- Softmax, norms and losses on a GPU, with rows long enough and many enough for every way to split
-- the work: values and gradients compared with the CPU. The samples of golden_spec are small.

local moth = require "moth"
local cuda = require "spec.support.cuda"

local F = moth.nn.functional

local function alike(wanted, got, tolerance, name)
  assert.is_true(got.is_cuda)
  assert.equal(wanted.dtype, got.dtype)
  local limit = tolerance * (1 + wanted:double():abs():max():item())
  local off = (got:cpu():double() - wanted:double()):abs():max():item()
  assert(off <= limit, ("%s: %g off, %g allowed"):format(name, off, limit))
end

local TOLERANCE = {float64 = 1e-12, float32 = 2e-6, bfloat16 = 1e-2}
local SINGLE = {float32 = 2e-6}

--- Runs fn(inputs ...) on both devices, and backward of random gradients.
local function compare(name, shapes, fn, tolerances)
  for dtype, tolerance in pairs(tolerances or TOLERANCE) do
    local here, there = {}, {}
    for i, shape in ipairs(shapes) do
      local x = moth.randn(shape, {dtype = moth[dtype]})
      here[i], there[i] = x:clone():requires_grad_(), x:cuda():requires_grad_()
    end
    local y, z = fn("cpu", unpack(here)), fn("cuda", unpack(there))
    alike(y:detach(), z:detach(), tolerance, name .. " in " .. dtype)
    local dy = moth.randn(y.shape, {dtype = y.dtype})
    y:backward(dy)
    z:backward(dy:cuda())
    for i = 1, #shapes do
      alike(here[i].grad, there[i].grad, 20 * tolerance, name .. "'s gradient in " .. dtype)
    end
  end
end

local ROWS = {
  {"rows of a warp", {5, 40}, 2}, {"rows of a warp, by 16 bytes", {9, 1024}, 2},
  {"rows of a block", {3, 5000}, 2}, {"ragged rows of a block", {3, 2051}, 2},
  {"lanes", {3, 70, 37}, 2}, {"a few lanes", {2, 300, 3}, 2}, {"a row", {7}, 1},
}

local function labels(n, classes, device)
  return moth.arange(0, n, {dtype = moth.int64}):mul(7):remainder(classes):add(1):to(device)
end

describe("on a GPU", function()
  if not cuda.here then
    pending("rows are as on the CPU: " .. cuda.why)
    return
  end

  for _, op in ipairs {"softmax", "log_softmax"} do
    it(op .. " is as on the CPU, of rows and lanes of any length", function()
      for _, row in ipairs(ROWS) do
        compare(op .. " of " .. row[1], {row[2]}, function(_, x) return F[op](x, row[3]) end)
      end
    end)

    it(op .. " of infinities and NaN is as on the CPU", function()
      local inf, nan = 1 / 0, 0 / 0
      local rows = {{inf, 1, 2}, {-inf, -inf, -inf}, {-inf, 0, 1}, {nan, 1, 2}, {1, nan, inf}}
      for _, row in ipairs(rows) do
        local x = moth.tensor(row)
        local y, z = F[op](x, 1), F[op](x:cuda(), 1):cpu()
        assert.is_true(moth.allclose(y, z, {equal_nan = true}))
        y, z = F[op](x:view(1, 3, 1), 2), F[op](x:cuda():view(1, 3, 1), 2):cpu()
        assert.is_true(moth.allclose(y, z, {equal_nan = true}))
      end
    end)
  end

  it("sums with factors equal the CPU's, for any length and dtype", function()
    local recur = require("moth.binding.bind").ops.recur
    for dtype, tolerance in pairs {float64 = 1e-12, float32 = 1e-5, float16 = 4e-3,
                                   bfloat16 = 3e-2} do
      for _, shape in ipairs {{5, 40}, {3, 70, 37}, {2, 9000}} do
        local x = moth.randn(shape):to(moth[dtype])
        local factor = (moth.rand(shape) * 0.8):to(moth[dtype])
        for _, back in ipairs {false, true} do
          alike(recur(x, factor, 2, back), recur(x:cuda(), factor:cuda(), 2, back), tolerance,
            "a sum with factors in " .. dtype)
        end
      end
    end
  end)

  it("unaligned rows have the CPU's results", function()
    -- Results are aligned to 16 bytes: an unaligned input has another alignment than they.
    local most = {float64 = 1e-12, float32 = 2e-6, bfloat16 = 2e-2, float16 = 2e-3}
    for dtype, tolerance in pairs(most) do
      for _, n in ipairs {67, 130, 131, 1023, 2051, 4099} do
        for off = 0, 3, 3 do
          local size = {4, n}
          local function rows(x) return x:narrow(1, 1 + off, 4 * n):view(size) end
          local all, dy = moth.randn(4 * n + 3), moth.randn(4 * n + 3)
          all, dy = all:to(moth[dtype]), dy:to(moth[dtype])
          for _, op in ipairs {"softmax", "log_softmax"} do
            local here, there = all:clone():requires_grad_(), all:cuda():requires_grad_()
            local y, z = F[op](rows(here), 2), F[op](rows(there), 2)
            local name = ("%s of %d in %s, %d off"):format(op, n, dtype, off)
            alike(y:detach(), z:detach(), tolerance, name)
            y:backward(rows(dy))
            z:backward(rows(dy:cuda()))
            alike(here.grad, there.grad, 20 * tolerance, name .. ", its gradient")
          end
        end
      end
    end
  end)

  it("short rows, which share a warp, have the CPU's results", function()
    local halves = {float32 = 2e-6, bfloat16 = 2e-2}
    for _, n in ipairs {1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 24, 31, 32, 33, 40, 63, 64, 96, 128} do
      compare("softmax of " .. n, {{37, n}}, function(_, x) return F.softmax(x, 2) end, halves)
      compare("log_softmax of " .. n, {{37, n}}, function(_, x) return F.log_softmax(x, 2) end,
        halves)
      compare("rms_norm of " .. n, {{37, n}, {n}}, function(_, x, w)
        return F.rms_norm(x, {n}, w)
      end, SINGLE)
      compare("cross_entropy of " .. n, {{37, n}}, function(device, x)
        return F.cross_entropy(x, labels(37, n, device))
      end, SINGLE)
    end
  end)

  it("norms of rows equal the CPU's", function()
    for _, n in ipairs {30, 1000, 3000, 5001} do
      compare("layer_norm of " .. n, {{5, n}, {n}, {n}}, function(_, x, w, b)
        return F.layer_norm(x, {n}, w, b)
      end)
      compare("rms_norm of " .. n, {{5, n}, {n}}, function(_, x, w)
        return F.rms_norm(x, {n}, w)
      end)
    end
    compare("layer_norm of many rows", {{700, 8}, {8}, {8}}, function(_, x, w, b)
      return F.layer_norm(x, {8}, w, b)
    end)
    compare("group_norm", {{3, 6, 20, 33}, {6}, {6}}, function(_, x, w, b)
      return F.group_norm(x, 2, w, b)
    end)
  end)

  it("norms of rows that are far from 0 are as accurate", function()
    for _, dtype in ipairs {"float32", "float64"} do
      for _, n in ipairs {40, 1000, 1501, 6000} do
        local x = (moth.randn(9, n) + 1e4):to(moth[dtype])
        x[2] = 1e10 / 3 -- all elements are equal: the variance is 0
        local wanted = F.layer_norm(x:double(), {n})
        wanted[2] = 0
        local got = F.layer_norm(x:cuda(), {n}):cpu():double()
        -- The mean contains the digits that f32 cannot hold; an error of the mean shifts the whole
        -- row.
        local off = dtype == "float64" and 1e-9 or 1e-3
        assert.is_true(moth.allclose(got, wanted, {rtol = 0, atol = off}))
        local one = got:var(2, {unbiased = false})
        one[2] = 1
        assert.is_true(moth.allclose(one, moth.ones(9):double(), {rtol = 2e-5, atol = 0}))
      end
      local images = (moth.randn(3, 6, 20, 33) - 3e3):to(moth[dtype])
      local got = F.group_norm(images:cuda(), 2):cpu():double()
      local wanted = F.group_norm(images:double(), 2)
      assert.is_true(moth.allclose(got, wanted, {rtol = 0, atol = 1e-3}))
    end
  end)

  it("channels far from 0, or from their first element, have the variance of f64", function()
    for _, shape in ipairs {{3000, 8}, {3000, 5}, {40, 3, 12, 8}, {40, 3, 5, 5}} do
      local c = shape[2]
      local x = moth.randn(shape) + 1e4
      local same = moth.randn(shape) * 1e-3 + 0.1
      same[1]:fill_(1000)
      for _, y in ipairs {x, same} do
        local mean, var = moth.zeros(c):cuda(), moth.ones(c):cuda()
        local mean64, var64 = moth.zeros(c):double(), moth.ones(c):double()
        F.batch_norm(y:cuda(), mean, var, nil, nil, {training = true, momentum = 1})
        F.batch_norm(y:double(), mean64, var64, nil, nil, {training = true, momentum = 1})
        local close = {rtol = 5e-6, atol = 0}
        assert.is_true(moth.allclose(mean:cpu():double(), mean64, close))
        assert.is_true(moth.allclose(var:cpu():double(), var64, {rtol = 1e-5, atol = 0}))
      end
    end
  end)

  it("weights of norms have the CPU's gradients, for many rows, in groups of any size", function()
    compare("layer_norm of many rows", {{9000, 12}, {12}, {12}}, function(_, x, w, b)
      return F.layer_norm(x, {12}, w, b)
    end, {float32 = 1e-5})
    for _, groups in ipairs {1, 3, 4, 6} do
      for _, format in ipairs {"contiguous_format", "channels_last"} do
        for _, size in ipairs {{5, 12, 6, 4}, {5, 12, 7, 5}} do
          compare("group_norm in " .. format, {size, {12}, {12}}, function(_, x, w, b)
            return F.group_norm(x:contiguous {memory_format = moth[format]}, groups, w, b)
          end)
        end
      end
    end
    local back = require("moth.binding.bind").ops.row_norm_back
    for _, dtype in ipairs {moth.float16, moth.bfloat16} do
      for _, inner in ipairs {16, 15} do
        for _, wide in ipairs {true, false} do
          local dy, x = moth.randn(4, 6, inner):to(dtype), moth.randn(4, 6, inner):to(dtype)
          if wide then x = x:float() end -- and a gradient in a half type, as in autocast
          local list = {dy, x, moth.rand(6), moth.randn(8), moth.rand(8) + 0.5}
          local _, w, b = back(list[1]:float(), list[2]:float(), list[3], list[4], list[5], 2, 3)
          for i, t in ipairs(list) do list[i] = t:cuda() end
          local _, dw, db = back(list[1], list[2], list[3], list[4], list[5], 2, 3)
          local close = {rtol = 2e-2, atol = 5e-2}
          assert.is_true(moth.allclose(dw:cpu():float(), w, close))
          assert.is_true(moth.allclose(db:cpu():float(), b, close))
        end
      end
    end
  end)

  it("norms of channels equal the CPU's, and so do running statistics", function()
    for _, shape in ipairs {{9, 5}, {700, 40}, {40, 3, 19, 8}, {3, 70, 5, 5}} do
      local c = shape[2]
      local mean, var = {}, {}
      for _, device in ipairs {"cpu", "cuda"} do
        mean[device], var[device] = moth.zeros(c), moth.ones(c)
      end
      compare("batch_norm of " .. table.concat(shape, "x"), {shape, {c}, {c}},
        function(device, x, w, b)
          mean[device] = mean[device]:to(device):to(x.dtype)
          var[device] = var[device]:to(device):to(x.dtype)
          return F.batch_norm(x, mean[device], var[device], w, b, {training = true})
        end)
      alike(mean.cpu, mean.cuda, 0.05, "running mean")
      alike(var.cpu, var.cuda, 0.05, "running variance")
    end
  end)

  it("norms of empty channels equal the CPU's, also without channels", function()
    for _, shape in ipairs {{2, 0}, {2, 0, 3}, {2, 3, 0}, {0, 3, 2}} do
      local c, left = shape[2], {}
      for _, device in ipairs {"cpu", "cuda"} do
        local mean, var = moth.ones(c):to(device), moth.ones(c):to(device)
        local w = moth.ones(c):to(device):requires_grad_()
        local x = moth.zeros(shape):to(device):requires_grad_()
        local y = F.batch_norm(x, mean, var, w, nil, {training = true})
        y:backward(moth.ones(shape):to(device))
        left[device] = {y.shape, x.grad.shape, mean:tolist(), w.grad:tolist()}
      end
      assert.same(left.cpu, left.cuda)
    end
  end)

  it("gradients of losses of many scores equal the CPU's in every dtype", function()
    for _, dtype in ipairs {moth.float16, moth.bfloat16, moth.float32, moth.float64} do
      for _, shape in ipairs {{25, 1500}, {2, 3, 40, 150}} do
        local t = moth.randint(1, shape[2] + 1, {shape[1], shape[3], shape[4]})
        local scores = moth.randn(shape, {dtype = dtype})
        for _, loss in ipairs {F.cross_entropy, F.nll_loss} do
          local got = {}
          for _, device in ipairs {"cpu", "cuda"} do
            local x = scores:to(device):detach():requires_grad_()
            loss(x, t:to(device)):backward()
            got[device] = x.grad:cpu():double()
          end
          local off = (got.cpu - got.cuda):abs():max():item()
          assert.is_true(off <= 0.01 * got.cpu:abs():max():item(), tostring(dtype))
        end
      end
    end
  end)

  it("losses of classes equal the CPU's, for few and for many cases", function()
    for _, shape in ipairs {{7, 5}, {4, 1500}, {25, 1500}, {2100, 3}, {2, 3, 5, 4},
      {2, 3, 40, 37}} do
      for _, reduction in ipairs {"mean", "sum", "none"} do
        local cases = shape[1] * (shape[3] or 1) * (shape[4] or 1)
        local target = shape[3] and {shape[1], shape[3], shape[4]} or {shape[1]}
        compare("cross_entropy of " .. table.concat(shape, "x"), {shape}, function(device, x)
          return F.cross_entropy(x, labels(cases, shape[2], device):view(target),
            {reduction = reduction, ignore_index = 2})
        end, shape[1] > 7 and SINGLE)
        compare("nll_loss of " .. table.concat(shape, "x"), {shape}, function(device, x)
          return F.nll_loss(x, labels(cases, shape[2], device):view(target),
            {reduction = reduction, weight = moth.arange(1, shape[2] + 1, {dtype = x.dtype,
              device = device})})
        end, SINGLE)
      end
    end
  end)

  it("losses of numbers equal the CPU's, for few and for many", function()
    for _, n in ipairs {5, 20000} do
      for _, reduction in ipairs {"mean", "sum", "none"} do
        for _, op in ipairs {"mse_loss", "l1_loss", "binary_cross_entropy_with_logits"} do
          compare(op, {{n}, {n}}, function(_, x, t)
            return F[op](x, t, {reduction = reduction})
          end, n > 5 and SINGLE)
        end
      end
    end
  end)

  it("an invalid target class is reported late, and the next call works", function()
    local x = moth.zeros(3, 4, {device = "cuda"})
    assert.has_error_like(function()
      return F.cross_entropy(x, moth.tensor({1LL, 9LL, 2LL}, {device = "cuda"})):item()
    end, "got class 9 of 4")
    assert.equal("E_INDEX", moth.errcode())
    assert.same({0, 0, 0, 0}, x[1]:tolist())
  end)
end)
