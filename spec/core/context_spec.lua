-- A context belongs to a Lua state: a state that loads Moth twice has one, two states have two.

local ffi = require "ffi"
local moth = require "moth"
local lib = require "moth.binding.lib"
local process = require "spec.support.process"

local child = process.lua

describe("requiring moth again", function()
  it("after package.loaded was cleared finds the same context", function()
    local x = moth.ones(3)
    local kept = {}
    for name, module in pairs(package.loaded) do
      if name == "moth" or name:sub(1, 5) == "moth." then kept[name] = module end
    end
    for name in pairs(kept) do package.loaded[name] = nil end
    local again = require "moth"
    local fresh_lib = require "moth.binding.lib"
    local y = again.ones(3) + x
    local same = again == moth and fresh_lib == lib and again.nn == moth.nn
    local linear = again.nn.Linear(3, 2)(y)
    for name, module in pairs(kept) do package.loaded[name] = module end
    assert.is_true(same)
    assert.same({ 2, 2, 2 }, y:tolist())
    assert.same({ 2 }, { unpack(linear.shape) })
    assert.is_true(again.is_tensor(x))
  end)

  it("has a number for hosts, which stop one of several contexts by it", function()
    lib.C.moth_cancel(ffi.cast("moth_ctx *", moth.context()), 1)
    local ok, message = pcall(moth.ones, 3)
    lib.C.moth_cancel(lib.ctx, 0)
    assert.is_false(ok)
    assert.matches("interrupted", tostring(message))
    assert.same({ 1 }, moth.ones(1):tolist())
  end)

  it("works in a host that removes loadstring from its scripts", function()
    local text = child [[
      local moth = require "moth"
      local nn, F = moth.nn, moth.nn.functional
      loadstring, load, loadfile, dofile = nil
      local net = nn.Sequential(nn.Linear(2, 3), nn.Tanh())
      local step = moth.capture(function(x) return net(x) + moth.cdist(x, x):mean() end)
      for _ = 1, 4 do step(moth.ones(2, 2)) end
      print(F.relu(net(moth.ones(1, 2))):size(2), step(moth.ones(2, 2)):size(2))
    ]]
    assert.matches("3%s+3", text)
  end)

  it("defines no globals", function()
    local text = child [[
      local before = {}
      for name in pairs(_G) do before[name] = true end
      local moth = require "moth"
      local net = moth.nn.Linear(2, 2)
      net(moth.randn(3, 2)):sum():backward()
      moth.optim.SGD(net:parameters(), {lr = 0.1}):step()
      for name in pairs(_G) do
        if not before[name] then print("global", name) end
      end
      print "done"]]
    assert.equal("done\nrc=0\n", text)
  end)

  it("with a second ffi module raises an error with the reason", function()
    local text = child [[
      local moth = require "moth"
      local registry = debug.getregistry()
      package.loaded.ffi = setmetatable({}, {__index = require "ffi"})
      for name in pairs(package.loaded) do
        if name:sub(1, 4) == "moth" then package.loaded[name] = nil end
      end
      print(pcall(dofile, moth and debug.getinfo(require("moth.base.class").isclass, "S").source
        :sub(2):gsub("class", "lib")))]]
    assert.matches("rc=0", text)
  end)
end)

