-- The op `fused` on a GPU: kernels compiled at run time, by NVRTC itself on a real GPU. Its
-- substitute (spec/host/nvrtc.c) compiles them with a C++ compiler for the CPU. Each claim has its
-- own process, since the library is opened once.

local ffi = require "ffi"
local cuda = require "spec.support.cuda"
local library = require "spec.support.library"

--- The file of NVRTC, or nil.
local function nvidia()
  for _, name in ipairs { "libnvrtc.so.13", "libnvrtc.so.12" } do
    if pcall(ffi.load, name) then return name end
  end
end

local emulated = cuda.name:find("emulated", 1, true) and not os.getenv "MOTH_EMULATED_PTX"
local path = not emulated and (os.getenv "MOTH_NVRTC" or nvidia())
if not cuda.here or not (emulated or path) then
  return pending("kernels made at run time: this wants a GPU, and NVRTC for a real one")
end

if emulated then
  setup(function() path = library.built "nvrtc" end)
  teardown(function() os.remove(path) end)
end

--- The code that all claims begin with. `f` numbers the functions by name, as kernel/math/maps.c; a
-- step of a program is {result, function, operands ...}.
local begin = [[
  local fused = require("moth.binding.bind").ops.fused
  local codes, f, kinds = {}, {convert = -1}, {}
  for name, dtype in pairs(require("moth.tensor.dtype").by_name) do codes[name] = dtype.code end
  local n = 0
  for _, family in ipairs {"arith", "unary", "special", "binary", "compare", "activation",
                           "pointloss"} do
    local file = io.open(require("moth.error").root .. "core/op/" .. family .. ".h")
    for kind, name in file:read "*a":gmatch "F%(([%u_]+), ([%w_]+)," do
      f[name], kinds[name], n = n, kind, n + 1
    end
    file:close()
  end
  f.where, kinds.where = n, "WHERE"
  local function run(inputs, program, dtypes, results, numbers)
    local steps = {}
    for _, step in ipairs(program) do
      local name, dtype = step[2]:match "^(%S+) ?(%S*)$"
      local at = #steps
      steps[at + 1], steps[at + 2], steps[at + 3] = f[name], codes[dtype] or -1, #step - 1
      steps[at + 4] = step[1]
      for k = 3, 7 do steps[at + 2 + k] = step[k] or 0 end
    end
    for i, name in ipairs(dtypes) do dtypes[i] = codes[name] or -1 end
    return fused(inputs, steps, dtypes, results or 1, numbers)
  end
  local function same(a, b)
    assert(a.dtype == b.dtype and a:dim() == b:dim())
    a, b = a:cpu(), b:cpu()
    if a.dtype.is_floating_point then
      assert(moth.equal(a:isnan(), b:isnan()))
      a, b = a:nan_to_num(), b:nan_to_num()
    end
    assert(moth.equal(a, b))
  end
  moth.manual_seed(1)
]]

local function made(settings, code)
  if not emulated then settings.MOTH_CACHE = "none" end
  return library.with("MOTH_NVRTC", path, settings, begin .. code)
end

--- The end of a process that compiled n kernels: NVRTC's substitute counts them.
local function done(count)
  return (emulated and ("made=%s refused=0 left=0\n"):format(count) or "") .. "rc=0\n"
end

local function on_stand_in(name, claim)
  if emulated then it(name, claim) end
end

