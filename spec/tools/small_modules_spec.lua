-- moth.testing, moth.random, moth.deepcopy, lazy namespaces and calls of the system: each
-- form, both sides of each bound.

local moth = require "moth"
local json = require "moth.json"
local machine = require "moth.base.machine"
local fails = require("spec.support.refusals").fails
local testing = moth.testing
local nan = 0 / 0

describe("moth.testing.assert_close", function()
  local close = testing.assert_close
  it("has PyTorch's tolerances for each dtype", function()
    for name, row in pairs {float16 = {1e-3, 1e-5}, bfloat16 = {1.6e-2, 1e-5}, float32 = {1.3e-6,
      1e-5}, float64 = {1e-7, 1e-7}} do
      local options = {dtype = moth[name]}
      for _, base in ipairs {0, 1, 64} do
        local x = moth.full({2}, base, options)
        local most = row[2] + row[1] * base
        local function add(d) return x:double():add(d):to(moth[name]) end
        local function off(y) return math.abs(y:double()[1]:item() - base) end
        for _, factor in ipairs {0.4, 0.8, 1.3, 2} do
          local y = add(most * factor)
          assert.equal(off(y) <= most, (pcall(close, y, x)), name .. base .. " " .. factor)
        end
      end
    end
    assert.is_true((pcall(close, 1 + 1e-7, 1)))
    assert.is_false((pcall(close, 1 + 3e-7, 1)))
    assert.is_true((pcall(close, 1e-7, 0)))
    assert.is_false((pcall(close, 2e-7, 0)))
    assert.is_true((pcall(close, moth.ones(2):half() * 1.0005, moth.ones(2),
      {check_dtype = false})))
    local ints = moth.tensor {1LL, 2LL}
    assert.is_true((pcall(close, ints, ints:clone())))
    fails("1 of 2 elements are not close; the largest difference is 1 at {2} (rtol 0, atol 0)",
      close, ints, moth.tensor {1LL, 3LL})
  end)

  it("compares kinds, shapes, dtypes, strides, tables and NaN", function()
    local x = moth.rand(2, 3)
    fails("the shapes differ: (2, 3) and (3, 2)", close, x, x:t())
    fails("the dtypes differ: moth.float32 and moth.float64", close, x, x:double())
    close(x, x:double(), {check_dtype = false})
    close(x, x:t():contiguous():t())
    fails("the strides of dim 1 differ: 3 and 1", close, x, x:t():contiguous():t(),
      {check_stride = true})
    close(x, x:clone(), {check_stride = true})
    fails("f32 (2, 3) and 1 cannot be compared", close, x, 1)
    fails("1 and f32 (2, 3) cannot be compared", close, 1, x)
    fails("1 and a string ('1') cannot be compared", close, 1, "1")
    fails("true and false differ", close, true, false)
    close({a = {x, 1}, b = "t"}, {a = {x, 1}, b = "t"})
    fails("(at [a][2])", close, {a = {x, 1}}, {a = {x, 2}})
    fails("a value is missing (at [b])", close, {a = 1}, {a = 1, b = 2})
    fails("a value was not expected (at [b])", close, {a = 1, b = 2}, {a = 1})
    fails("assert_close: mine (at [1])", close, {1}, {2}, {msg = "mine"})
    fails("assert_close: mine", close, x, x + 1, {msg = "mine"})
    fails("are not close", close, nan, nan)
    close(nan, nan, {equal_nan = true})
    fails("are not close", close, nan, 1, {equal_nan = true})
    fails("1 of 1 element is not close", close, moth.tensor {nan}, moth.tensor {nan})
    close(moth.tensor {nan}, moth.tensor {nan}, {equal_nan = true})
    close(1 / 0, 1 / 0)
    for _, row in ipairs {{1 / 0, -1 / 0}, {1, 1 / 0}, {1 / 0, 1}, {nan, 1 / 0}} do
      fails("are not close", close, row[1], row[2])
      fails("is not close", close, moth.tensor {row[1]}, moth.tensor {row[2]})
    end
    fails("the largest difference is inf at {2}", close, moth.tensor {1, 1 / 0}, moth.tensor {2, 1})
    fails("1 of 6 elements are not close; the largest difference is 4 at {2, 1}", close,
      moth.tensor {{1, 2, 3}, {8, 5, 6}}, moth.tensor {{1, 2, 3}, {4, 5, 6}})
    fails("bad argument 'atol' to 'assert_close' (rtol and atol are given both or neither", close,
      1, 1, {rtol = 0})
    fails("bad argument 'rtol' to 'assert_close' (rtol and atol are given both or neither", close,
      1, 1, {atol = 0})
    close(1, 2, {rtol = 0, atol = 1})
    fails("1 and 2 are not close (rtol 0, atol 0.99)", close, 1, 2, {rtol = 0, atol = 0.99})
    close(1, 2, {rtol = 0.5, atol = 0})
    fails("2 and 1 are not close", close, 2, 1, {rtol = 0.5, atol = 0})
    assert.equal("E_VALUE", moth.errcode())
  end)
end)

