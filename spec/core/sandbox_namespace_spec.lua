-- Moth as a sandbox's scripts see it: which names are allowed, what proxies show and hide, files by
-- names in one folder.

local moth = require "moth"
local files = require "spec.support.files"

setup(files.setup)
teardown(files.teardown)

local box = moth.sandbox {time = 5}

local function run(code, ...) return box:run(code, ...) end

local function check(wanted, code, ...)
  local ok, problem = pcall(box.run, box, code, ...)
  assert.is_false(ok, "was taken: " .. code)
  local message = tostring(type(problem) == "table" and problem.message or problem)
  if not message:find(wanted, 1, true) then error(message .. "\nlacks: " .. wanted, 2) end
end

describe("the namespace of a sandbox", function()
  it("has all ops and the listed functions", function()
    for name in ("tensor zeros matmul relu where sort randint cross_entropy no_grad scope "
      .. "is_tensor "
      .. "typename numel vmap einsum errcode conv2d"):gmatch "%S+" do
      assert.equal("function", run("return type(moth." .. name .. ")"), name)
    end
    assert.same({3, 4}, {run "return moth.pi > 3 and 3, moth.tensor({4}):item()"})
    assert.is_true((run "return moth.none ~= nil and moth.inf == 1 / 0"))
  end)

  it("refuses what reaches outside, with its path", function()
    for name in ("save load open context manual_seed set_num_threads set_default_dtype leaks "
      .. "define "
      .. "kernel capture fit data io onnx distributed cuda sandbox profiler models audio plot")
      :gmatch "%S+" do
      check("moth." .. name .. " is not available in a sandbox", "return moth." .. name)
    end
    check("moth.autograd.backward_hooks is not available in a sandbox",
      "return moth.autograd.backward_hooks")
    assert.equal("function", run "return type(moth.autograd.grad)")
    for name in ("register_module_forward_hook register_module_full_backward_hook "
      .. "register_module_parameter_registration_hook"):gmatch "%S+" do
      check("moth.nn." .. name .. " is not available in a sandbox", "return moth.nn." .. name)
    end
    check("no_such", "return moth.no_such")
    assert.is_nil(run "return moth[1]")
    assert.is_nil(run "return moth.nn[1]")
  end)

  it("has the inner namespaces, the same table at each access", function()
    for path in ("nn nn.functional nn.init nn.utils nn.utils.rnn optim optim.lr_scheduler "
      .. "linalg fft "
      .. "special func signal signal.windows autograd"):gmatch "%S+" do
      assert.is_true((run(("return type(moth.%s) == 'table' and moth.%s == moth.%s"):format(path,
        path, path))), path)
    end
    check("a sandbox cannot change Moth's 'ones'", "moth.ones = 1")
    check("a sandbox cannot change Moth's 'relu'", "moth.nn.functional.relu = 1")
    check("a sandbox cannot change Moth's 'forward'", "moth.nn.Linear.forward = 1")
    assert.is_false((run "return getmetatable(moth.nn)"))
  end)

  it("has Moth's classes: they create objects and have methods, their tables are hidden", function()
    assert.is_true((run [[
      local net = moth.nn.Linear(2, 3)
      return moth.nn.isinstance(net, moth.nn.Linear) and moth.nn.isinstance(net, moth.nn.Module)
        and not moth.nn.isinstance(net, moth.nn.Conv2d) and not moth.nn.isinstance(3,
          moth.nn.Linear)
        and moth.typename(net) == "Linear"]]))
    assert.equal("function", run "return type(moth.nn.Linear.forward)")
    for _, name in ipairs {"__index", "_parameters", "base", "methods"} do
      assert.is_true(run("return moth.nn.Linear['" .. name .. "']") == nil
        or type(run("return moth.nn.Linear['" .. name .. "']")) == "function", name)
    end
    assert.equal(tostring(moth.nn.Linear), run "return tostring(moth.nn.Linear)")
    assert.same({1, 3}, (function()
      local y = run "return moth.nn.Linear(2, 3)(moth.ones(1, 2))"
      return {y:size(1), y:size(2)}
    end)())
  end)

  it("derives classes of its own from Moth's and from each other", function()
    assert.same({7, 8}, {run [[
      local A = moth.nn.class("A", moth.nn.Module)
      function A:forward(x) return x + 1 end
      local B = moth.class("B", A)
      function B:forward(x) return A.forward(self, x) + 1 end
      local x = moth.tensor(6)
      return A()(x):item(), B()(x):item()]]})
    assert.is_nil(rawget(_G, "A"))
  end)

  it("shares dtypes and devices, which nobody changes", function()
    assert.equal(moth.float64, run "return moth.float64")
    assert.equal(moth.float64, run "return moth.double")
    assert.equal("cpu", tostring(run "return moth.device('cpu')"))
    assert.is_true((run "return moth.ones(1, {dtype = moth.int64}).dtype == moth.int64"))
    check("'itemsize' cannot be assigned", "moth.float32.itemsize = 1")
    check("'type' cannot be assigned", "moth.device('cpu').type = 'x'")
    assert.equal(4, moth.float32.itemsize)
    assert.equal("cpu", moth.device("cpu").type)
    assert.equal("strided", run "return moth.strided")
  end)
end)

describe("files of a sandbox", function()
  it("are names in its folder", function()
    local folder = files.path ""
    local own = moth.sandbox {folder = (folder:gsub("/$", "")), time = 5}
    own:run "moth.save({w = moth.ones(2)}, 'a_b-c.1.safetensors')"
    assert.same({1, 1}, own:run("return moth.load('a_b-c.1.safetensors').w"):tolist())
    assert.same({1, 1}, moth.load(files.path "a_b-c.1.safetensors").w:tolist())
    own:run(("moth.save({}, '%s')"):format(("n"):rep(200)))
    for _, name in ipairs {"../x", "/tmp/x", "a/b", ".hidden", "-x", "a b", "", ("n"):rep(201)} do
      local ok, problem = pcall(own.run, own, ("moth.save({}, '%s')"):format(name))
      assert.is_false(ok, name)
      assert.is_truthy(tostring(problem):find("bad argument 'path' to 'save' (a file name of "
      .. "letters, "
        .. "digits, '_', '-' and '.' is needed", 1, true), tostring(problem))
      ok, problem = pcall(own.run, own, ("moth.load('%s')"):format(name))
      assert.is_false(ok, name)
      assert.is_truthy(tostring(problem):find("bad argument 'path' to 'load'", 1, true))
    end
    assert.is_false((pcall(own.run, own, "moth.save({}, 3)")))
  end)
end)

describe("arguments of a sandbox's string functions are named by their number:", function()
  local lib = box.env.string
  for name, n in pairs {find = 2, match = 2, gmatch = 2, gsub = 3, rep = 2, format = 1, byte = 1} do
    it(name, function()
      for k = 1, n do
        local arguments = name == "rep" and {"a", 2} or {"a", "b", "c"}
        arguments[k] = {}
        if name == "gsub" and k == 3 then arguments[k] = true end
        local ok, problem = pcall(lib[name], unpack(arguments, 1, n))
        assert.is_false(ok)
        assert.is_truthy(tostring(problem):find(("bad argument #%d to '%s'"):format(k, name), 1,
          true),
          tostring(problem))
      end
    end)
  end
end)
