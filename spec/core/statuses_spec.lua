-- The functions of the C interface, called with values that they refuse: the status, the argument
-- that the error names, and the message. Functions that return a count or a mode at the first and
-- the last value that they accept.

local ffi = require "ffi"
local lib = require "moth.binding.lib"
local moth = require "moth"

lib.declare "sparse"
lib.declare "nodes"
lib.declare "capture"

local C, ctx = lib.C, lib.ctx
local out, id = lib.Handle(), ffi.new "uint64_t[1]"
local number, slots = ffi.new "uint32_t[1]", ffi.new "moth_slot[8]"

local function shape(...) return ffi.new("int64_t[?]", select("#", ...) + 1, ...) end

-- Makes a claim for each row: the status, the argument, the message, a function.
local function refused(rows)
  for _, row in ipairs(rows) do
    it(row[3], function()
      moth.scope(row[4]) -- makes what is kept for later calls
      moth.collect()
      local live, problem = moth.memory().live_bytes
      moth.scope(function()
        local status = row[4]()
        problem = {ffi.string(C.moth_error_name(tonumber(status))),
          ffi.string(C.moth_error_arg(ctx)), ffi.string(C.moth_error(ctx, 1))}
      end)
      assert.same({row[1], row[2], row[3]}, problem)
      assert.equal(live, moth.memory().live_bytes)
    end)
  end
end

local function call(name, nslots, given, nout)
  return C.moth_call(ctx, C.moth_op_find(name), slots, nslots, given, out, nout or 1)
end

local function set(...)
  for i, v in ipairs {...} do
    if type(v) == "table" then slots[i - 1].integer = v[1] else slots[i - 1].handle = v end
  end
end

-- No call returns MOTH_WANT.
setup(function() moth.collect() moth.set_memory_floor(2 ^ 52, 2 ^ 52) end)
teardown(function() moth.set_memory_floor() end)

describe("a setting raises for", function()
  refused {
    {"E_DTYPE", "dtype", "there is no dtype 10",
      function() return C.moth_default_dtype(ctx, C.MOTH_DTYPES) end},
    {"E_DTYPE", "dtype", "a floating dtype is needed, got i64",
      function() return C.moth_default_dtype(ctx, C.MOTH_I64) end},
    {"E_DOMAIN", "precision", "0, 1 or 2 is needed, got 3",
      function() return C.moth_float32_precision(ctx, 3) end},
    {"E_ARG", "what", "cuDNN has no switch 4",
      function() return C.moth_cudnn(ctx, C.MOTH_CUDNN_SDP + 1, -1) end},
    {"E_ARG", "what", "cuDNN has no switch -1",
      function() return C.moth_cudnn(ctx, C.MOTH_CUDNN_ENABLED - 1, -1) end},
    {"E_DTYPE", "dtype", "there is no dtype 10",
      function() return C.moth_autocast(ctx, C.MOTH_DTYPES) end},
    {"E_DTYPE", "dtype", "f16 or bf16 is needed, got f32",
      function() return C.moth_autocast(ctx, C.MOTH_F32) end},
  }
end)

describe("a tensor of the host's values raises for", function()
  local bytes = ffi.new("double[4]")
  refused {
    {"E_SHAPE", "shape", "no shape of -1 dimensions was given", function()
      return C.moth_from_bytes(ctx, C.MOTH_F32, shape(1), -1, bytes, 0, out)
    end},
    {"E_SHAPE", "shape", "a size cannot be negative: {-1}", function()
      return C.moth_from_bytes(ctx, C.MOTH_F32, shape(-1), 1, bytes, 0, out)
    end},
    {"E_SHAPE", "shape", "at most 8 dimensions are possible, got more", function()
      return C.moth_from_bytes(ctx, C.MOTH_F32, shape(1, 1, 1, 1, 1, 1, 1, 1, 1), 9, bytes, 4, out)
    end},
    {"E_DTYPE", "dtype", "there is no dtype 10", function()
      return C.moth_from_bytes(ctx, C.MOTH_DTYPES, shape(1), 1, bytes, 4, out)
    end},
    {"E_DTYPE", "dtype", "there is no dtype -1", function()
      return C.moth_from_bytes(ctx, -1, shape(1), 1, bytes, 4, out)
    end},
    {"E_SHAPE", "buffer", "8 bytes are needed, got 7", function()
      return C.moth_from_bytes(ctx, C.MOTH_F32, shape(2), 1, bytes, 7, out)
    end},
    {"E_SHAPE", "buffer", "8 bytes are needed, got 9", function()
      return C.moth_from_bytes(ctx, C.MOTH_F32, shape(2), 1, bytes, 9, out)
    end},
    {"E_SHAPE", "data", "(2) needs more than the 7 bytes given", function()
      return C.moth_from_memory(ctx, C.MOTH_F32, shape(2), 1, bytes, 7, nil, nil, out)
    end},
    {"E_ALIAS", "data", "not aligned for f32", function()
      return C.moth_from_memory(ctx, C.MOTH_F32, shape(2), 1, ffi.cast("char *", bytes) + 2, 8, nil,
        nil, out)
    end},
    {"E_SHAPE", "data", "3 values for shape (2)", function()
      return C.moth_from_slots(ctx, C.MOTH_F32, shape(2), 1, slots, 3, 0, out)
    end},
    {"E_DTYPE", "data", "1.5 does not fit i32", function()
      slots[0].number, slots[1].number = 1, 1.5
      return C.moth_from_slots(ctx, C.MOTH_I32, shape(2), 1, slots, 2, 0, out)
    end},
    {"E_DTYPE", "data", "256 does not fit u8", function()
      slots[0].integer, slots[1].integer = 1, 256
      return C.moth_from_slots(ctx, C.MOTH_U8, shape(2), 1, slots, 2, 1, out)
    end},
  }

  it("nothing if the memory is larger than the shape", function()
    assert.equal(0, C.moth_from_memory(ctx, C.MOTH_F32, shape(2), 1, bytes, 9, nil, nil, out))
    assert.equal(0, C.moth_free(ctx, out))
  end)
end)