describe("fused on a GPU", function()
  on_stand_in("keeps compiled code on disk, and compiles again what was spoilt there", function()
    local folder = os.tmpname()
    os.remove(folder)
    local function go(expected)
      local text = made({ MOTH_CACHE = folder .. "/a/b" }, [[
        local x = moth.randn(100):to "cuda"
        same(run({x}, {{2, "tanh", 0}, {1, "exp", 2}}, {"", ""}), x:tanh():exp())
        print "same"
      ]])
      assert.matches("same", text)
      assert.equal(expected, text:match "made=%d+" or "made=0", text)
    end
    go "made=1"
    go "made=0"
    local pipe = io.popen("ls '" .. folder .. "/a/b'")
    local names = pipe:read "*a"
    pipe:close()
    assert.matches("^%x+%.kernel\n$", names) -- and nothing else
    local name = folder .. "/a/b/" .. names:match "^%S+"
    local file = io.open(name, "rb")
    local whole = file:read "*a"
    file:close()
    for _, spoilt in ipairs { "", whole:sub(1, 20), whole:sub(1, -2),
      whole:sub(1, 30) .. "?" .. whole:sub(32) } do
      file = io.open(name, "wb")
      file:write(spoilt)
      file:close()
      go "made=1"
      file = io.open(name, "rb")
      os.remove(file:read("*a"):match "/tmp/moth%-made%-%w+")
      file:close()
      os.remove(name)
    end
    os.remove(whole:match "/tmp/moth%-made%-%w+")
    file = io.open(name, "wb") -- code that cannot be loaded
    file:write(whole)
    file:close()
    go "made=1"
    file = io.open(name, "rb")
    os.remove(file:read("*a"):match "/tmp/moth%-made%-%w+")
    file:close()
    os.execute("rm -rf '" .. folder .. "'")
  end)

  it("returns the bits of the single ops, for every dtype and layout of the operands", function()
    local text = made({}, [[
      -- silu(x) * y + 0.3 * x, and whether it is above y
      local program = {{4, "silu", 0}, {5, "mul", 4, 1}, {2, "more", 5, 0}, {3, "gt", 2, 1}}
      local numbers = {0, 0, 0, 0, 0, 0, 0.3, 0, 0, 0, 0, 0}
      local function check(x, y)
        local first, second = run({x, y}, program, {"", "bool", "", ""}, 2, numbers)
        local wanted = moth.add(moth.nn.functional.silu(x) * y, x, {alpha = 0.3})
        same(first, wanted)
        same(second, wanted:gt(y))
      end
      for _, dtype in ipairs {"float32", "float64", "float16", "bfloat16"} do
        local function r(...) return moth.randn({...}, {device = "cuda"}):to(moth[dtype]) end
        local wide = r(9, 10, 11)
        check(r(37, 700), r(37, 700))
        check(r(37, 70), r(70))
        check(r(5, 1, 7), r(3, 1))
        check(r(), r())
        check(r(1003), moth.tensor(0.5, {dtype = moth[dtype]}))
        check(r(0, 4), r(4))
        check(wide:transpose(1, 3), r(9))
        check(wide:permute(2, 3, 1), r(10, 11, 9))
        check(r(1001)[{{2, 1001}}], r(1000))
        check(wide[{{}, {1, 10, 3}, {2, 11, 2}}], r(9, 4, 5))
        check(r(4000), r(1))
        check(r(1, 4000):expand(3, 4000), r(3, 1))
      end
    ]])
    assert.equal(done(4), text)
  end)

  it("computes integers, bools and conversions as the CPU does", function()
    assert.equal(done(6), made({}, [[
      local function both(inputs, ...)
        local there = {}
        for i, x in ipairs(inputs) do there[i] = x:cuda() end
        local more = {...}
        local function copy(t) local to = {} for i, v in ipairs(t) do to[i] = v end return to end
        local a = {run(there, more[1], copy(more[2]), more[3], more[4])}
        local b = {run(inputs, more[1], copy(more[2]), more[3], more[4])}
        for i = 1, #b do same(a[i], b[i]) end
      end
      local function whole(dtype) return moth.randint(-100, 100, {50, 6}):to(moth[dtype]) end
      for _, dtype in ipairs {"int64", "uint8"} do
        both({whole(dtype), whole(dtype)}, {{3, "mul", 0, 1}, {4, "bitwise_xor", 3, 0},
          {2, "maximum", 4, 1}}, {"", "", ""}, 1)
      end
      local mask = moth.randn(50, 6):gt(0)
      both({mask, mask:logical_not():t():contiguous():t()}, {{3, "logical_or", 0, 1},
        {2, "bitwise_xor", 3, 0}}, {"", ""}, 1)
      local x = moth.randn(50, 6) * 300
      both({x, mask}, {{2, "convert", 0}, {3, "convert", 0}, {4, "convert", 1},
        {5, "where float32", 1, 4, 0}}, {"uint8", "int16", "float32", "float32"}, 4)
      both({moth.tensor {1e30, -1e30, 0 / 0, 254.9, -1.5}}, {{1, "convert", 0}, {2, "convert", 0},
        {3, "convert", 0}}, {"uint8", "int64", "bool"}, 3)
      both({x:half(), x}, {{3, "mul float32", 0, 1}, {2, "add float16", 3, 0}},
        {"float16", "float32"}, 1)
    ]]))
  end)

  it("supports up to eight inputs and four results, also in place", function()
    assert.equal(done(1), made({}, [[
      local x = {}
      for i = 1, 8 do x[i] = moth.randn({6, 50}, {device = "cuda"}) end
      local program, wanted = {{12, "add", 0, 1}}, x[1] + x[2]
      for i = 2, 6 do
        program[i], wanted = {11 + i, i % 2 == 0 and "mul" or "add", 10 + i, i},
          i % 2 == 0 and wanted * x[i + 1] or wanted + x[i + 1]
      end
      program[7] = {8, "sub", 17, 7}
      for i = 9, 11 do program[i - 1] = {i, "neg", i - 1} end
      local to = {run(x, program, {"", "", "", "", "", "", "", "", "", ""}, 4)}
      wanted = wanted - x[8]
      for i = 1, 4 do same(to[i], i % 2 == 1 and wanted or -wanted) end
    ]]))
  end)

  it("is compiled once for all numbers and shapes", function()
    assert.equal(done(1), made({}, [[
      for i = 1, 5 do
        local x = moth.randn({i, 3}, {device = "cuda"})
        same(run({x}, {{1, "more", 0, 0}}, {""}, 1, {i, 0, 0}), moth.add(x, x, {alpha = i}))
      end
    ]]))
  end)

  it("is compiled once if threads need it at the same time", function()
    assert.equal(done(1), made({}, [[
      local set, i = require("spec.support.sets").Fused(12), 0
      for x in moth.data.DataLoader(set, {batch_size = 1, num_workers = 3}) do
        i = i + 1
        same(x, moth.full({1, 1000}, 3 * i))
      end
      assert(i == 12)
    ]]))
  end)

  it("is a part of CUDA graphs, also with CPU numbers that change", function()
    assert.equal("1 graph\n" .. done(2), made({}, [[
      local x, rate = moth.randn({40, 5}, {device = "cuda"}), moth.tensor(0.5)
      local function steps()
        local y = run({x, rate}, {{3, "mul", 0, 1}, {2, "add", 3, 0}}, {"", ""})
        for _ = 1, 3 do y = run({y, x}, {{3, "mul", 0, 1}, {2, "sub", 3, 0}}, {"", ""}) end
        return y
      end
      local captured = moth.capture(steps)
      for i = 1, 4 do
        x:copy_(moth.randn(40, 5))
        rate:fill_(i)
        same(captured(), steps())
      end
      print(tostring(captured):match "%d+ graph")
    ]]))
  end)

  it("replaces consecutive elementwise ops of a captured step", function()
    local step = [[
      local F, optim = moth.nn.functional, moth.optim
      local function r(...) return moth.randn({...}, {device = "cuda"}) end
      local function gelu(x)
        return 0.5 * x * (1 + moth.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))
      end
      local w, v, rate = r(8, 100), r(100), moth.tensor(0.5)
      w.requires_grad, v.requires_grad = true, true
      local function loss(x)
        local h = gelu(F.linear(x, w:t()) * v + rate)
        return moth.where(h:gt(0.1), h, -h:half():float()):mean()
      end
      local function step(x)
        w.grad, v.grad = nil, nil
        local y = loss(x)
        y:backward()
        return y:detach(), w.grad, v.grad
      end
      local captured = moth.capture(step)
      for i = 1, 4 do
        local x = r(20, 8)
        rate:fill_(i / 4)
        local y, dw, dv = captured(x)
        y, dw, dv = y:clone(), dw:clone(), dv:clone()
        local y2, dw2, dv2 = step(x)
        same(y, y2) same(dw, dw2) same(dv, dv2)
      end
      print(tostring(captured):match "%d+ graph")
    ]]
    local text = made({}, step)
    local count = text:match "made=(%d+)" or 2
    assert.equal("1 graph\n" .. done(count), text)
    assert.truthy(tonumber(count) >= 2, text) -- forward and backward
    assert.equal("1 graph\nrc=0\n", library.with("MOTH_NVRTC", "none", {}, begin .. step))
  end)

  on_stand_in("says what is missing, or wrong, and what works without", function()
    local ask = [[
      local x = moth.ones({3}, {device = "cuda"})
      for _ = 1, 2 do
        local ok, text = pcall(run, {x}, {{1, "add", 0, 0}}, {""})
        print(ok, moth.errcode(), text)
      end
      assert(run({x:narrow(1, 1, 0)}, {{1, "add", 0, 0}}, {""}):numel() == 0)
      print((x + x):tolist()[1])
    ]]
    local text = library.with("MOTH_NVRTC", "none", {}, begin .. ask)
    assert.truthy(text:find("false\tE_UNSUPPORTED\t[^\n]*fused: its kernel is compiled at run time "
      .. "by NVRTC %(libnvrtc.so of CUDA 12 or 13%), which was not found; single ops work "
      .. "without it"), text)
    assert.truthy(text:find("2\nrc=0\n$"), text)
    text = made({ NVRTC_REFUSES = "1" }, ask)
    assert.truthy(text:find("NVRTC failed to compile the kernel: moth.cu(1): error: this "
      .. "is not to my taste", 1, true), text)
    assert.truthy(text:find("2\nmade=0 refused=1 left=0\nrc=0\n$"), text) -- once for both calls
    text = made({ NVRTC_OLDEST = "100" }, ask)
    assert.truthy(text:find("this NVRTC compiles only for newer GPUs", 1, true), text)
    assert.equal(done(1), made({ NVRTC_OLDEST = "80" }, -- as PTX
      [[run({moth.ones({3}, {device = "cuda"})}, {{1, "add", 0, 0}}, {""})]]))
  end)

  on_stand_in("is told by moth doctor", function()
    local ask = [[
      local ffi = require "ffi"
      local room = ffi.new "char[4096]"
      local lib = require "moth.binding.lib"
      lib.C.moth_device_report(lib.ctx, room, 4096)
      print(ffi.string(room):match "NVRTC\t([^\n]*)")
    ]]
    assert.equal("13.7 (" .. path .. ")\nrc=0\n", made({}, ask))
    assert.equal("not found: elementwise ops run one by one, none are fused\nrc=0\n",
      library.with("MOTH_NVRTC", "none", {}, ask))
  end)

  it("runs moth.kernel, also backward; without NVRTC its ops run one by one", function()
    local code = [[
      local function fn(x, y, b) return x * moth.sigmoid(x) * y + 0.5 * b end
      local kernel = moth.kernel(fn)
      for _, dtype in ipairs {moth.float32, moth.float16} do
        local grads, results = {}, {}
        for k, f in ipairs {kernel, fn, kernel} do
          local x = moth.linspace(-2, 2, 600):view(20, 30):to(dtype):cuda()
          local y, b = (x * 3):sin(), x[1]:clone()
          x.requires_grad, b.requires_grad = true, true
          results[k] = f(x, y, b)
          results[k]:backward(y)
          grads[k] = {x.grad, b.grad}
        end
        for k = 1, 3, 2 do
          same(results[k], results[2])
          same(grads[k][1], grads[2][1])
          assert(moth.allclose(grads[k][2]:cpu(), grads[2][2]:cpu(), {rtol = 1e-2, atol = 1e-2}))
        end
      end
      local text = tostring(kernel)
    ]]
    local text = made({}, code .. "assert(not text:find 'op by op', text)")
    assert.equal(done(4), text)
    assert.equal("rc=0\n", library.with("MOTH_NVRTC", "none", {}, begin .. code
      .. "assert(text:find 'op by op', text)"))
  end)
