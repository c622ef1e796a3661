-- The limits of moth.kernel, at both sides of each: arguments, results, inputs, functions, kinds of
-- arguments; and what its text counts.

local moth = require "moth"

-- Returns the warning of a call of f, and f's first result.
local function warned(f, ...)
  local loaded, text = package.loaded["moth.base.warn"], nil
  package.loaded["moth.base.warn"] = function(message) text = message end
  local ok, result = pcall(f, ...)
  package.loaded["moth.base.warn"] = loaded
  assert.is_true(ok, tostring(result))
  return text, result
end

local function check(text, f, ...)
  local ok, problem = pcall(f, ...)
  assert.is_false(ok, "was taken: " .. text)
  local message = tostring(type(problem) == "table" and problem.message or problem)
  if not message:find(text, 1, true) then error(message .. "\nlacks: " .. text, 2) end
end

local x = moth.randn(50)

-- The line of a kernel's text for its last kind of arguments.
local function line(kernel) return tostring(kernel):match "([^\n]*)$" end

describe("a kernel has", function()
  it("1 to 8 arguments", function()
    local one = moth.kernel(function(a) return a * 2 end)
    assert.is_true(moth.equal(x * 2, one(x)))
    local eight = moth.kernel(function(a, b, c, d, e, f, g, h)
      return a + b * c - d + e * f - g * h
    end)
    assert.is_nil((warned(eight, x, x, x, x, x, x, x, x)))
    assert.is_truthy(line(eight):find "; 8 read, 6 between, 1 written$")
    check("bad argument 'fn' to 'kernel' (a function with 1 to 8 arguments is needed, got one "
      .. "with 9",
      moth.kernel, function(a, b, c, d, e, f, g, h, i)
        return a + b + c + d + e + f + g + h + i
      end)
    check("needed, got one with none", moth.kernel, function() return x end)
    check("needed, not with any number of them", moth.kernel, function(...) return (...) end)
    check("a module will not do; pass a function of tensors", moth.kernel, moth.nn.ReLU())
    check("(it takes 1 argument)", one, x, 2)
  end)

  it("1 to 4 results, which are tensors", function()
    local four = moth.kernel(function(a) return a, a + 1, a * 2, -a end)
    local list = {four(x)}
    assert.equal(4, #list)
    for i, wanted in ipairs {x, x + 1, x * 2, -x} do
      assert.is_true(moth.equal(wanted, list[i]), i)
    end
    local function five(a) return a, a, a, a, a end
    check("returns 5 values; 1 to 4 tensors are wanted", moth.kernel(five), x)
    check("returns 0 values; 1 to 4 tensors are wanted", moth.kernel(function(_) end), x)
    check("returns 3 as value 2; a tensor is wanted", moth.kernel(function(a) return a, 3 end), x)
    for n = 1, 4 do
      local kernel = moth.kernel(function(a)
        return unpack({a + 1, a + 2, a + 3, a + 4}, 1, n)
      end)
      local got = {kernel(x)}
      assert.equal(n, #got)
      for i = 1, n do assert.is_true(moth.equal(x + i, got[i])) end
    end
  end)

  it("8 tensors and constants, else it runs op by op", function()
    local function sum(n)
      return moth.kernel(function(a)
        local y = a
        for i = 1, n do y = y * (1 + i / 16) + a end
        return y
      end)
    end
    local seven, eight = sum(7), sum(8)
    local text, y = warned(seven, x)
    assert.is_nil(text)
    assert.is_true(moth.equal(seven.fn(x), y))
    text, y = warned(eight, x)
    assert.is_truthy(text:find("runs op by op: it reads 9 values, of 8", 1, true), text)
    assert.is_true(moth.equal(eight.fn(x), y))
    assert.is_truthy(line(eight):find "float32: op by op$")
    assert.is_nil((warned(eight, x))) -- once
  end)

  it("48 functions, else it runs op by op", function()
    local function chain(n)
      return moth.kernel(function(a)
        for _ = 1, n do a = a:sin() end
        return a
      end)
    end
    local most, more = chain(48), chain(49)
    local text, y = warned(most, x)
    assert.is_nil(text)
    assert.is_true(moth.equal(most.fn(x), y))
    text, y = warned(more, x)
    assert.is_truthy(text and text:find("runs op by op: ", 1, true), text)
    assert.is_true(moth.equal(more.fn(x), y))
  end)

  it("32 kinds of arguments, else it runs op by op", function()
    local kernel = moth.kernel(function(a, k) return a * k end)
    for k = 1, 32 do assert.is_nil((warned(kernel, x, k)), k) end
    for k = 1, 32 do assert.is_nil((warned(kernel, x, k)), k) end
    local text, y = warned(kernel, x, 33)
    assert.is_truthy(text:find("it was traced for 32 kinds of arguments; pass a number that "
      .. "differs "
      .. "at each call as a tensor of one element, moth.tensor(x)", 1, true), text)
    assert.is_true(moth.equal(x * 33, y))
    assert.is_true(moth.equal(x * 7, kernel(x, 7)))
  end)

  it("tensors, numbers, booleans, strings and nil as arguments, one tensor at least", function()
    local kernel = moth.kernel(function(a, b)
      local kind = type(b)
      if kind == "nil" then return a end
      if kind == "string" then return -a end
      if kind == "boolean" then return a * (b and 2 or 3) end
      return a + b
    end)
    local rows = {{nil, x}, {"neg", -x}, {true, x * 2}, {false, x * 3}, {3, x + 3}, {x, x + x}}
    for _, row in ipairs(rows) do
      assert.is_true(moth.equal(row[2], kernel(x, row[1])))
    end
    assert.is_true(moth.equal(x, (kernel(x))))
    check("a tensor, number, boolean or string is needed, got {}", kernel, x, {})
    check("at least one tensor is needed", kernel, 1, 2)
  end)

  it("a text for each kind of arguments", function()
    local kernel = moth.kernel(function(a, b) return a * b + 1 end)
    assert.is_truthy(tostring(kernel):find("%(a, b%)\n  not called yet$"))
    kernel(x, moth.tensor(2))
    assert.equal("  float32, float32 () -> float32: mul, add; 3 read, 1 between, 1 written",
      line(kernel))
    kernel(x:double(), 2)
    assert.equal("  float64, 2 -> float64: mul, add; 3 read, 1 between, 1 written", line(kernel))
    assert.equal(3, select(2, tostring(kernel):gsub("[^\n]+", "")))
  end)
end)

describe("the gradients of a kernel", function()
  it("flow to the arguments that require them, and sum over broadcast ones", function()
    local kernel = moth.kernel(function(a, b, c) return a * b + c end)
    local a = moth.randn(6, {requires_grad = true})
    local b = moth.tensor(3, {requires_grad = true})
    local c = moth.randn(6)
    kernel(a, b, c):sum():backward()
    assert.same({3, 3, 3, 3, 3, 3}, a.grad:tolist())
    assert.near(a:sum():item(), b.grad:item(), 1e-5)
    assert.is_nil(c.grad)
    assert.is_false(kernel(c, c, c).requires_grad)
    assert.is_false(moth.no_grad(function() return kernel(a, b, c) end).requires_grad)
  end)

  it("of one of several results is enough", function()
    local kernel = moth.kernel(function(a) return a * 2, a:exp(), a:ge(0) end)
    local a = moth.randn(5, {requires_grad = true})
    local _, second, third = kernel(a)
    second:sum():backward()
    assert.is_true(moth.allclose(a:exp(), a.grad))
    assert.is_false(third.requires_grad)
  end)
end)