describe("reading values raises for", function()
  local x = moth.tensor {{1, 2, 3}, {4, 5, 6}}
  local buffer = ffi.new "char[24]"
  refused {
    {"E_INDEX", "", "1 elements from -1 on, of f32 (2, 3)",
      function() return C.moth_read(ctx, x, -1, 1, slots) end},
    {"E_INDEX", "", "7 elements from 0 on, of f32 (2, 3)",
      function() return C.moth_read(ctx, x, 0, 7, slots) end},
    {"E_INDEX", "", "3 elements from 4 on, of f32 (2, 3)",
      function() return C.moth_read(ctx, x, 4, 3, slots) end},
    {"E_INDEX", "", "-1 elements from 0 on, of f32 (2, 3)",
      function() return C.moth_read(ctx, x, 0, -1, slots) end},
    {"E_ARG", "", "24 bytes are needed, the buffer has 23",
      function() return C.moth_bytes(ctx, x, buffer, 23) end},
    {"E_ARG", "", "24 bytes are needed, the buffer has 25",
      function() return C.moth_bytes(ctx, x, buffer, 25) end},
    {"E_SHAPE", "", "f32 (3, 2) is not contiguous", function()
      return C.moth_data(ctx, x:t()) == nil and C.MOTH_E_SHAPE or 0
    end},
  }

  it("nothing up to the last element, in any layout", function()
    assert.equal(0, C.moth_read(ctx, x, 3, 3, slots))
    assert.equal(6, slots[2].number)
    assert.equal(0, C.moth_read(ctx, x:t(), 1, 5, slots))
    local read = {}
    for i = 1, 5 do read[i] = slots[i - 1].number end
    assert.same({4, 2, 5, 3, 6}, read)
    assert.equal(0, C.moth_read(ctx, x, 6, 0, slots))
  end)
end)

describe("a handle raises for", function()
  refused {
    {"E_STATE", "", "this tensor was released",
      function() return C.moth_free(ctx, lib.Handle(1, 0)) end},
    {"E_STATE", "", "the handle of a number cannot be freed", function()
      slots[0].number = 1
      C.moth_number(ctx, 1, 0, slots)
      return C.moth_free(ctx, lib.Handle(1, 0))
    end},
    {"E_ARG", "", "number 0 of 4", function() return C.moth_number(ctx, 0, 0, slots) end},
    {"E_ARG", "", "number 5 of 4", function() return C.moth_number(ctx, 5, 0, slots) end},
    {"E_ARG", "", "there is no result 0 to take", function() return C.moth_result(ctx, 0, out) end},
    {"E_STATE", "", "this scope is closed already",
      function() return C.moth_scope_close(ctx, 123456789) end},
  }
end)

describe("a number operand", function()
  -- value, type: 0 number, 1 integer, 2 bool
  local NUMBERS = {{2.5, 0}, {3, 1}, {1, 2}, {-4, 1}, {0.5, 0}, {7, 0}, {0, 2}, {9, 1}}

  it("has its value and type in each slot, whatever was there before", function()
    local x = moth.ones(2)
    for which = 1, 4 do
      for _, n in ipairs(NUMBERS) do
        if n[2] == 0 then slots[7].number = n[1] else slots[7].integer = n[1] end
        assert.equal(0, C.moth_number(ctx, which, n[2], slots + 7))
        set(x, lib.Handle(which, 0))
        assert.equal(0, call("add", 2, 3))
        local y = lib.adopt(lib.Handle(out._slot, out._gen), 0)
        assert.same({1 + n[1], 1 + n[1]}, y:tolist())
      end
    end
    set(x, lib.Handle(1, 0)) -- a number holds for one call
    assert.equal(C.MOTH_E_STATE, call("add", 2, 3))
  end)

  it("of a graph does not change with the next number", function()
    local x = moth.ones(2, {requires_grad = true})
    local list = {}
    for i, n in ipairs(NUMBERS) do
      if n[2] == 0 then slots[7].number = n[1] else slots[7].integer = n[1] end
      assert.equal(0, C.moth_number(ctx, 2, n[2], slots + 7))
      set(x, lib.Handle(2, 0))
      assert.equal(0, call("mul", 2, 3))
      list[i] = lib.adopt(lib.Handle(out._slot, out._gen), 0)
    end
    for i, n in ipairs(NUMBERS) do
      x.grad = nil
      list[i]:sum():backward()
      assert.same({n[1], n[1]}, x.grad:tolist())
    end
  end)
end)

