-- Wrong calls: each raises an error at the user's line that names the function, the argument, the
-- wanted and the passed value, and changes nothing.

local ffi = require "ffi"
local moth = require "moth"
local intact = require "spec.support.intact"
local forms = require "spec.support.forms"
local mistakes = require "spec.support.wrong_values"
local registry = require "spec.support.registry"

local nn, F, optim = moth.nn, moth.nn.functional, moth.optim
local refuses = intact.refuses

describe("an op", function()
  for _, op in ipairs(registry.ops()) do
    it(op.name .. " raises for values that the FFI would convert", function()
      local first = op.examples[1].arguments()
      for _, arg in ipairs(op.args) do
        local takes_numbers = op.numbers and arg.kind:find("^tensor%??$") and arg.name ~= "out"
          and not (op.mutates and arg == op.args[1])
        for _, name in ipairs(mistakes.of(arg.kind, takes_numbers)) do
          local given = forms.named(op, forms.positional(op, first))
          given[arg.name] = mistakes.values[name]()
          local ok, message = pcall(op.fn, given)
          local what = ("%s{%s = %s}"):format(op.name, arg.name, name)
          assert.is_false(ok, what .. " was taken")
          assert.is_string(message)
          assert.truthy(message:find(("bad argument '%s' to '"):format(arg.name), 1, true)
            or message:find("got numbers only", 1, true), what .. ": " .. message)
        end
        local given = forms.named(op, forms.positional(op, first))
        if arg.fallback == "" and given[arg.name] ~= nil then
          given[arg.name] = nil
          if next(given) ~= nil then
            local ok, message = pcall(op.fn, given)
            assert.is_false(ok, op.name .. " without " .. arg.name .. " was taken")
            assert.truthy(message:find(arg.name, 1, true), message)
          end
        end
      end
    end)
  end

  it("says how to convert an int64 where a plain number is wanted, and only there", function()
    refuses(function() return (moth.zeros(12345678LL, 3)) end,
      "integers in a row or in a list, got 12345678LL, an int64; write 12345678)")
    refuses(function() return (nn.Linear(3LL, 2)) end, "got 3LL, an int64; write 3)")
    refuses(function() return (F.relu(7LL)) end, "a tensor is needed, got 7LL)")
    refuses(function() return (moth.ones(2):shape()) end, "a shape is a field, not a method")
  end)

  it("changes nothing after any mistake", function()
    local done = {}
    for _, op in ipairs(registry.ops()) do
      local family = op.family
      if not op.hidden and op.args[1] and (done[family] or 0) < 2 then
        done[family] = (done[family] or 0) + 1
        local first = op.examples[1].arguments()
        local last = op.args[#op.args]
        local tensors = registry.tensors(first)
        for _, name in ipairs{ "a released tensor", "a forged handle", "string", "an array" } do
          local given = forms.named(op, forms.positional(op, first))
          local value = mistakes.values[name]()
          intact.message(function()
            given[last.name] = value
            op.fn(given)
          end, tensors)
        end
      end
    end
  end)
end)

describe("a released tensor", function()
  it("raises in fields, methods, operators and brackets", function()
    local x = moth.ones(2)
    x:free()
    local y = moth.ones(2)
    refuses(function() return (x.shape) end, "this tensor was released", { y })
    refuses(function() return (x:sum()) end, "bad argument 'input' to 'sum'", { y })
    refuses(function() return (y + x) end, "bad argument 'other' to 'add'", { y })
    refuses(function() return (x[1]) end, "released", { y })
    refuses(function() return (x[{ { 1, 2 } }]) end, "released", { y })
    refuses(function() x[1] = 2 end, "released", { y })
    refuses(function() y[1] = x end, "released", { y })
    refuses(function() return (#x) end, "released", { y })
    refuses(function() return (x:item()) end, "released", { y })
    refuses(function() x:free() end, "released", { y })
    refuses(function() x.grad = nil end, "released", { y })
    refuses(function() return (x.grad) end, "released", { y })
    refuses(function() y.grad = x end, "released", { y })
    refuses(function() y.data = x end, "released", { y })
    refuses(function() x:backward() end, "released", { y })
    refuses(function() moth.keep(x) end, "released", { y })
    refuses(function() x:register_hook(print) end, "released", { y })
    refuses(function() moth.token(x) end, "released", { y })
    assert.equal("[moth tensor, released]", tostring(x))
    assert.is_true(moth.is_tensor(x))
  end)

  it("raises although another tensor has its slot", function()
    local x = moth.ones(2)
    local old = mistakes.older(x)
    refuses(function() return (moth.relu(old)) end, "bad argument 'input' to 'relu'", { x })
    refuses(function() old:add_(1) end, "bad argument 'input'", { x })
    refuses(function() old:free() end, "released", { x })
    assert.same({ 1, 1 }, x:tolist())
  end)
end)

describe("ten common mistakes", function()
  local x = moth.ones(2, 3)

  it("1: shapes that do not broadcast are both named", function()
    local y = moth.ones(3, 2)
    refuses(function() return (x + y) end,
      "bad argument 'other' to 'add' (f32 (3, 2) cannot be broadcast with f32 (2, 3))", { x, y })
    assert.equal("E_SHAPE", moth.errcode())
    assert.same({ { 2, 2, 2 }, { 2, 2, 2 } }, (x + moth.ones(3)):tolist())
  end)

  it("2: matrices that cannot be multiplied are both named", function()
    local y = moth.ones(4, 5)
    refuses(function() return (moth.mm(x, y)) end,
      "f32 (2, 3) cannot be multiplied with f32 (4, 5)", { x, y })
    refuses(function() return (moth.mm(x, y)) end, "bad argument 'mat2' to 'mm'", { x, y })
    refuses(function() return (x:matmul(y)) end, "bad argument 'other' to 'matmul'", { x, y })
    refuses(function() return (moth.bmm(x, y)) end, "to 'bmm'", { x, y })
    refuses(function() return (moth.mv(x, moth.ones(4))) end, "bad argument 'vec' to 'mv'", { x })
    refuses(function() return (moth.dot(moth.ones(3), moth.ones(4))) end,
      "bad argument 'tensor' to 'dot'", { x })
  end)

  it("3: an argument that is nil", function()
    refuses(function() return (x:add(nil)) end,
      "bad argument 'other' to 'add' (a tensor or a number is needed, got nothing)", { x })
    refuses(function() return (x + nil) end, "bad argument 'other' to 'add'", { x })
    refuses(function() return (x + {}) end, "bad argument 'other' to 'add'", { x })
    refuses(function() return (x + "3") end, "got a string ('3')", { x })
    refuses(function() return ("3" + x) end, "bad argument 'input' to 'add'", { x })
    assert.equal("E_TYPE", moth.errcode())
  end)

  it("4: dtypes that differ are promoted, or both named with the remedy", function()
    local d = moth.ones(2, 3, { dtype = moth.float64 })
    assert.equal(moth.float64, (x + d).dtype)
    refuses(function() return (x:matmul(d:t())) end, "f32 (2, 3)", { x, d })
    refuses(function() return (x:matmul(d:t())) end, ":to()", { x, d })
    assert.equal("E_DTYPE", moth.errcode())
  end)

  it("5: a position out of range names position, dim and size, from 1", function()
    local v = moth.ones(3)
    refuses(function() return (v[4]) end,
      "position 4 is out of range for dim 1 of f32 (3), which has size 3", { v })
    refuses(function() return (v[0]) end, "positions count from 1, got 0", { v })
    refuses(function() return (v[-4]) end, "position -4 is out of range", { v })
    refuses(function() return (moth.ones(3, 2)[5]) end, "position 5 is out of range", { v })
    refuses(function() return (x:narrow(2, 3, 2)) end, "to 'narrow'", { x })
    refuses(function() return (x:index_select(2, { 4 })) end, "'index' to 'index_select'", { x })
    refuses(function() return (x:index_select(2, { 4 })) end, "4", { x })
    assert.equal("E_INDEX", moth.errcode())
  end)

  it("6: a layer with an input of another dtype names itself and both tensors", function()
    local net = nn.Linear(3, 2)
    local d = moth.ones(3, { dtype = moth.float64 })
    refuses(function() return (net(d)) end, "in net: bad argument", { d, net.weight })
    refuses(function() return (net(d)) end, "f64 (3)", { d })
    refuses(function() return (net(d)) end, "f32 (2, 3)", { d })
  end)

  it("7: a class that is out of range, counted from 1", function()
    local y = moth.randn(2, 3)
    refuses(function() return (F.nll_loss(y, { 0, 1 })) end,
      "bad argument 'target' to 'nll_loss' (positions count from 1, got 0", { y })
    refuses(function() return (F.nll_loss(y, { 1, 4 })) end,
      "the target at position 2 is class 4, but there are 3 classes", { y })
    refuses(function() return (F.cross_entropy(y, { 4, 1 })) end, "class 4", { y })
    refuses(function() return (F.nll_loss(y, y:argmax(2):to(moth.float32))) end, "'target'", { y })
    assert.equal("E_DTYPE", moth.errcode())
  end)

  it("8: a misspelt name", function()
    refuses(function() return (x:summ()) end,
      "a tensor has no field or method 'summ'; did you mean 'sum'?", { x })
    refuses(function() return (moth.oness(2)) end, "moth has no 'oness'; did you mean 'ones'?")
    refuses(function() return (nn.Liner(2, 3)) end, "did you mean 'Linear'?")
    refuses(function() return (F.rleu(x)) end, "did you mean 'relu'?")
    refuses(function() return (optim.SDG({}, {})) end, "did you mean 'SGD'?")
    refuses(function() return (F.nll_loss(x, { 1, 1 }, { reduction = "meen" })) end,
      "did you mean 'mean'?")
    refuses(function() return (moth.float33) end, "did you mean 'float32'?")
  end)

  it("9: cat and ragged tables name the part that differs", function()
    local y = moth.ones(3, 4)
    refuses(function() return (moth.cat({ x, y }, 1)) end,
      "number 2 is f32 (3, 4), the first is f32 (2, 3): they may differ in dim 1 only", { x, y })
    refuses(function() return (moth.stack{ x, y }) end, "f32 (3, 4)", { x, y })
    refuses(function() return (moth.tensor{ { 1, 2 }, { 3 } }) end,
      "row 2 has 1 element where row 1 has 2")
    refuses(function() return (moth.cat{ x, y, 3 }) end, "got 3 at position 3", { x, y })
  end)

  it("10: constructors, layers and optimizers without a needed argument", function()
    local net = nn.Linear(3, 2)
    refuses(function() return (nn.Linear()) end,
      "bad argument 'in_features' to 'Linear' (an integer is needed, got nothing)")
    refuses(function() return (net:forward(nil)) end, "bad argument 'input' to 'linear'")
    refuses(function() return (net(nil)) end, "in net: bad argument 'input' to 'linear'")
    refuses(function() return (optim.SGD(nil, { lr = 0.1 })) end,
      "bad argument 'params' to 'SGD' (a list of parameters is needed")
    refuses(function() return (optim.SGD({}, { lr = 0.1 })) end, "'params'")
    refuses(function() return (optim.SGD({ 3 }, { lr = 0.1 })) end, "'params'")
  end)
end)

describe("an error of an inner op", function()
  local x = moth.ones(2, 3, 4)

  it("uses the names of the called function", function()
    refuses(function() local _ = moth.corrcoef(x) end,
      ": bad argument 'input' to 'corrcoef' (a matrix", { x })
    refuses(function() local _ = F.gumbel_softmax(x, { dim = 5 }) end,
      ": bad argument 'dim' to 'gumbel_softmax' (", { x })
    refuses(function() local _ = F.cosine_similarity(x, moth.ones(5)) end,
      ": bad argument 'x2' to 'cosine_similarity' (", { x })
  end)

  it("names nothing twice, and names modules by their path", function()
    local line = debug.getinfo(1, "l").currentline + 1
    refuses(function() local _ = F.softmax(x, 5) end,
      ("errors_spec.lua:%d: bad argument 'dim' to 'softmax'"):format(line))
    refuses(function() local _ = nn.CosineSimilarity(1)(x, moth.ones(5)) end,
      ": in CosineSimilarity: bad argument 'x2' to 'cosine_similarity'")
  end)

  it("shows sequences with their own shape, not as images of height one", function()
    local w = moth.ones(4, 5, 3)
    refuses(function() local _ = F.conv1d(x, w) end,
      "(the filters f32 (4, 5, 3) need 5 channels, got f32 (2, 3, 4))", { x, w })
    refuses(function() local _ = F.conv1d(x, moth.ones(4, 3, 9), { dilation = 2 }) end,
      "(a kernel of {9} with dilation {2} does not fit f32 (2, 3, 4))", { x })
    refuses(function() local _ = F.conv1d(x, moth.ones(4, 3, 2), { stride = 0 }) end,
      "'stride' to 'conv1d' (numbers from 1 on are needed, got {0})", { x })
    refuses(function() local _ = F.conv_transpose1d(x, w) end, "got f32 (2, 3, 4))", { x, w })
    refuses(function() local _ = F.max_pool1d(x, 5) end,
      "'kernel_size' to 'max_pool1d' ({5} does not fit f32 (2, 3, 4))", { x })
    refuses(function() local _ = F.avg_pool1d(x, { kernel_size = 2, padding = 2 }) end,
      "({2} is more than half the window {2})", { x })
    refuses(function() local _ = F.adaptive_avg_pool1d(x, -1) end, "got {-1})", { x })
  end)
end)

describe("a mistake that other libraries ignore", function()
  local x = moth.ones(2, 3)

  it("raises: adding by element count, invalid sizes, comparison by value", function()
    refuses(function() return (x + moth.ones(3, 2)) end, "cannot be broadcast", { x })
    refuses(function() return (moth.zeros(-3)) end, "a size cannot be negative: {-3}")
    refuses(function() return (moth.zeros(2.7)) end, "got 2.7")
    refuses(function() return (x == 3) end, "use x:eq(3) or x:item() == 3", { x })
    refuses(function() return (x < 3) end, "use x:lt(3)", { x })
    refuses(function() return (3 < x) end, "use x:gt(3)", { x })
    refuses(function() return (x <= x) end, "use a:le(b)", { x })
  end)

  it("raises: unknown fields, backward before forward", function()
    refuses(function() return (x.foo) end, "a tensor has no field or method 'foo'", { x })
    refuses(function() x.foo = 3 end, "a tensor has no field 'foo' to assign", { x })
    refuses(function() x.shape = { 1 } end, "'shape' of a tensor cannot be assigned", { x })
    refuses(function() x:sum():backward() end, "does not require grad", { x })
    assert.equal("E_GRAPH", moth.errcode())
  end)

  it("does not show old memory in new tensors", function()
    for _ = 1, 4 do
      local dirty = moth.full({ 5000 }, 7)
      dirty:free()
      assert.equal(0, moth.zeros(5000):abs():max():item())
    end
  end)

  it("does not equal a value of another type", function()
    local f = { s = "3", t = {}, n = nil, b = print }
    assert.is_true(x == x) -- luacheck: ignore
    assert.is_false(x == x:clone())
    assert.is_false(x == f.n)
    assert.is_false(x == f.s)
    assert.is_false(x == f.t)
    assert.is_false(x == f.b)
    refuses(function() return (x == true) end, "use x:eq(true)", { x })
  end)
end)

describe("more values than a call can take", function()
  it("raise with the name of the argument that has them", function()
    local list, parts, schedules, epochs = {}, {}, {}, {}
    local optimizer = optim.SGD({ nn.Parameter(moth.ones(1)) }, { lr = 1 })
    for i = 1, 7001 do
      list[i], parts[i] = moth.ones(1), moth.data.TensorDataset(moth.ones(1))
      schedules[i], epochs[i] = optim.lr_scheduler.ConstantLR(optimizer), i
    end
    local function refused(fname, argname, ...)
      assert.has_error_like(..., ("bad argument '%s' to '%s' %%(a call in Lua takes at most 7000 "
        .. "values, got 7001"):format(argname, fname))
    end
    refused("TensorDataset", "tensors", function() moth.data.TensorDataset(list) end)
    refused("StackDataset", "datasets", function() moth.data.StackDataset(parts) end)
    refused("functional_call", "args", function()
      moth.func.functional_call(nn.Identity(), {}, list)
    end)
    refused("jacobian", "inputs", function()
      moth.autograd.functional.jacobian(function(...) return (...) end, list)
    end)
    refused("ChainedScheduler", "schedulers", function()
      optim.lr_scheduler.ChainedScheduler(schedules)
    end)
    refused("SequentialLR", "schedulers", function()
      epochs[7001] = nil
      optim.lr_scheduler.SequentialLR(optimizer, schedules, epochs)
    end)
  end)
end)

describe("shapes and sizes", function()
  local x = moth.ones(2, 3)

  it("in messages are those of the user's tensor", function()
    refuses(function() return (x:view(4, 2)) end,
      "bad argument 'shape' to 'view' ({4, 2} does not fit the 6 elements of f32 (2, 3))", { x })
    refuses(function() return (x:view(-1, -1)) end, "'shape' to 'view'", { x })
    refuses(function() return (x:expand(3, 3)) end, "'size' to 'expand'", { x })
    refuses(function() return (F.max_pool2d(moth.ones(2, 3, 8, 8), { 9, 9 })) end,
      "bad argument 'kernel_size' to 'max_pool2d' ({9, 9} does not fit f32 (2, 3, 8, 8))")
    refuses(function() return (F.conv2d(moth.ones(1, 1, 3, 3), moth.ones(8, 1, 5, 5))) end,
      "a kernel of {5, 5} does not fit f32 (1, 1, 3, 3)")
    refuses(function() return (F.conv2d(moth.ones(1, 1, 28, 28), moth.ones(8, 3, 5, 5))) end,
      "need 3 channels, got f32 (1, 1, 28, 28)")
    refuses(function() return (moth.ones(2, 2):item()) end, "f32 (2, 2)")
  end)

  it("that are too large raise before an allocation", function()
    refuses(function() return (moth.zeros(2 ^ 40, 2 ^ 40)) end, "more elements than")
    refuses(function() return (moth.zeros(2 ^ 50)) end, "out of memory")
    assert.equal("E_MEM", moth.errcode())
    refuses(function() return (moth.zeros(1, 1, 1, 1, 1, 1, 1, 1, 1)) end,
      "at most 8 dimensions are possible, got more")
    refuses(function() return (moth.zeros(1e300)) end, "1e+300")
  end)

  it("of a C host may be any int64", function()
    local lib = require "moth.binding.lib"
    local C, ctx, least = lib.C, lib.ctx, -0x8000000000000000LL
    local slots, y = ffi.new "moth_slot[4]", ffi.new "moth_handle[1]"
    local border = ffi.new("int64_t[2]", least, least)
    slots[0].handle, slots[1].pointer, slots[2].integer = x, border, 2
    for mode = 0, 3 do -- UBSan detects overflows
      slots[3].integer = mode
      assert.is_true(C.moth_call(ctx, C.moth_op_find "pad", slots, 4, 7, y, 1) < 0)
      assert.equal("pad", ffi.string(C.moth_error_arg(ctx)))
    end
  end)

  it("of dims count from 1", function()
    refuses(function() return (x:sum(0)) end, "dimensions count from 1, got 0", { x })
    refuses(function() return (x:sum(3)) end,
      "dim 3 is out of range: wanted 1 to 2 or -2 to -1", { x })
    refuses(function() return (x:sum{ 1, 1 }) end, "'dim' to 'sum'", { x })
    refuses(function() return (x:size(3)) end, "'dim' to 'size'", { x })
    refuses(function() return (x:transpose(1, 4)) end, "dim 4 is out of range", { x })
    refuses(function() return (x:unsqueeze(4)) end, "dim 4 is out of range: wanted 1 to 3", { x })
  end)
end)

describe("writes that raise", function()
  it("change neither values nor versions", function()
    local x, i = moth.ones(2, 3), moth.ones(3, { dtype = moth.int64 })
    refuses(function() x:add_(moth.ones(5, 2, 3)) end, "add_", { x })
    refuses(function() x:copy_(moth.ones(4)) end, "copy_", { x })
    refuses(function() x[3] = 1 end, "position 3 is out of range", { x })
    refuses(function() x[{ {}, 4 }] = 1 end, "position 4 is out of range", { x })
    refuses(function() x[1] = "a" end, "a string ('a')", { x })
    refuses(function() x[1] = { 1, 2 } end, "cannot be broadcast", { x })
    refuses(function() i:add_(0.5) end, "add_", { i })
    refuses(function() i:fill_(0.5) end, "fill_", { i })
    refuses(function() i[1] = 2 ^ 70 end, "fill_", { i })
    refuses(function() i:div_(2) end, "div_", { i })
    refuses(function() moth.add(x, x, { out = i }) end, "out", { x, i })
    refuses(function() x:mul_(x:t()) end, "mul_", { x })
  end)
end)

describe("a bad element at the end of many", function()
  it("raises before any element is written", function()
    local n = 200000
    local x = moth.zeros(n)
    local at = moth.range(1, n)
    at[n] = n + 1
    refuses(function() x[at] = 1 end, "position 200001 is out of range", { x })
    refuses(function() x:index_add_(1, at, moth.ones(n)) end, "200001", { x })
    refuses(function() x:scatter_(1, at, moth.ones(n)) end, "200001", { x })
    refuses(function() x:scatter_add_(1, at, moth.ones(n)) end, "200001", { x })
    at[n] = 0
    refuses(function() x[at] = 1 end, "count from 1, got 0", { x })
    local i = moth.full({ n }, 7LL)
    local divisor = moth.full({ n }, 2LL)
    divisor[n] = 0
    refuses(function() i:remainder_(divisor) end, "cannot be divided by 0", { i })
    refuses(function() i:div_(divisor, "floor") end, "cannot be divided by 0", { i })
    refuses(function() moth.remainder(i, divisor, { out = i:clone() }) end, "divided by 0", { i })
  end)
end)

describe("a scalar that does not fit the dtype", function()
  it("raises and does not wrap around", function()
    refuses(function() return (moth.full({ 2 }, 300, { dtype = moth.uint8 })) end, "fill_value")
    refuses(function() return (moth.tensor({ 256 }, { dtype = moth.uint8 })) end, "256")
    refuses(function() return (moth.tensor({ 1.5 }, { dtype = moth.int32 })) end, "1.5")
    refuses(function() return (moth.tensor({ 0 / 0 }, { dtype = moth.int64 })) end, "nan")
    assert.equal("E_DTYPE", moth.errcode())
  end)
end)
