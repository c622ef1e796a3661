-- Every way to write a call has the same result: by position, by name, in one table, as a method.

local moth = require "moth"
local registry = require "spec.support.registry"
local forms = require "spec.support.forms"

local nn, F, optim = moth.nn, moth.nn.functional, moth.optim
local f64 = moth.float64

local function same(a, b)
  if not moth.is_tensor(a) then return a == b end
  if a.dtype ~= b.dtype or a.shape ~= b.shape then return false end
  return tostring(a) == tostring(b) and a:sub(b):ne(0):logical_and(a:eq(a)):any():item() == false
end

local function values_of(x)
  local list = {}
  for i, v in ipairs(x) do
    if moth.is_tensor(v) and v.dtype == moth.bool then v = v:to(moth.int64) end
    list[i] = v
  end
  return list
end

describe("each op", function()
  for _, op in ipairs(registry.ops()) do
    it(op.name .. " has the same results in every form of call", function()
      if op.name:match "^empty" then return end
      for _, example in ipairs(op.examples) do
        local function run(form)
          moth.manual_seed(7)
          local given = registry.map(form.arguments, function(x) return x end)
          local got
          if form.method then
            if op.hidden or moth[op.name] ~= op.fn then return nil end -- a function over several
            got = { form.method[op.name](form.method, unpack(given, 1, given.n)) }
          else
            got = { op.fn(unpack(given, 1, given.n)) }
          end
          if op.list then got = got[1] end
          if op.outputs == "" then -- it writes to its argument, in any order
            got = registry.tensors(given)
            table.sort(got, function(a, b) return tostring(a) < tostring(b) end)
          end
          return values_of(got)
        end
        local function fresh()
          moth.manual_seed(3)
          local given = forms.positional(op, example.arguments())
          return forms.all(op, given)
        end
        local expected = run(fresh()[1])
        for i = 2, #fresh() do
          local form = fresh()[i]
          local ok, got = pcall(run, form)
          assert.is_true(ok, ("%s(%s) as %s: %s"):format(op.name, example.code, form.name,
            tostring(got)))
          if got then
            assert.equal(#expected, #got)
            for k = 1, #expected do
              assert.is_true(same(expected[k], got[k]),
                ("%s(%s) as %s differs"):format(op.name, example.code, form.name))
            end
          end
        end
      end
    end)
  end
end)

describe("a table", function()
  local x = moth.arange(6):to(f64):view(2, 3)

  it("is the value if the first parameter is a list of dims", function()
    local y = moth.arange(24):view(2, 3, 4)
    assert.same({ 60, 92, 124 }, y:sum{ 1, 3 }:tolist())
    assert.same({ 3 }, { unpack(y:sum{ 1, 3 }.shape) })
  end)

  it("is the list of arguments if it has a name", function()
    assert.same({ { 3, 5, 7 } }, x:sum{ 1, keepdim = true }:tolist())
    assert.same({ 15 }, { x:sum{ keepdim = false }:item() })
  end)

  it("is the list of arguments if the first parameter cannot be a table", function()
    assert.same({ { 2, 4 } }, moth.select{ moth.arange(8):view(2, 2, 2), 3, 1 }[{ { 1, 1 } }][{
      {}, {} }]:mul(1):add(moth.tensor{ { 2LL, 2LL } }):tolist())
    assert.same({ 1, 4 }, x:select{ 2, 2 }:tolist())
    assert.same({ 3, 12 }, moth.sum{ x, 2 }:tolist())
  end)

  it("that is empty means no options", function()
    local options = {}
    assert.same({ 15 }, { x:sum(options):item() })
    assert.same({ 2, 0 }, { unpack(moth.zeros(2, 0, options).shape) })
    assert.same({ 3, 2 }, { unpack(moth.nn.Linear(2, 3, options).weight.shape) })
    assert.equal(2, moth.optim.RAdam({ moth.ones(2) }, options).state_dict and 2)
    assert.has_error_like(function() moth.nn.Linear(2, options) end, "out_features")
    assert.has_error_like(function() moth.randn(2, 2):reshape(4, { 1 }) end, "reshape")
  end)

  it("whose first element is a table contains that value and the other arguments", function()
    assert.same({ { 7, 7, 7 }, { 7, 7, 7 } }, moth.full{ { 2, 3 }, 7 }:tolist())
    local a, b = moth.ones(1, 2), moth.zeros(1, 2)
    assert.same({ { 1, 1, 0, 0 } }, moth.cat{ { a, b }, 2 }:tolist())
    assert.same({ { 1, 1, 0, 0 } }, moth.cat({ a, b }, 2):tolist())
    assert.same({ { 1, 1, 0, 0 } }, moth.cat({ a, b }, { dim = 2 }):tolist())
    assert.same({ { 1, 1 }, { 0, 0 } }, moth.cat{ a, b }:tolist())
    assert.same({ { 1, 1, 0, 0 } }, moth.cat{ a, b, dim = 2 }:tolist())
  end)

  it("is the whole value for a variadic parameter, also with named arguments in it", function()
    assert.same({ { 0, 0, 0 }, { 0, 0, 0 } }, moth.zeros{ 2, 3 }:tolist())
    assert.equal(f64, moth.zeros{ 2, 3, dtype = f64 }.dtype)
    assert.same({ 2, 3 }, { unpack(moth.zeros{ 2, 3, dtype = f64 }.shape) })
    assert.equal(2, #nn.Sequential{ nn.ReLU(), nn.ReLU() })
    assert.equal(2, #nn.Sequential(nn.ReLU(), nn.ReLU()))
  end)

  it("is always data for moth.tensor", function()
    assert.same({ { 1, 2 }, { 3, 4 } }, moth.tensor{ { 1, 2 }, { 3, 4 } }:tolist())
    assert.equal(f64, moth.tensor{ { 1, 2 }, { 3, 4 }, dtype = f64 }.dtype)
    assert.equal(f64, moth.tensor({ 1, 2 }, { dtype = f64 }).dtype)
    assert.same({ 0 }, { unpack(moth.tensor{}.shape) })
  end)

  it("with a metatable is never a list of arguments", function()
    local size = moth.zeros(2, 3).shape
    assert.same({ 2, 3 }, { unpack(moth.ones(size).shape) })
    assert.same({ 3, 2 }, { unpack(x:view(moth.Size{ 3, 2 }).shape) })
    local named = setmetatable({ keepdim = true }, {})
    assert.has_error_like(function() return (x:sum(named)) end, "'dim' to 'sum'")
    assert.has_error_like(function() return (moth.add(x, setmetatable({ other = x }, {}))) end,
      "'other' to 'add'")
  end)

  it("of numbers may be of any length", function()
    local sizes, much = {}, {}
    for i = 1, 200 do sizes[i], much[i] = i % 3, 0.01 * i end
    local long = moth.arange(201)
    local pieces = long:split(sizes)
    assert.equal(200, #pieces)
    assert.same({ 198 }, pieces[199]:tolist())
    assert.equal(200, #moth.quantile(moth.randn(3):sort(), moth.tensor(much) / 2))
    sizes[150] = "x"
    assert.has_error_like(function() long:split(sizes) end, "'x'%) at position 150")
    sizes[150] = 1.5
    assert.has_error_like(function() long:split(sizes) end, "1.5 at position 150")
    local many = {}
    for i = 1, 100 do many[i] = 1 end
    assert.has_error_like(function() moth.zeros(many) end, "dim")
  end)

  it("of sizes may be written as separate arguments", function()
    assert.same({ 3, 2 }, { unpack(x:view(-1, 2).shape) })
    assert.same({ 3, 2 }, { unpack(x:view({ -1, 2 }).shape) })
    assert.same({ 3, 2 }, { unpack(x:view{ -1, 2 }.shape) })
    assert.same({ 3, 2 }, { unpack(x:reshape(3, 2).shape) })
    assert.same({ 4, 2, 3 }, { unpack(x:expand(4, 2, 3).shape) })
    assert.equal(f64, moth.randn(2, 3, { dtype = f64 }).dtype)
    assert.equal(f64, moth.ones(1, 1, 1, 1, 1, 1, 1, 1, { dtype = f64 }).dtype)
    assert.same({ 3, 2 }, { unpack(x:permute(2, 1).shape) })
  end)

  it("of parameters keeps its own meaning in an optimizer", function()
    local net = nn.Linear(2, 1)
    assert.equal(0.5, optim.SGD(net:parameters(), { lr = 0.5 }).param_groups[1].lr)
    assert.equal(0.5, optim.SGD{ net:parameters(), lr = 0.5 }.param_groups[1].lr)
    local groups = optim.SGD({ { params = { net.weight } }, { params = { net.bias }, lr = 2 } },
      { lr = 0.5 })
    assert.equal(0.5, groups.param_groups[1].lr)
    assert.equal(2, groups.param_groups[2].lr)
  end)

  it("works in constructors as in functions", function()
    for _, conv in ipairs{ nn.Conv2d(1, 10, 5), nn.Conv2d{ 1, 10, 5 },
      nn.Conv2d{ 1, 10, kernel_size = 5 }, nn.Conv2d(1, 10, { kernel_size = 5 }),
      nn.Conv2d{ in_channels = 1, out_channels = 10, kernel_size = { 5, 5 } } } do
      assert.same({ 10, 1, 5, 5 }, { unpack(conv.weight.shape) })
    end
  end)
end)

describe("clamp", function()
  it("accepts tensors as bounds, in place too, and computes their gradients", function()
    local x = moth.tensor({ -2, 0.5, 3 }):requires_grad_()
    local low = moth.zeros(3):requires_grad_()
    x:clamp { min = low, max = 1 }:sum():backward()
    assert.same({ 0, 1, 0 }, x.grad:tolist())
    assert.same({ 1, 0, 0 }, low.grad:tolist())
    local y = moth.arange(3):float()
    assert.equal(y, y:clamp_(nil, moth.tensor { 1, 0, 3 }):clamp_min_(0.5))
    assert.same({ 0.5, 0.5, 2 }, y:tolist())
    assert.has_error_like(function() return (x:clamp(moth.ones(2))) end, "bad argument 'min'")
  end)
end)

describe("moth.none", function()
  it("passes None by name, for optional arguments", function()
    local x = moth.ones(2, 3)
    assert.equal(6, x:sum{ dim = moth.none }:item())
    assert.equal(moth.float32, x:sum{ dim = 1, dtype = moth.none }.dtype)
    local y = F.linear(x, moth.ones(4, 3), { bias = moth.none })
    assert.same({ { 3, 3, 3, 3 }, { 3, 3, 3, 3 } }, y:tolist())
    assert.same({ { 1, 1, 1 }, { 1, 1, 1 } }, x:clamp(moth.none, 1):tolist())
    assert.equal(0.5, x:div(2, { rounding_mode = moth.none })[1][1]:item())
  end)

  it("raises for arguments that cannot be None", function()
    local x = moth.ones(2, 3)
    assert.has_error_like(function() return (x:sum{ keepdim = moth.none }) end, "'keepdim'")
    assert.has_error_like(function() return (moth.add(x, moth.none)) end, "'other'")
    assert.has_error_like(function() return (moth.relu(moth.none)) end, "'input'")
    assert.has_error_like(function() return (moth.cat({ x }, moth.none)) end, "'dim'")
    assert.has_error_like(function() return (F.mse_loss(x, x, { reduction = moth.none })) end,
      "'reduction'")
  end)
end)

describe("results", function()
  it("of an op with several results are several values", function()
    local v, i, more = moth.tensor{ { 1, 5, 2 }, { 7, 0, 3 } }:max(2)
    assert.same({ 5, 7 }, v:tolist())
    assert.same({ 2, 1 }, i:tolist())
    assert.is_nil(more)
    assert.equal(2, select("#", moth.tensor{ { 1, 5 } }:min(2)))
    assert.equal(1, select("#", moth.tensor{ { 1, 5 } }:min()))
  end)

  it("whose number depends on the arguments are one list", function()
    local x = moth.arange(6):view(3, 2)
    local q, k, v = unpack(x:split(1, { dim = 1 }))
    assert.same({ { 0, 1 }, { 2, 3 }, { 4, 5 } }, { q[1]:tolist(), k[1]:tolist(), v[1]:tolist() })
    assert.is_nil(getmetatable(x:unbind()))
    assert.equal(3, #x:unbind())
    assert.equal(2, #x:chunk(2))
    assert.equal(1, select("#", x:chunk(2)))
  end)

  it("raise if a loss class is called with tensors, since it makes a module", function()
    local scores, classes = moth.randn(2, 3), moth.tensor({1, 2}, {dtype = moth.int64})
    assert.has_error_like(function() return (moth.nn.CrossEntropyLoss(scores, classes)) end,
      "nn.CrossEntropyLoss%(...%) makes a module; that is then called with tensors")
  end)

  it("that were passed on by mistake are named in the error", function()
    local x = moth.randn(2, 3)
    local hint = "a second result passed on?"
    local function refused(f) assert.has_error_like(f, hint) end
    refused(function() return (moth.sum(x, 1, x:gt(0))) end)
    refused(function() return (F.dropout(x:max(1))) end)
    refused(function() return (F.mse_loss(x, x, (x:gt(0)))) end)
    refused(function() return (F.softmax(x:max(1))) end)
    refused(function() return (moth.zeros(2, { dtype = x })) end)
    assert.has_no_error(function() return (F.softmax((x:max(2)), 1)) end)
    assert.has_error_like(function() return (F.dropout(x, x[1][1])) end,
      "x:item%(%) is its number")
  end)
end)

describe("a call", function()
  local x = moth.ones(2, 3)

  it("with an unknown name suggests the nearest name", function()
    assert.has_error_like(function() return (x:sum{ keepdims = true }) end,
      "'sum' has no argument 'keepdims'; did you mean 'keepdim'%?")
    assert.has_error_like(function() return (F.max_pool2d(moth.ones(1, 2, 2), { kernal = 2 })) end,
      "'max_pool2d' has no argument 'kernal'")
    assert.has_error_like(function() return (nn.Conv2d{ 1, 2, kernelsize = 3 }) end,
      "'Conv2d' has no argument 'kernelsize'; did you mean 'kernel_size'%?")
    assert.has_error_like(function() return (moth.zeros{ 2, dtyp = f64 }) end,
      "did you mean 'dtype'%?")
  end)

  it("that passes an argument twice raises and names it", function()
    assert.has_error_like(function() return (x:sum(1, { dim = 2 })) end, "given twice")
    assert.has_error_like(function() return (moth.add{ x, x, other = x }) end, "given twice")
  end)

  it("with too many values raises and says how many it takes", function()
    assert.has_error_like(function() return (moth.relu(x, x, x)) end, "one more: f32 %(2, 3%)")
    assert.has_error_like(function() return (moth.relu{ x, x, x }) end, "one more: f32 %(2, 3%)")
    assert.has_error_like(function() return (x:t(1)) end, "'t' takes 1 argument, got one more: 1")
  end)

  it("treats a nil in the middle as not given", function()
    assert.same({ { 3 }, { 3 } }, moth.sum(x, 2, true):tolist())
    assert.same({ { 6 } }, moth.sum(x, nil, true):tolist())
    assert.equal(f64, moth.sum(x, nil, nil, f64).dtype)
  end)
end)