describe("a handle", function()
  it("is made again for a tensor that outlives it", function()
    local x = moth.ones(2, {requires_grad = true})
    ;(x * 3):sum():backward()
    for _ = 1, 3 do
      local others = {moth.zeros(1), moth.zeros(1)}
      x.grad:free()
      others[3] = moth.zeros(1)
      assert.same({3, 3}, x.grad:tolist())
      assert.is_true(rawequal(x.grad, x.grad))
      for i = 1, 3 do assert.equal(0, others[i]:item()) end
    end
  end)

  it("that was never made died in no scope", function()
    assert.equal(0, C.moth_died_in(ctx, lib.Handle(4000000, 1)))
    assert.equal(0, C.moth_alive(ctx, lib.Handle(4000000, 1)))
    assert.equal(0, C.moth_alive(ctx, lib.Handle(0, 0)))
    local scope = C.moth_scope_open(ctx)
    assert.equal(0, C.moth_from_slots(ctx, C.MOTH_F32, shape(1), 1, slots, 1, 0, out))
    assert.equal(1, C.moth_alive(ctx, out))
    assert.equal(0, C.moth_scope_close(ctx, scope))
    assert.equal(0, C.moth_alive(ctx, out))
    assert.equal(scope, C.moth_died_in(ctx, out))
  end)
end)

describe("a scope", function()
  local function made()
    assert.equal(0, C.moth_from_slots(ctx, C.MOTH_F32, shape(1), 1, slots, 1, 0, out))
    return lib.Handle(out._slot, out._gen)
  end
  local function alive(h) return C.moth_alive(ctx, h) == 1 end

  it("ends with the scopes inside it, each with its own number", function()
    local a = C.moth_scope_open(ctx)
    local x = made()
    local b = C.moth_scope_open(ctx)
    local y, c = made(), C.moth_scope_open(ctx)
    local z = made()
    assert.is_true(a ~= b and b ~= c and a ~= c)
    assert.equal(0, C.moth_keep(ctx, z)) -- to b
    assert.equal(0, C.moth_keep(ctx, x)) -- it is in an outer scope already
    assert.equal(0, C.moth_scope_close(ctx, c))
    assert.is_true(alive(z))
    assert.equal(C.MOTH_E_STATE, C.moth_scope_close(ctx, c))
    local last = C.moth_scope_open(ctx)
    assert.equal(0, C.moth_scope_close(ctx, b))
    assert.same({true, false, false}, {alive(x), alive(y), alive(z)})
    assert.equal(C.MOTH_E_STATE, C.moth_scope_close(ctx, last))
    assert.equal(C.MOTH_E_STATE, C.moth_keep(ctx, z))
    assert.equal(C.MOTH_E_STATE, C.moth_keep_always(ctx, z))
    assert.equal(0, C.moth_keep_always(ctx, x))
    assert.equal(0, C.moth_scope_close(ctx, a))
    assert.is_true(alive(x))
    assert.equal(0, C.moth_free(ctx, x))
  end)

  it("frees the handles of tensors that graphs and views use", function()
    local x, y, view = moth.ones(2, {requires_grad = true}), nil, nil
    local total, kept = moth.scope(function()
      y = x * 2
      view = y:view(2, 1)
      return (y * view:view(2)):sum(), y:view(1, 2)
    end)
    assert.same({false, false, true, true}, {alive(y), alive(view), alive(total), alive(kept)})
    total:backward()
    assert.same({8, 8}, x.grad:tolist())
    assert.same({{2, 2}}, kept:tolist())
  end)

  it("takes no memory for itself after the first ones", function()
    local function many()
      for _ = 1, 500 do
        local a, b = C.moth_scope_open(ctx), C.moth_scope_open(ctx)
        if C.moth_scope_close(ctx, b) < 0 or C.moth_scope_close(ctx, a) < 0 then error "close" end
      end
    end
    many()
    local before = moth.memory().allocations
    for _ = 1, 20 do many() end
    assert.equal(before, moth.memory().allocations)
  end)
end)

describe("moth_call raises for", function()
  local x = moth.ones(2, 3)
  refused {
    {"E_ARG", "op", "is NULL: moth_op_find() knows no op of that name",
      function() return C.moth_call(ctx, nil, slots, 0, 0, out, 1) end},
    {"E_ARG", "input", "a value is needed, got nothing", function() return call("relu", 0, 0) end},
    {"E_ARG", "other", "a value is needed, got nothing",
      function() set(x) return call("add", 2, 1) end},
    {"E_ARG", "other", "a value is needed, got nothing",
      function() set(x, x) return call("add", 1, 3) end},
    {"E_STATE", "other", "this tensor was released",
      function() set(x, lib.Handle(0, 0)) return call("add", 2, 3) end},
    {"E_ARG", "dtype", "not a valid dtype", function() set(x, {10}) return call("cast", 2, 3) end},
    {"E_ARG", "tensors", "not a valid tensors",
      function() set({0}, {1}) return call("cat", 2, 1) end},
    {"E_ARG", "tensors", "not a valid tensors",
      function() set({0}, {-1}) return call("cat", 2, 1) end},
    {"E_ARG", "device", "not a valid device",
      function() set(x, {-1}) return call("to_device", 2, 3) end},
    {"E_ARG", "reduction", "not a valid enum",
      function() set(x, x, {3}) return call("mse_loss", 3, 7) end},
    {"E_ARG", "reduction", "not a valid enum",
      function() set(x, x, {-1}) return call("mse_loss", 3, 7) end},
    {"E_TYPE", "", "at least one tensor is needed, got numbers only", function()
      slots[0].number = 2
      for which = 1, 2 do C.moth_number(ctx, which, 0, slots) end
      set(lib.Handle(1, 0), lib.Handle(2, 0))
      return call("add", 2, 3)
    end},
    {"E_INDEX", "dim", "dim 3 is out of range: wanted 1 to 2 or -2 to -1",
      function() set(x, {2}) return call("softmax", 2, 3) end},
    {"E_INDEX", "dim", "dim -3 is out of range: wanted 1 to 2 or -2 to -1",
      function() set(x, {-3}) return call("softmax", 2, 3) end},
  }
end)