end)

describe("NVRTC", function()
  local name = nvidia()
  if not emulated then return end -- on a GPU, it has compiled all of the above
  if not name then return pending("compiles what is made for it: libnvrtc.so is not found here") end

  it("compiles every function for every kind of dtype that it supports", function()
    local text = library.with("MOTH_NVRTC", name, { MOTH_EMULATED_MAJOR = "8" }, begin .. [[
      local names, compiled = {}, 0
      for function_name, number in pairs(f) do
        if number >= 0 and function_name ~= "where" then names[#names + 1] = function_name end
      end
      table.sort(names)
      local function input(dtype, device)
        return moth.ones({4}, {device = device}):to(moth[dtype])
      end
      local function program_of(list, dtype)
        local steps, dtypes = {}, {}
        for i, it in ipairs(list) do
          steps[i], dtypes[i] = {2 + i, it[1] .. " " .. dtype, 0, 1, 2}, it[3]
          for k = it[2] + 3, 5 do steps[i][k] = nil end
        end
        return steps, dtypes, math.min(4, #list)
      end
      local function compile(list, dtype)
        local x = input(dtype, "cuda")
        local ok, message = pcall(run, {x, x, x}, program_of(list, dtype))
        assert(not ok and message:find("the code of NVRTC cannot be loaded", 1, true), message)
        compiled = compiled + #list
      end
      for _, dtype in ipairs {"float32", "int32", "bool"} do
        local x, list = input(dtype, "cpu"), {}
        for _, name in ipairs(names) do
          local to = kinds[name] == "QUESTION" and "bool" or dtype
          for n = 1, 3 do
            if pcall(run, {x, x, x}, program_of({{name, n, to}}, dtype)) then
              list[#list + 1] = {name, n, to}
            end
          end
          if #list == 16 then compile(list, dtype) list = {} end
        end
        if #list > 0 then compile(list, dtype) end
      end
      print(compiled > 200)
    ]])
    assert.equal("true\nrc=0\n", text)
  end)

  it("keeps intermediate values in registers, however many there are", function()
    assert.equal("false\nrc=0\n", library.with("MOTH_NVRTC", name, {
      MOTH_EMULATED_MAJOR = "99", -- newer than NVRTC knows: PTX, which is text
    }, begin .. [[
      local x, program, dtypes = moth.ones({4}, {device = "cuda"}), {{2, "gelu", 0}}, {}
      for i = 3, 16 do
        program[i - 1] = {i, i % 3 == 0 and "add" or "gelu_back", i - 1, i % 3 == 0 and 1 or 0}
      end
      for i = 1, 15 do dtypes[i] = "" end
      local ok, message = pcall(run, {x, x}, program, dtypes, 4)
      assert(message:find("the code of NVRTC cannot be loaded", 1, true), message)
      print(ok)
    ]]))
  end)
end)