describe("the end of a state", function()
  it("works with open graphs, hooks, scopes and backward passes", function()
    local text = child [[
      local moth = require "moth"
      local w = moth.ones(4):requires_grad_()
      local y = w * 2
      y:register_hook(function() coroutine.yield() end)
      local co = coroutine.wrap(function() y:sum():backward() end)
      co()
      local inside = coroutine.wrap(function()
        moth.scope(function()
          moth.no_grad(function() coroutine.yield(moth.ones(3)) end)
        end)
      end)
      kept = {inside(), inside, co, y}
      token = moth.token(moth.ones(5))
      print "end"]]
    assert.equal("end\nrc=0\n", text)
  end)

  it("works if finalizers still use tensors", function()
    local text = child [[
      local moth = require "moth"
      for i = 1, 5 do
        local proxy = newproxy(true)
        local x = moth.ones(3)
        getmetatable(proxy).__gc = function()
          for _, use in ipairs {
            function() return (x + 1):sum():item() end, function() return moth.ones(3) + 1 end,
            function() return moth.randn(3) end, function() moth.manual_seed(1) end,
            function() return x.shape end, function() return moth.tensor{1, 2} end,
            function() moth.scope(function() return moth.ones(1) end) end,
            function() return moth.arange(5):max(1) end, function() return x:split(1) end,
            function() (x * 2):sum():backward() end, function() x:register_hook(print) end,
            function() return moth.token(x) end, function() return moth.open_token("1") end,
            function() x[1] = 2 end, function() x.grad = x end, function() x:free() end,
            function() return moth.leaks() end, function() return moth.memory() end,
            function() return tostring(x) end, function() moth.empty_cache() end,
          } do
            local ok, message = pcall(use)
            if not ok and not tostring(message):find "released"
              and not tostring(message):find "closed" and not message:find "no such token" then
              print(message)
            end
          end
          ended = (ended or 0) + 1
          if ended == 5 then print "all" end
        end
        _G["p" .. i] = proxy
      end
      print "end"]]
    assert.equal("end\nall\nrc=0\n", text)
  end)

  it("works after os.exit inside a hook", function()
    local text = child [[
      local moth = require "moth"
      local w = moth.ones(4):requires_grad_()
      w:register_hook(function() print "in" os.exit(0, true) end)
      local y = w * 2
      y:sum():backward()]]
    assert.equal("in\nrc=0\n", text)
  end)
end)

describe("two states in one process", function()
  it("have separate contexts, and each raises for the other's handles", function()
    local text = process.host "states"
    assert.equal("0 failures\nrc=0\n", text)
  end)

  it("pass tensors while the process forks; the children can do so too", function()
    assert.equal("0 children failed\nrc=0\n", process.host "forks")
  end)
end)

describe("a handle made by hand", function()
  it("raises in all functions if its numbers belong to no tensor", function()
    local h = lib.Handle()
    for _, numbers in ipairs{ { 0, 0 }, { 1, 0 }, { 2, 0 }, { 4294967295, 1 }, { 70000, 0 } } do
      h._slot, h._gen = numbers[1], numbers[2]
      assert.has_error_like(function() return (h:relu()) end, "released")
      assert.has_error_like(function() return (h.dtype) end, "released")
      assert.has_error_like(function() h:zero_() end, "released")
      assert.has_error_like(function() h:free() end, "released")
      if numbers[1] ~= 0 then -- {0, 0} means no tensor
        assert.has_error_like(function()
          local x = moth.ones(1)
          x.grad = h
        end, "released")
      end
    end
  end)
end)

describe("an invalid dtype, shape or offset", function()
  local C, ctx = lib.C, lib.ctx
  local E_DTYPE = C.moth_default_dtype(ctx, 38)

  it("raises in each function of the host's interface", function()
    local before = C.moth_default_dtype(ctx, -1)
    assert.is_true(E_DTYPE < 0)
    assert.are.equal(E_DTYPE, C.moth_autocast(ctx, 38))
    assert.are.equal(before, C.moth_default_dtype(ctx, -1))
    local bytes, out = moth.zeros(8, {dtype = moth.uint8}), lib.Handle()
    local shape = lib.int64s(1)
    for _, dtype in ipairs {-3, 10, 100000} do
      assert.are.equal(E_DTYPE, C.moth_reinterpret(ctx, bytes, 0, dtype, shape, 1, out))
    end
    for _, from in ipairs {-1LL, 9LL, -0x7fffffffffffffffLL - 1} do
      assert.is_true(C.moth_reinterpret(ctx, bytes, from, 0, shape, 1, out) < 0)
    end
    assert.is_true(C.moth_reinterpret(ctx, bytes, 0, 0, nil, 1, out) < 0)
  end)
end)

describe("a tensor without elements", function()
  it("needs no memory, for any number of empty rows", function()
    local x = moth.zeros(2 ^ 52, 0)
    for _, name in ipairs {"cumsum", "cumprod", "cummin", "cummax"} do
      assert.are.equal(0, (x[name](x, 2)):numel())
    end
    local before = moth.memory().peak_bytes
    assert.are.equal(0, moth.nn.functional.pad(moth.zeros(0, 0), {0, 2 ^ 40}):numel())
    assert.are.equal(before, moth.memory().peak_bytes)
  end)
end)