describe("a leaf raises for", function()
  local x = moth.ones(2)
  local function leaf() return moth.ones(2, {requires_grad = true}) end
  refused {
    {"E_GRAPH", "", "only a leaf's requires_grad can be turned off; use detach() for f32 (2)",
      function() return C.moth_requires_grad(ctx, leaf() * 2, 0) end},
    {"E_DTYPE", "", "only floating tensors can require grad, got i64 (2)",
      function() return C.moth_requires_grad(ctx, x:long(), 1) end},
    {"E_GRAPH", "", "f32 (2) does not require grad",
      function() return C.moth_retain_grad(ctx, x) end},
    {"E_ALIAS", "grad", "a tensor cannot be its own gradient",
      function() return C.moth_set_grad(ctx, x, x) end},
    {"E_SHAPE", "grad", "f32 (3) cannot be the gradient of f32 (2)",
      function() return C.moth_set_grad(ctx, x, moth.ones(3)) end},
    {"E_SHAPE", "grad", "f64 (2) cannot be the gradient of f32 (2)",
      function() return C.moth_set_grad(ctx, x, x:double()) end},
    {"E_DTYPE", "data", "f64 (2) cannot replace the data of f32 (2)",
      function() return C.moth_set_data(ctx, x, x:double()) end},
    {"E_SHAPE", "data", "f32 (3) cannot replace the data of f32 (2)",
      function() return C.moth_set_data(ctx, x, moth.ones(3)) end},
    {"E_STATE", "data", "the default generator keeps its own storage", function()
      local values, generator = moth.zeros(2):long(), lib.Handle()
      lib.adopt(generator, C.moth_generator(ctx, generator))
      return C.moth_set_data(ctx, generator, values)
    end},
    {"E_STATE", "data", "the default generator keeps its own storage", function()
      local values, generator = moth.zeros(2):long(), lib.Handle()
      lib.adopt(generator, C.moth_generator(ctx, generator))
      return C.moth_become(ctx, generator, values)
    end},
    {"E_GRAPH", "", "only a leaf can change its dtype; an op made f32 (2)",
      function() return C.moth_become(ctx, leaf() * 2, x) end},
    {"E_GRAPH", "", "only a leaf can change its dtype; an op made f32 (2)",
      function() return C.moth_become(ctx, x:view(2), x) end},
    {"E_SHAPE", "data", "f32 (3) cannot replace the data of f32 (2)",
      function() return C.moth_become(ctx, x, moth.ones(3)) end},
    {"E_DTYPE", "data", "only floating tensors can require grad, got i64 (2)",
      function() return C.moth_become(ctx, leaf(), x:long()) end},
    {"E_GRAPH", "", "only a leaf can wait for its shape; an op made f32 (2)",
      function() return C.moth_shapeless(ctx, leaf() * 2) end},
    {"E_GRAPH", "", "only a leaf can wait for its shape; an op made f32 (2)",
      function() return C.moth_shapeless(ctx, x:view(2)) end},
    {"E_GRAPH", "", "a view cannot be detached in place; use detach()",
      function() return C.moth_detach_(ctx, x:view(2)) end},
    {"E_GRAPH", "", "f32 (2) does not require grad, so no hook would run",
      function() return C.moth_hook_id(ctx, x, id, number) end},
  }
end)