describe("moth.random.fork_rng", function()
  it("restores the state after results and after errors", function()
    local fork = moth.random.fork_rng
    moth.manual_seed(5)
    local wanted = moth.rand(3)
    moth.manual_seed(5)
    assert.same({1, nil, 3}, {fork(function() moth.rand(9) return 1, nil, 3 end)})
    fails("oops", fork, function() moth.rand(9) error("oops", 0) end)
    assert.is_true(moth.equal(wanted, moth.rand(3)))
    moth.manual_seed(5)
    fork(function() moth.rand(9) end, {enabled = false})
    assert.is_false(moth.equal(wanted, moth.rand(3)))
    assert.equal(moth.initial_seed(), moth.random.initial_seed())
  end)
end)

describe("moth.deepcopy", function()
  it("copies each object once, and shares what is no value", function()
    local shared = {1}
    local x = moth.ones(2)
    local t = {a = shared, b = shared, x = x, y = x, f = print, d = moth.float32,
      c = moth.nn.Linear}
    t.self = t
    local copy = moth.deepcopy(t)
    assert.is_true(copy.self == copy and copy.a == copy.b and copy.a ~= shared)
    assert.is_true(copy.x == copy.y and copy.x ~= x and copy.x:data_ptr() ~= x:data_ptr())
    assert.is_true(copy.f == print and copy.d == moth.float32 and copy.c == moth.nn.Linear)
    local own = setmetatable({}, {})
    assert.equal(own, moth.deepcopy({own})[1])
    local by_key = moth.deepcopy {[shared] = shared}
    local key, value = next(by_key)
    assert.is_true(key == value and key ~= shared)
  end)

  it("copies leaves with their gradients, except those of parameters", function()
    local x = moth.ones(2, {requires_grad = true})
    x:sum():backward()
    local copy = moth.deepcopy(x)
    assert.is_true(copy.requires_grad and copy.is_leaf)
    assert.same({1, 1}, copy.grad:tolist())
    assert.not_equal(x.grad:data_ptr(), copy.grad:data_ptr())
    local net = moth.nn.Linear(2, 2)
    net(moth.ones(1, 2)):sum():backward()
    local twin = moth.deepcopy(net)
    assert.is_nil(twin.weight.grad)
    assert.equal(4, twin.weight:numel())
    assert.equal(2, #twin:parameters())
    fails("deepcopy: f32 (2) was computed and has a history; copy x:detach()", moth.deepcopy, x * 2)
    fails("deepcopy: a.b[1], f32 (2) was computed", moth.deepcopy, {a = {b = {x * 2}}})
    local deep = {}
    for _ = 2, 200 do deep = {deep} end
    assert.is_table(moth.deepcopy(deep))
    fails("deepcopy: tables nest deeper than 200", moth.deepcopy, {deep})
  end)
end)

describe("a lazy namespace", function()
  local lazy = require "moth.base.lazy"
  it("finds names by their marks", function()
    local rows = {}
    lazy.from(rows, "moth.a", "plain method: :only function* both*:")
    lazy.from(rows, "moth.b", "plainer")
    local function of(mark)
      local list = {}
      for name in ("plain plainer method only function both plai"):gmatch "%S+" do
        if lazy.module(rows, name, mark) then list[#list + 1] = name end
      end
      return table.concat(list, " ")
    end
    assert.equal("plain plainer method function both", of())
    assert.equal("method only both", of ":")
    assert.equal("function both", of "*")
    assert.equal("moth.b", lazy.module(rows, "plainer"))
    local function each(mark)
      local list = {}
      lazy.each(rows, function(name, module) list[#list + 1] = name .. module:sub(5) end, mark)
      table.sort(list)
      return table.concat(list, " ")
    end
    assert.equal("both.a function.a method.a plain.a plainer.b", each())
    assert.equal("both.a method.a only.a", each ":")
    assert.equal("both.a function.a", each "*")
  end)

  it("loads a name once, lists all, and names the nearest", function()
    local rows, finds = {}, 0
    lazy.from(rows, "moth.json", "decode encode")
    rows.whole = {"moth.json"}
    local found = {}
    local space, names = lazy.namespace("moth.mine", {own = 1}, rows, {
      find = function(name) finds = finds + 1 return name == "late" and 5 or nil end,
      names = function() return {"late"} end, also = {"hidden"},
      found = function(value) found[#found + 1] = value end, hint = " (see mine)",
    })
    assert.equal(json.decode, space.decode)
    assert.equal(json, space.whole)
    assert.equal(5, space.late)
    assert.equal(5, space.late)
    assert.equal(1, finds)
    assert.equal(3, #found)
    assert.is_nil(space[1])
    assert.same({"decode", "encode", "hidden", "late", "own", "whole"}, names())
    assert.equal("moth.mine", tostring(space))
    space.decode = 7
    assert.equal(7, space.decode)
    assert.equal(json.decode, getmetatable(space).__built_in "decode")
    fails("moth.mine has no 'encod'; did you mean 'encode'? (see mine)",
      function() return space.encod end)
  end)
end)

describe("calls of the system", function()
  it("list folders and create them", function()
    local folder = os.tmpname()
    os.remove(folder)
    machine.make_folders(folder .. "/a/b")
    io.open(folder .. "/file", "w"):close()
    os.execute("ln -s a '" .. folder .. "/link'; ln -s file '" .. folder .. "/other'")
    local list, read = machine.entries(folder)
    local kinds = {}
    for _, entry in ipairs(list) do kinds[entry.name] = entry.is_folder end
    assert.same({["."] = true, [".."] = true, a = true, file = false, link = true, other = false},
      kinds)
    assert.is_true(read)
    assert.equal(3, #(machine.entries(folder, 3)))
    assert.same({}, (machine.entries(folder .. "/none")))
    assert.is_false((select(2, machine.entries(folder .. "/none"))))
    machine.make_folder(folder .. "/private")
    assert.equal("700", machine.output_of("stat -c %a '" .. folder .. "/private'"))
    os.execute("rm -r '" .. folder .. "'")
  end)

  it("report the process, the host and the time", function()
    assert.equal(machine.output_of "echo $PPID", tostring(machine.process()))
    assert.equal(machine.output_of "uname -n", machine.host())
    assert.is_true(math.abs(machine.time() - os.time()) < 5)
    local before = machine.time()
    for _ = 1, 1e6 do end
    local passed = machine.time() - before
    assert.is_true(passed > 0 and passed < 5)
    assert.is_nil(machine.output_of "true")
    assert.equal("a", machine.output_of "echo a; echo b")
    assert.equal(os.getenv "HOME" .. "/x/y", machine.user_folder "x/y")
    local name, cores = machine.processor()
    assert.is_true(cores >= 1 and (name == nil or #name > 0))
    assert.equal(tonumber(machine.output_of "grep -c ^processor /proc/cpuinfo"), cores)
    assert.is_false(machine.is_terminal(999))
    assert.is_nil(machine.window(999))
  end)
end)
