-- moth.autograd.functional: Jacobians and Hessians with known values, their products with vectors,
-- and errors.

local moth = require "moth"
local A = moth.autograd.functional

local function T(values) return (moth.tensor(values, {dtype = moth.float64})) end
local function close(wanted, got) assert.close(wanted, got:tolist(), 1e-10) end

-- Two inputs and two results; nonlinear in both inputs.
local function both(x, y)
  return (x * y:sum()):sin(), (x:exp():sum() * y):view(1, -1)
end

local function bowl(x, y) return (x:pow(3) * y:sum()):sum() + (y * y):sum() * x[1] end

local x, y = T {0.5, -1, 2}, T {1.5, 0.25}

describe("a Jacobian", function()
  it("has the shape of the output, followed by the shape of the input", function()
    local m = T {{1, 2, 3}, {4, 5, 6}}
    close({{1, 2, 3}, {4, 5, 6}}, A.jacobian(function(v) return m:matmul(v) end, x))
    local J = A.jacobian(function(v) return v:t() * 2 end, m)
    assert.same({3, 2, 2, 3}, {unpack(J.shape)})
    assert.equal(2, J[{3, 1, 1, 3}]:item())
    assert.equal(12, J:sum():item())
  end)

  it("of a function with one element has the input's shape; of an empty one it is empty", function()
    close({1, -2, 4}, A.jacobian(function(v) return (v * v):sum() end, x))
    assert.same({0, 3}, {unpack(A.jacobian(function(v) return v:narrow(1, 1, 0) end, x).shape)})
    assert.same({3, 0}, {unpack(A.jacobian(function(v) return v:sum() + x end,
      moth.zeros(0)).shape)})
  end)

  it("is a list for several inputs and results", function()
    local J = A.jacobian(both, {x, y})
    assert.equal(2, #J)
    assert.same({3, 3}, {unpack(J[1][1].shape)})
    assert.same({3, 2}, {unpack(J[1][2].shape)})
    assert.same({1, 2, 3}, {unpack(J[2][1].shape)})
    assert.same({1, 2, 2}, {unpack(J[2][2].shape)})
    local s = y:sum()
    close((x * s):cos():view(3, 1):mul(moth.eye(3):double() * s):tolist(), J[1][1])
    close(x:exp():view(1, 1, 3):mul(y:view(1, 2, 1)):tolist(), J[2][1])
  end)

  it("is zero for an independent input, or an error if strict is set", function()
    local f = function(a) return a * 2 end
    local J = A.jacobian(f, {x, y})
    close({{0, 0}, {0, 0}, {0, 0}}, J[2])
    assert.has_error_like(function() A.jacobian(f, {x, y}, {strict = true}) end,
      "jacobian: no output depends on input 2")
    close({{0, 0, 0}}, A.jacobian(function() return moth.ones(1) end, x))
  end)

  it("can be differentiated again, and does not change the user's tensors", function()
    local p = T({0.5, -1}):requires_grad_()
    local J = A.jacobian(function(v) return v:pow(3) end, p, {create_graph = true})
    J:sum():backward()
    close({3, -6}, p.grad)
    p.grad = nil
    assert.is_false(A.jacobian(function(v) return v:pow(3) end, p).requires_grad)
    assert.is_nil(p.grad)
    moth.no_grad(function()
      close({{0.75, 0}, {0, 3}}, A.jacobian(function(v) return v:pow(3) end, p))
    end)
    assert.is_false(x.requires_grad)
  end)
end)

describe("a Hessian", function()
  it("contains the second derivatives and is symmetric", function()
    local H = A.hessian(function(v) return v:pow(3):sum() + v[1] * v[2] end, x)
    close({{3, 1, 0}, {1, -6, 0}, {0, 0, 12}}, H)
    local B = A.hessian(bowl, {x, y})
    close(B[1][2]:t():tolist(), B[2][1])
    close({{1, 0}, {0, 1}}, B[2][2])
  end)

  it("is zero for a linear function", function()
    close({{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, A.hessian(function(v) return v:sum() end, x))
  end)

  it("can be differentiated again", function()
    local p = T({2}):requires_grad_()
    A.hessian(function(v) return v:pow(4):sum() end, p, {create_graph = true}):sum():backward()
    close({48}, p.grad)
  end)
end)

describe("a product with a vector is the matrix times it:", function()
  local v, w = T {1, -2, 0.5}, T {3, 1}

  it("vjp", function()
    local J = A.jacobian(both, {x, y})
    local u1, u2 = T {1, 2, 3}, T {{-1, 0.5}}
    local out, product = A.vjp(both, {x, y}, {u1, u2})
    close((both(x, y)):tolist(), out[1])
    for k = 1, 2 do
      close((u1:view(1, 3):matmul(J[1][k]) + u2:matmul(J[2][k]:squeeze(1))):view(-1):tolist(),
        product[k])
    end
  end)

  it("jvp", function()
    local J = A.jacobian(both, {x, y})
    local _, product = A.jvp(both, {x, y}, {v, w})
    close((J[1][1]:matmul(v) + J[1][2]:matmul(w)):tolist(), product[1])
    close((J[2][1]:matmul(v) + J[2][2]:matmul(w)):tolist(), product[2])
  end)

  it("vhp and hvp", function()
    local H = A.hessian(bowl, {x, y})
    for _, f in ipairs {A.vhp, A.hvp} do
      local out, product = f(bowl, {x, y}, {v, w})
      close(bowl(x, y):item(), {tolist = function() return out:item() end})
      close((H[1][1]:matmul(v) + H[1][2]:matmul(w)):tolist(), product[1])
      close((H[2][1]:matmul(v) + H[2][2]:matmul(w)):tolist(), product[2])
    end
  end)

  it("has one tensor for one input; v may be left out for a single element", function()
    local out, product = A.vjp(function(a) return (a * a):sum() end, x)
    close({1, -2, 4}, product)
    assert.equal(5.25, out:item())
    close(3, (select(2, A.jvp(function(a) return a:sum() end, x, T {1, 1, 1}))))
    close({12}, (select(2, A.hvp(function(a) return a:pow(3):sum() end, T {2}))))
  end)

  it("can be differentiated again", function()
    local p = T({0.5, 1}):requires_grad_()
    local _, product = A.jvp(function(a) return a:pow(3) end, p, T {1, 1}, {create_graph = true})
    product:sum():backward()
    close({3, 6}, p.grad)
  end)

  it("raises for vectors of another shape", function()
    local f = function(a) return (a * a):sum() end
    assert.has_error_like(function() A.jvp(f, x) end, "argument 'v' to 'jvp' %(is needed unless")
    assert.has_error_like(function() A.hvp(f, x, y) end, "1 is f64 %(2%), but inputs has f64")
    assert.has_error_like(function() A.vhp(f, x, {x, x}) end, "1 tensor is needed")
    assert.has_error_like(function() A.vhp(moth.exp, x, x) end,
      "one tensor of one element is needed; it returned f64 %(3%)")
    assert.has_error_like(function() A.jacobian(moth.exp, moth.ones(2):long()) end,
      "floating tensors have gradients")
    assert.has_error_like(function() A.jacobian(function() end, x) end, "it returned nothing")
    assert.has_error_like(function() A.jacobian(3, x) end, "'func' to 'jacobian'")
  end)
end)