describe("a leaf", function()
  local info = ffi.new "moth_tensor_info[1]"
  local function wants(x)
    assert.equal(0, C.moth_inspect(ctx, x, info))
    return bit.band(info[0].flags, C.MOTH_IS_GRAD) ~= 0
  end

  it("requires a gradient or not, as it was set last", function()
    local x = moth.ones(2)
    assert.is_false(wants(x))
    for _, on in ipairs {1, 1, 0, 0, 1} do
      assert.equal(0, C.moth_requires_grad(ctx, x, on))
      assert.equal(on == 1, wants(x))
      assert.equal(on == 1, wants(x * 2))
    end
    local y = x * 2
    assert.equal(0, C.moth_requires_grad(ctx, y, 1)) -- it does already
    assert.is_true(wants(y))
    assert.equal(0, C.moth_requires_grad(ctx, moth.ones(2):long(), 0))
  end)

  it("has no gradient until a pass, and none after it was cleared", function()
    local x = moth.ones(2, {requires_grad = true})
    out._slot, out._gen = 7, 7
    assert.equal(0, C.moth_get_grad(ctx, x, out))
    assert.same({0, 0}, {out._slot, out._gen})
    assert.equal(0, C.moth_set_grad(ctx, x, moth.full({2}, 5)))
    assert.equal(0, C.moth_get_grad(ctx, x, out))
    assert.is_true(out._slot > 0)
    C.moth_free(ctx, out)
    for _, none in ipairs {lib.NONE, false} do
      x.grad = moth.ones(2)
      assert.equal(0, C.moth_set_grad(ctx, x, none or nil))
      assert.is_nil(x.grad)
    end
  end)

  it("is no view any more if it has other data", function()
    local base, p = moth.zeros(2, 3), moth.ones(3, {requires_grad = true})
    for _, view in ipairs {moth.no_grad(function() return base[1] end), base:unbind()[2]} do
      assert.is_false((pcall(view.add_, view, p)))
      assert.equal(0, C.moth_set_data(ctx, view, moth.full({3}, 4)))
      assert.equal(0, C.moth_inspect(ctx, view, info))
      assert.equal(0, bit.band(info[0].flags, C.MOTH_IS_VIEW))
      view:add_(p)
      assert.same({5, 5, 5}, view:tolist())
      assert.is_true(view.requires_grad)
    end
    assert.equal(0, base:sum():item())
    assert.is_false(base.requires_grad)
  end)

  it("gets another dtype, and another shape only if it had none", function()
    local x = moth.ones(2)
    assert.equal(0, C.moth_become(ctx, x, moth.tensor {3LL, 4LL}))
    assert.same({moth.int64, {3, 4}}, {x.dtype, {x[1]:item(), x[2]:item()}})
    assert.equal(0, C.moth_become(ctx, x, x))
    local p = moth.ones(2, {requires_grad = true})
    p.grad = moth.ones(2)
    local values = moth.tensor({5, 6}, {dtype = moth.float64})
    assert.equal(0, C.moth_become(ctx, p, values))
    assert.is_nil(p.grad)
    ;(p * p):sum():backward()
    assert.same({10, 12}, p.grad:tolist())
    assert.equal(moth.float64, p.grad.dtype)
    values:zero_() -- p shares its memory
    assert.same({0, 0}, p:tolist())

    local lazy = moth.empty(0, {requires_grad = true})
    assert.equal(0, C.moth_shapeless(ctx, lazy))
    assert.error_matches(function() return lazy * 2 end, "uninitialized")
    assert.equal(C.MOTH_E_STATE, C.moth_detach(ctx, lazy, out))
    assert.equal(0, C.moth_inspect(ctx, lazy, info))
    assert.is_true(bit.band(info[0].flags, C.MOTH_IS_SHAPELESS) ~= 0)
    assert.equal(0, C.moth_requires_grad(ctx, lazy, 0))
    assert.equal(0, C.moth_requires_grad(ctx, lazy, 1))
    assert.equal(0, C.moth_become(ctx, lazy, moth.ones(3)))
    assert.same({3}, lazy:size())
    assert.equal(C.MOTH_E_SHAPE, C.moth_become(ctx, lazy, moth.ones(4)))
  end)

  it("counts as one with a gradient if that is dense", function()
    local list, embedding = lib.handles(3), moth.nn.Embedding(3, 2, {sparse = true})
    local a, b = moth.ones(2, {requires_grad = true}), moth.ones(2, {requires_grad = true})
    embedding(moth.tensor {1LL}):sum():backward()
    local w = embedding.weight
    local function have(...)
      for i, x in ipairs {...} do list[i - 1] = x end
      return C.moth_have_grads(ctx, list, select("#", ...))
    end
    assert.equal(0, have(a))
    a.grad = moth.ones(2)
    assert.equal(1, have(a, a))
    assert.equal(0, have(a, b))
    assert.equal(1, C.moth_have_grads(ctx, list, 1)) -- b is not counted
    assert.equal(0, have(b, a))
    assert.equal(0, have(a, w))
    assert.equal(0, have(a, moth.ones(2)))
    assert.equal(1, C.moth_have_grads(ctx, list, 0))
    b.grad = moth.ones(2)
    assert.equal(1, have(a, b))
    b.grad = nil
    assert.equal(0, have(a, b))
  end)

  it("of one of several results keeps its own gradient", function()
    local x = moth.tensor({3, 1, 2}, {requires_grad = true})
    local list = (x * 2):unbind()
    for i = 1, 3 do
      assert.equal(0, C.moth_retain_grad(ctx, list[i]))
      assert.equal(0, C.moth_retain_grad(ctx, list[i]))
    end
    assert.equal(0, C.moth_retain_grad(ctx, x))
    local both = moth.stack(list)
    local mean, std = moth.std_mean(both)
    mean:retain_grad()
    std:retain_grad()
    ;(list[1] * 5 + list[3] * 7 + mean * 0 + std * 4):backward()
    assert.near(5 + 4 / 3, list[1].grad:item(), 1e-6)
    assert.near(4 / 3, list[2].grad:item(), 1e-6)
    assert.near(7 + 4 / 3, list[3].grad:item(), 1e-6)
    assert.same({0, 4}, {mean.grad:item(), std.grad:item()})
  end)
end)

