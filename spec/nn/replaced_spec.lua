-- A user's function in moth.nn.functional that replaces a built-in: layers of that name call it.

local moth = require "moth"
local nn, F = moth.nn, moth.nn.functional

-- Calls f while `other` replaces a function, and once more with the original.
local function with(name, other, f)
  local own = F[name]
  F[name] = other
  local ok, problem = pcall(f)
  F[name] = own
  if not ok then error(problem, 0) end
end

describe("a function in place of a built-in", function()
  it("is called by layers made before and after the replacement", function()
    local x, before = moth.ones(2), nn.GELU()
    with("gelu", moth.kernel(function(a) return a * 3 end), function()
      assert.are.same({3, 3}, before(x):tolist())
      assert.are.same({3, 3}, nn.GELU()(x):tolist())
    end)
    assert.are.equal(F.gelu(x)[1]:item(), before(x)[1]:item())
  end)

  it("does not change a class that is used first after it was removed", function()
    local lines = {
      'local moth = require "moth"',
      'local nn, F = moth.nn, moth.nn.functional',
      'F.silu = function(x) return x * 4 end',
      'F.elu = function(x, alpha) return x * alpha end',
      'assert(nn.SiLU()(moth.ones(1)):item() == 4)',
      'assert(nn.ELU(7)(moth.ones(1)):item() == 7)',
      'assert(tostring(nn.ELU()):find("alpha=1", 1, true), tostring(nn.ELU()))',
    }
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write(table.concat(lines, "\n"))
    file:close()
    local status = os.execute("./moth " .. path .. " 2>&1")
    os.remove(path)
    assert.is_true(status == 0 or status == true)
  end)

  it("receives the settings that differ from their defaults, and those before them", function()
    local got
    local x, target = moth.ones(2, 3), moth.tensor {1LL, 2LL}
    with("cross_entropy", function(...) got = {n = select("#", ...), ...}; return x end, function()
      nn.CrossEntropyLoss()(x, target)
      assert.are.equal(2, got.n)
      nn.CrossEntropyLoss {weight = moth.ones(3)}(x, target)
      assert.are.equal(3, got.n)
      nn.CrossEntropyLoss {reduction = "sum"}(x, target)
      assert.are.equal(5, got.n)
      assert.are.equal("sum", got[5])
    end)
    for name, n in pairs {LeakyReLU = 1, Hardtanh = 1, Softplus = 1, GLU = 1, CELU = 1, MSELoss = 2,
                          NLLLoss = 2, HuberLoss = 2, KLDivLoss = 2, PairwiseDistance = 2,
                          PoissonNLLLoss = 2, GaussianNLLLoss = 3, TripletMarginLoss = 3,
                          MarginRankingLoss = 3, MultiMarginLoss = 2} do
      local layer = nn[name]()
      with(layer._of, function(...) got = select("#", ...); return x end, function()
        layer(unpack({x, x, x}, 1, n))
        assert.are.equal(n, got, name)
      end)
    end
  end)

  it("that does not accept such a setting raises with its name", function()
    local x = moth.ones(2)
    for _, other in ipairs {function(a) return a end, moth.kernel(function(a) return a * 1 end)} do
      with("gelu", other, function()
        local layer = nn.GELU("tanh")
        assert.has_error_like(function() layer(x) end, "moth.nn.functional.gelu was replaced by "
          .. "a function of 1 argument, and approximate = a string %('tanh'%) would be argument 2")
      end)
    end
    with("gelu", function(...) return (...) end, function()
      assert.are.same({1, 1}, nn.GELU("tanh")(x):tolist())
    end)
  end)

  it("is called where relu is otherwise joined with the layer before it", function()
    local function triple(x) return x * 3 end
    for _, first in ipairs {nn.Linear(2, 2), nn.BatchNorm1d(2):eval()} do
      local net, x = nn.Sequential(first, nn.ReLU()), moth.randn(4, 2)
      net(x)
      with("relu", triple, function()
        assert.are.same((first(x) * 3):tolist(), net(x):tolist())
      end)
      assert.are.same(F.relu(first(x)):tolist(), net(x):tolist())
    end
  end)
end)