describe("an error of the C interface", function()
  local C, ctx = lib.C, lib.ctx
  local function message(base) return ffi.string(C.moth_error(ctx, base)) end

  it("has positions that count from the number that the host passes", function()
    pcall(moth.index_select, moth.ones(2, 3), 2, moth.tensor {9LL})
    assert.equal("position 9 is out of range for dim 2 of f32 (2, 3), which has size 3",
      message(1))
    assert.equal("position 8 is out of range for dim 1 of f32 (2, 3), which has size 3",
      message(0))
    pcall(moth.index_select, moth.ones(2, 3), -1, moth.tensor {-9LL})
    assert.equal("positions count from 1 here, got -9", message(1))
    assert.equal("positions count from 0 here, got -9", message(0))
    assert.equal("index", ffi.string(C.moth_error_arg(ctx)))
    assert.equal("index_select", ffi.string(C.moth_error_op(ctx)))
  end)

  it("shows NaN without a sign, and other words as they are", function()
    local nan = 0 / 0
    for _, v in ipairs {nan, -nan} do
      pcall(moth.nn.functional.layer_norm, moth.ones(2, 3), {3}, {eps = v})
      assert.equal("a number from 0 on is needed, got nan", message(1))
    end
    local function open(path)
      local text = ffi.new("moth_text", {path, #path})
      assert.is_true(C.moth_safetensors_open(ctx, text, 0, lib.Handle()) < 0)
      return message(1)
    end
    for _, name in ipairs {"/no-nan1/x", "/1-nan", "/no-nano", "/a-nan_"} do
      assert.is_truthy(open(name):find(name, 1, true), message(1))
    end
  end)

  it("has a name for each status", function()
    local names = {[0] = "OK", "E_ARG", "E_TYPE", "E_DTYPE", "E_SHAPE", "E_INDEX", "E_DEVICE",
      "E_ALIAS", "E_VERSION", "E_GRAPH", "E_DOMAIN", "E_MEM", "E_LIMIT", "E_FORMAT", "E_IO",
      "E_STATE", "E_INTERRUPT", "E_CUDA", "E_UNSUPPORTED", "E_PAUSED"}
    for i = 0, #names do
      assert.equal(names[i], ffi.string(C.moth_error_name(-i)))
      if i > 0 then assert.equal(-i, C["MOTH_" .. names[i]]) end
    end
    assert.equal("OK", ffi.string(C.moth_error_name(C.MOTH_WANT + C.MOTH_KNOWN)))
    assert.equal("E_UNKNOWN", ffi.string(C.moth_error_name(-#names - 1)))
  end)
end)

describe("the tables of the C interface", function()
  local C = lib.C

  it("have the names of the dtypes, and NULL beyond them", function()
    local names = {"bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"}
    for i, name in ipairs(names) do assert.equal(name, ffi.string(C.moth_dtype_name(i - 1))) end
    assert.is_true(C.moth_dtype_name(-1) == nil)
    assert.is_true(C.moth_dtype_name(#names) == nil)
  end)

  it("have each op once, and NULL beyond them", function()
    local n, seen = C.moth_op_count(), {}
    for i = 0, n - 1 do
      local op = C.moth_op_at(i)
      local name = ffi.string(C.moth_op_describe(op).name)
      assert.is_nil(seen[name])
      seen[name] = true
      assert.is_true(C.moth_op_find(name) == op, name)
    end
    assert.is_true(C.moth_op_at(n) == nil)
    assert.is_true(C.moth_op_find "no_such_op" == nil)
    assert.is_true(C.moth_op_find "" == nil)
    assert.is_true(C.moth_op_find "ad" == nil)
  end)
end)

describe("a mode of the C interface", function()
  local C, ctx = lib.C, lib.ctx

  it("is returned as it was, and changed only if that is asked", function()
    local x = moth.ones(2, 2)
    assert.equal(-1, C.moth_autocast(ctx, -2))
    assert.equal(-1, C.moth_autocast(ctx, C.MOTH_F16))
    assert.equal(C.MOTH_F16, C.moth_autocast(ctx, -2))
    assert.equal(moth.float16, x:mm(x).dtype)
    assert.equal(C.MOTH_F16, C.moth_autocast(ctx, C.MOTH_BF16))
    assert.equal(moth.bfloat16, x:mm(x).dtype)
    assert.equal(C.MOTH_BF16, C.moth_autocast(ctx, -1))
    assert.equal(-1, C.moth_autocast(ctx, -2))
    assert.equal(moth.float32, x:mm(x).dtype)

    assert.equal(1, C.moth_grad_mode(ctx, 0))
    assert.equal(0, C.moth_grad_mode(ctx, -1))
    assert.is_false(moth.is_grad_enabled())
    assert.equal(0, C.moth_grad_mode(ctx, 5)) -- any number above 0 is on
    assert.equal(1, C.moth_grad_mode(ctx, 1))

    assert.equal(C.MOTH_F32, C.moth_default_dtype(ctx, C.MOTH_F64))
    assert.equal(C.MOTH_F64, C.moth_default_dtype(ctx, -1))
    assert.equal(moth.float64, moth.ones(1).dtype)
    assert.equal(C.MOTH_F64, C.moth_default_dtype(ctx, C.MOTH_F32))

    local before = C.moth_float32_precision(ctx, -1)
    assert.equal(before, C.moth_float32_precision(ctx, 2))
    assert.equal(2, C.moth_float32_precision(ctx, 0))
    assert.equal(0, C.moth_float32_precision(ctx, before))

    before = C.moth_deterministic(ctx, -1)
    assert.equal(before, C.moth_deterministic(ctx, 3))
    assert.equal(1, C.moth_deterministic(ctx, 0))
    assert.equal(0, C.moth_deterministic(ctx, before))

    for what = C.MOTH_CUDNN_ENABLED, C.MOTH_CUDNN_SDP do
      before = C.moth_cudnn(ctx, what, -1)
      assert.equal(before, C.moth_cudnn(ctx, what, 1 - before))
      assert.equal(1 - before, C.moth_cudnn(ctx, what, -1))
      assert.equal(1 - before, C.moth_cudnn(ctx, what, before))
    end
    assert.same({1, 0, 1}, {C.moth_cudnn(ctx, C.MOTH_CUDNN_ENABLED, -1),
      C.moth_cudnn(ctx, C.MOTH_CUDNN_BENCHMARK, -1), C.moth_cudnn(ctx, C.MOTH_CUDNN_SDP, -1)})
  end)
end)

describe("positions that count from 1", function()
  local C, ctx, bind = lib.C, lib.ctx, require "moth.binding.bind"
  local slots, out = ffi.new "moth_slot[8]", ffi.new "moth_handle[4]"
  local x, w = moth.randn(3, 4), moth.randn(5, 2)
  local scores = moth.randn(3, 4):log_softmax(2)
  local function I(values) return moth.tensor(values):long() end

  -- op, number of slots, arguments that are given, the slots without the index, its slot, its name,
  -- positions from 0
  local rows = {
    {"index_select", 3, 7, {x, 1}, 2, "index", I {3, 0, 0}},
    {"gather", 3, 7, {x, 1}, 2, "index", I {{3}, {0}, {1}}},
    {"embedding_rows", 2, 3, {w}, 1, "input", I {4, 0}},
    {"nll_loss", 2, 3, {scores}, 1, "target", I {3, 0, 1}},
    {"class_entropy", 2, 3, {scores}, 1, "target", I {3, 0, 1}},
    {"row_pick", 3, 7, {x, [3] = 1}, 1, "index", I {3, 0, 1}},
  }
  local function run(row, index)
    for i, v in pairs(row[4]) do
      if type(v) == "number" then slots[i - 1].integer = v else slots[i - 1].handle = v end
    end
    slots[row[5]].handle = index
    local status = C.moth_call(ctx, C.moth_op_find(row[1]), slots, row[2], row[3], out, 1)
    if status < 0 then return status end
    return lib.adopt(lib.Handle(out[0]._slot, out[0]._gen), status)
  end

  for _, row in ipairs(rows) do
    it("are converted for an op that cannot read them: " .. row[1], function()
      local from_one = row[7] + 1
      local want = run(row, row[7])
      assert.is_true(moth.equal(want, run(row, bind.ops.count_from_one(from_one))))
      local strided = moth.stack({from_one, from_one}, -1):select(-1, 1)
      assert.is_true(moth.equal(want, run(row, bind.ops.count_from_one(strided))))
      local wrong = from_one:clone()
      wrong:view(-1):fill_(0)
      assert.equal(C.MOTH_E_INDEX, run(row, bind.ops.count_from_one(wrong)))
      assert.equal(row[6], ffi.string(C.moth_error_arg(ctx)))
    end)
  end
end)