describe("a sparse tensor raises for", function()
  local rows, values = moth.tensor {1LL, 2LL}, moth.ones(2, 3)
  local function make(r, v, size) return C.moth_sparse_make(ctx, r, v, size, 0, out) end
  refused {
    {"E_SHAPE", "values", "f32 (2, 3) does not match the rows f32 (2)",
      function() return make(rows:float(), values, 4) end},
    {"E_SHAPE", "values", "f32 (2, 3) does not match the rows i64 (1, 2)",
      function() return make(rows:reshape(1, 2), values, 4) end},
    {"E_SHAPE", "values", "f32 (3, 2) does not match the rows i64 (2)",
      function() return make(rows, moth.ones(3, 2), 4) end},
    {"E_SHAPE", "values", "f32 () does not match the rows i64 (1)",
      function() return make(rows[{{1, 1}}], moth.tensor(1), 4) end},
    {"E_SHAPE", "size", "there cannot be -1 rows", function() return make(rows, values, -1) end},
    {"E_GRAPH", "values", "f32 (2, 3) needs a gradient, which sparse tensors do not pass on; "
      .. "detach it", function()
      return make(rows, moth.ones(2, 3, {requires_grad = true}), 4)
    end},
    {"E_UNSUPPORTED", "", "a sparse tensor is needed, got f32 (2, 3)",
      function() return C.moth_sparse_parts(ctx, values, out, out) end},
    {"E_UNSUPPORTED", "", "a sparse tensor is needed, got f32 (2, 3)",
      function() return C.moth_sparse_coalesce(ctx, values, out) end},
  }
end)

describe("a sparse tensor", function()
  local info, first, second = ffi.new "moth_tensor_info[1]", lib.Handle(), lib.Handle()

  it("shares its parts, and is coalesced if the host says so", function()
    local rows, values = moth.tensor {2LL, 0LL}, moth.ones(2, 3)
    for coalesced = 0, 1 do
      local x = lib.Handle()
      lib.adopt(x, C.moth_sparse_make(ctx, rows, values, 4, coalesced, x))
      assert.equal(0, C.moth_inspect(ctx, x, info))
      assert.same({4, 3}, {tonumber(info[0].shape[0]), tonumber(info[0].shape[1])})
      assert.equal(coalesced == 1, bit.band(info[0].flags, C.MOTH_IS_COALESCED) ~= 0)
      assert.is_true(bit.band(info[0].flags, C.MOTH_IS_SPARSE) ~= 0)
      values:mul_(2)
      assert.equal(0, C.moth_sparse_parts(ctx, x, first, second))
      assert.equal(0, C.moth_read(ctx, second, 0, 1, slots))
      assert.equal(2 ^ (coalesced + 1), slots[0].number)
      assert.equal(rows._slot, first._slot) -- it is the tensor of the rows itself
      assert.equal(0, C.moth_free(ctx, second))
    end
  end)

  it("may have no rows", function()
    local x = lib.Handle()
    lib.adopt(x, C.moth_sparse_make(ctx, moth.zeros(0):long(), moth.zeros(0, 3), 0, 0, x))
    assert.equal(0, C.moth_inspect(ctx, x, info))
    assert.equal(0, tonumber(info[0].shape[0]))
  end)
end)

describe("a token raises for", function()
  refused {
    {"E_STATE", "token", "no such token, or it was opened before",
      function() return C.moth_token_open(ctx, 0, out) end},
    {"E_STATE", "token", "no such token, or it was opened before",
      function() return C.moth_token_drop(ctx, 0) end},
    {"E_STATE", "token", "no such token, or it was opened before", function()
      C.moth_token(ctx, moth.ones(2), id)
      C.moth_token_drop(ctx, id[0])
      return C.moth_token_open(ctx, id[0], out)
    end},
  }
end)

describe("a Function, a checkpoint, a captured step or a pass raises for", function()
  local x = moth.ones(2)
  local many = ffi.new "moth_handle[65]"
  before_each(function() -- the claims use x, so that it is not collected
    for i = 0, 64 do many[i] = x end
  end)
  refused {
    {"E_UNSUPPORTED", "", "a Function with more than 63 tensors", function()
      return C.moth_function(ctx, "f", many, 64, many, 1, 0, many, 0, id)
    end},
    {"E_UNSUPPORTED", "", "a Function with more than 63 tensors", function()
      return C.moth_function(ctx, "f", many, 1, many, 64, 0, many, 0, id)
    end},
    {"E_UNSUPPORTED", "", "a Function with more than 63 tensors", function()
      return C.moth_function(ctx, "f", many, 1, many, 1, 0, many, 64, id)
    end},
    {"E_UNSUPPORTED", "", "a checkpoint of more than 64 tensors",
      function() return C.moth_checkpoint_begin(ctx, many, 65, 0, id) end},
    {"E_STATE", "", "this checkpoint has ended",
      function() return C.moth_checkpoint_end(ctx, 0, 0, 0) end},
    {"E_STATE", "", "nothing is being recorded",
      function() return C.moth_capture_end(ctx, many, 0) end},
    {"E_SHAPE", "", "a guard reads single elements",
      function() return C.moth_capture_guard(ctx, many, 1) end},
    {"E_SHAPE", "", "a guard reads one tensor of each device",
      function() return C.moth_capture_guard(ctx, many, 64) end},
    {"E_STATE", "", "this backward pass has ended",
      function() return C.moth_task_step(ctx, 99, id, number, number) end},
    {"E_STATE", "", "this backward pass has ended",
      function() return C.moth_task_given(ctx, 99, 0, out) end},
    {"E_STATE", "", "this backward pass has ended",
      function() return C.moth_task_result(ctx, 99, 0, out) end},
  }
end)

describe("a safetensors file raises for", function()
  local path = os.tmpname()
  teardown(function() os.remove(path) end)

  local function text(s) return ffi.new("moth_text", {s, #s}) end
  local function texts(list)
    local array = ffi.new("moth_text[?]", #list + 1)
    for i, s in ipairs(list) do array[i - 1].at, array[i - 1].size = s, #s end
    return array
  end

  local function save(names, keys, values)
    local list = lib.handles(#names + 1)
    for i in ipairs(names) do list[i - 1] = moth.full({i % 3 + 1}, i) end
    return C.moth_safetensors_save(ctx, text(path), texts(names), list, #names, texts(keys or {}),
      texts(values or {}), #(keys or {}), 0)
  end

  -- Opens a file with these names for the time of visit(file).
  local function with_file(names, visit)
    assert.equal(0, save(names, {"k", "l"}, {"v", "w"}))
    local file = lib.Handle()
    lib.adopt(file, C.moth_safetensors_open(ctx, text(path), 0, file))
    return visit(file)
  end
  local function of(f)
    return function() return with_file({"b", "a"}, f) end
  end
  local x, info = moth.ones(2), ffi.new "moth_stored[1]"
  local key, value = ffi.new "moth_text[1]", ffi.new "moth_text[1]"
  refused {
    {"E_TYPE", "file", "a file is needed, got f32 (2)",
      function() return C.moth_safetensors_count(ctx, x) end},
    {"E_TYPE", "file", "a file is needed, got f32 (2)",
      function() return C.moth_safetensors_metadata_count(ctx, x) end},
    {"E_TYPE", "file", "a file is needed, got f32 (2)",
      function() return C.moth_safetensors_find(ctx, x, text "a") end},
    {"E_TYPE", "file", "a file is needed, got f32 (2)",
      function() return C.moth_safetensors_at(ctx, x, 0, info) end},
    {"E_TYPE", "file", "a file is needed, got f32 (2)",
      function() return C.moth_safetensors_tensor(ctx, x, 0, out) end},
    {"E_INDEX", "i", "tensor 3 of 2",
      of(function(f) return C.moth_safetensors_at(ctx, f, 2, info) end)},
    {"E_INDEX", "i", "tensor -1 of 2",
      of(function(f) return C.moth_safetensors_at(ctx, f, -1, info) end)},
    {"E_INDEX", "i", "tensor 3 of 2",
      of(function(f) return C.moth_safetensors_tensor(ctx, f, 2, out) end)},
    {"E_INDEX", "i", "tensor 3 of 2",
      of(function(f) return C.moth_safetensors_bytes(ctx, f, 2, out) end)},
    {"E_INDEX", "i", "entry 3 of 2", of(function(f)
      return C.moth_safetensors_metadata(ctx, f, 2, key, value)
    end)},
    {"E_INDEX", "i", "entry -1 of 2", of(function(f)
      return C.moth_safetensors_metadata(ctx, f, -1, key, value)
    end)},
    {"E_ARG", "names", "'__metadata__' is a reserved name",
      function() return save {"a", "__metadata__"} end},
    {"E_ARG", "names", "two tensors are called 'a'", function() return save {"a", "b", "a"} end},
    {"E_ARG", "names", "'\\xff' is not UTF-8", function() return save {"a", "\255"} end},
    {"E_ARG", "metadata", "'k' is there twice",
      function() return save({"a"}, {"k", "k"}, {"v", "w"}) end},
    {"E_ARG", "metadata", "'k\\xc0' or its value is not UTF-8",
      function() return save({"a"}, {"k\192"}, {"v"}) end},
    {"E_ARG", "metadata", "'k' or its value is not UTF-8",
      function() return save({"a"}, {"k"}, {"\255"}) end},
    {"E_ARG", "metadata", "'moth.tied' is written by Moth alone",
      function() return save({"a"}, {"moth.tied"}, {"v"}) end},
  }

  it("a name that it lacks, and finds each of any number of names", function()
    for n = 1, 33 do
      local names = {}
      for i = 1, n do names[i] = ("%02d"):format(i * 7 % 100) end
      with_file(names, function(file)
        assert.equal(n, tonumber(C.moth_safetensors_count(ctx, file)))
        for i = 1, n do
          local at = C.moth_safetensors_find(ctx, file, text(names[i]))
          assert.equal(0, C.moth_safetensors_at(ctx, file, at, info))
          assert.equal(names[i], ffi.string(info[0].name.at, info[0].name.size))
          assert.equal(0, C.moth_safetensors_tensor(ctx, file, at, out))
          local y = lib.adopt(lib.Handle(out._slot, out._gen), 0)
          assert.same({i % 3 + 1}, y:size())
          assert.equal(i, y[1]:item())
        end
        for _, name in ipairs {"", "0", "001", "99x", "~"} do
          assert.equal(C.MOTH_E_INDEX, tonumber(C.moth_safetensors_find(ctx, file, text(name))))
        end
      end)
    end
  end)

  it("nothing at its last tensor and metadata entry", function()
    with_file({"b", "a"}, function(file)
      assert.equal(2, tonumber(C.moth_safetensors_metadata_count(ctx, file)))
      assert.equal(0, C.moth_safetensors_metadata(ctx, file, 1, key, value))
      assert.equal("l", ffi.string(key[0].at, key[0].size))
      assert.equal("w", ffi.string(value[0].at, value[0].size))
      assert.equal(0, C.moth_safetensors_bytes(ctx, file, 1, out))
      assert.equal(0, C.moth_free(ctx, out))
    end)
  end)
end)

describe("a recording raises for", function()
  local x, list, step = moth.ones(2), lib.handles(65), ffi.new "uint32_t[1]"
  before_each(function() for i = 0, 64 do list[i] = x end end)
  after_each(function() C.moth_capture_abort(ctx) end)

  -- A recording of x + x; visit(number) may replay it.
  local function recorded(visit)
    return function()
      assert.equal(0, C.moth_capture_begin(ctx, list, 1, step))
      set(x, x)
      assert.equal(0, call("add", 2, 3))
      list[1] = out
      assert.equal(0, C.moth_capture_end(ctx, list + 1, 1))
      local y = lib.Handle(list[1]._slot, list[1]._gen)
      lib.adopt(y, 0)
      list[1] = x
      local status = visit(step[0], y)
      local code, problem = ffi.string(C.moth_error_arg(ctx)), ffi.string(C.moth_error(ctx, 1))
      C.moth_capture_free(ctx, step[0])
      assert.equal(problem, ffi.string(C.moth_error(ctx, 1)))
      assert.equal(code, ffi.string(C.moth_error_arg(ctx)))
      return status
    end
  end
  local function begin()
    C.moth_capture_abort(ctx)
    return C.moth_capture_begin(ctx, list, 1, step)
  end
  refused {
    {"E_STATE", "", "moth.capture is recording a step already",
      function()
        begin()
        return C.moth_capture_begin(ctx, list, 1, step)
      end},
    {"E_STATE", "", "anomaly mode reads values, so a step cannot be captured in it", function()
      C.moth_mode(ctx, 2, 1)
      local status = begin()
      C.moth_mode(ctx, 2, 0)
      return status
    end},
    {"E_STATE", "", "nothing is being recorded", function() begin() C.moth_capture_abort(ctx)
      return C.moth_capture_end(ctx, list, 0)
    end},
    {"E_STATE", "", "this recording is gone",
      function() return C.moth_capture_replay(ctx, 0, list, 1) end},
    {"E_STATE", "", "this recording is gone",
      function() return C.moth_capture_fits(ctx, 0, list, 1) end},
    {"E_STATE", "", "this recording is gone", function() return C.moth_capture_keep(ctx, 0) end},
    {"E_STATE", "", "this recording is gone", function() return C.moth_capture_swap(ctx, 0) end},
    {"E_STATE", "", "this recording is gone", function() return C.moth_capture_differs(ctx, 0) end},
    {"E_STATE", "", "this recording has no such guard",
      recorded(function(n) return C.moth_capture_guarded(ctx, n, 0) end)},
    {"E_STATE", "", "a guard is open already", function()
      begin()
      assert.is_true(C.moth_capture_guard(ctx, lib.handles(1), 0) >= 0)
      return C.moth_capture_guard(ctx, lib.handles(1), 0)
    end},
    {"E_UNSUPPORTED", "", "values are read while moth.capture records the step: the values "
      .. "would be constants in every replay; do this outside of the captured function",
      function() begin() return C.moth_read(ctx, x, 0, 1, slots) end},
    {"E_UNSUPPORTED", "", "the generator is seeded while moth.capture records the step: the "
      .. "values would be constants in every replay; do this outside of the captured function",
      function() begin() return C.moth_seed(ctx, 3) end},
  }

  it("nothing with its own inputs, and is stale with others", function()
    recorded(function(number_of, y)
      local function fits(n) return C.moth_capture_fits(ctx, number_of, list, n) end
      assert.equal(0, fits(1))
      assert.equal(C.MOTH_CAPTURE_STALE, fits(0))
      assert.equal(C.MOTH_CAPTURE_STALE, fits(2))
      for _, other in ipairs {moth.ones(3), moth.ones(2, 1), moth.ones(2):double()} do
        list[0] = other
        assert.equal(C.MOTH_CAPTURE_STALE, fits(1))
        assert.equal(C.MOTH_CAPTURE_STALE, C.moth_capture_replay(ctx, number_of, list, 1))
      end
      list[0] = moth.full({2}, 5)
      assert.equal(0, C.moth_capture_replay(ctx, number_of, list, 1))
      assert.same({10, 10}, y:tolist())
      assert.same({5, 5}, x:tolist()) -- the input of the recording
      C.moth_grad_mode(ctx, 0)
      assert.equal(C.MOTH_CAPTURE_STALE, fits(1))
      C.moth_grad_mode(ctx, 1)
      assert.equal(0, fits(1))
      x:fill_(1)
      return 0
    end)()
  end)
end)
