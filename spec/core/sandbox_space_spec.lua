-- What a sandbox's scripts see of Moth, and the memory that they keep.

local moth = require "moth"
local measure = require "moth.sandbox.measure"
local fails = require("spec.support.refusals").fails

describe("the memory that a sandbox keeps", function()
  it("counts the texts of iterators", function()
    local box = moth.sandbox()
    local base = measure(box.env, box.metatables)
    box:run "f = ('x'):rep(10000):gmatch('y')"
    local bytes = measure(box.env, box.metatables) - base
    assert.is_true(bytes > 10000 and bytes < 10400)
  end)

  it("is a limit at the next call", function()
    local box = moth.sandbox {time = 5, memory = 2 ^ 20}
    box:run "s = {('x'):rep(700000)}"
    fails("memory limit", box.run, box, "t = {('y'):rep(400000)} for i = 1, 1e7 do t[i] = i end")
    fails("sandbox: it holds ", box.run, box, "return 1")
    box.env.t = nil
    assert.equal(2, box:run "return 1 + 1")
    assert.is_true(box.seconds >= 0 and box.seconds < 5)
    local _, seconds = box:run "local a = os.clock() for i = 1, 1e5 do end return a, os.clock() - a"
    assert.is_true(box.seconds >= seconds * 0.5)
    local small = moth.sandbox {tensors = 8000, globals = {x = moth.ones(2001)}, time = 5}
    fails("in tensors; its limits are 16777216 and 8000", function()
      small:run "y = moth.ones(1500)"
      small:run "return 1"
      small:run "return 1"
    end)
  end)
end)

describe("Moth in a sandbox", function()
  local box = moth.sandbox {time = 5}

  it("has proxies that print, call and derive as the real ones", function()
    assert.same({true, true, true, true}, {box:run [[
      local nn = moth.nn
      local Net = nn.class("Net", nn.Linear)
      local net = Net(2, 3)
      return nn.isinstance(net, nn.Linear), nn.isinstance(net, Net), nn.isinstance(net, nn.Module),
        not nn.isinstance(net, nn.ReLU)]]})
    assert.is_true((box:run [[
      local F = moth.class("F", moth.autograd.Function)
      function F.forward(ctx, x) return x * 2 end
      function F.backward(ctx, dy) return dy * 3 end
      local x = moth.ones(2, {requires_grad = true})
      F.apply(x):sum():backward()
      return x.grad:sum():item() == 6]]))
    assert.is_true((box:run "return moth.nn == moth.nn and moth.nn.Linear == moth.nn.Linear"))
    assert.equal(tostring(moth.nn.Linear), (box:run "return tostring(moth.nn.Linear)"))
    assert.is_true((box:run "return moth.nn.Linear.__index ~= moth.nn.Linear"))
    assert.is_nil((box:run "return moth[5]"))
    assert.is_nil((box:run "return moth.nn[5]"))
    for name in ("no_grad enable_grad grad backward"):gmatch "%S+" do
      assert.equal("function", (box:run("return type(moth.autograd." .. name .. ")")))
    end
    for name in ("set_detect_anomaly graph saved_tensors_hooks"):gmatch "%S+" do
      fails("moth.autograd." .. name .. " is not available in a sandbox", box.run, box,
        "return moth.autograd." .. name)
    end
    fails("moth.nn.register_module_forward_hook is not available in a sandbox", box.run, box,
      "return moth.nn.register_module_forward_hook")
    fails("moth.compile is not available in a sandbox", box.run, box, "return moth.compile")
    fails("a sandbox cannot change Moth's 'relu'", box.run, box, "moth.nn.functional.relu = 1")
  end)

  it("has each namespace's functions", function()
    for call, wanted in pairs {
      ["moth.fft.rfft(x)"] = 6, ["moth.linalg.norm(x)"] = 1,
      ["moth.special.entr(x)"] = 4, ["moth.signal.windows.hann(5)"] = 5, ["x:add(1)"] = 4,
      ["moth.add(x, 1)"] = 4, ["moth.nn.functional.relu(x)"] = 4, ["moth.func.grad(function(v) "
        .. "return v:sum() end)(x)"] = 4, ["moth.nn.utils.parameters_to_vector({x})"] = 4,
      ["moth.nn.init.zeros_(x)"] = 4, ["moth.vmap(function(v) return v * 2 end)(x)"] = 4,
      ["moth.nn.utils.rnn.pad_sequence({x, x[{{1, 2}}]})"] = 8, ["moth.zeros_like(x)"] = 4,
      ["moth.tensor({1, 2}, {dtype = moth.int64})"] = 2,
      ["moth.ones(2, {device = moth.device 'cpu'})"] = 2, ["x[moth.newaxis]"] = 4,
      ["x:to{memory_format = moth.contiguous_format}"] = 4,
    } do
      local code = "local x = moth.ones(4) return (" .. call .. "):numel()"
      assert.equal(wanted, (box:run(code)), call)
    end
    assert.equal(moth.version, (box:run "return moth.version"))
    assert.is_true((box:run "return moth.none ~= nil and moth.strided == 'strided'"))
  end)

  it("shares dtypes and devices, which nobody changes", function()
    assert.equal(moth.float32, (box:run "return moth.float32"))
    assert.equal(moth.device "cpu", (box:run "return moth.device 'cpu'"))
    assert.equal(8, (box:run "return moth.float64.itemsize"))
    assert.equal("cuda", (box:run "return moth.device('cuda', 3).type"))
    assert.equal(4, moth.int32.itemsize)
    assert.is_true(moth.float16.is_floating_point)
    assert.is_nil((box:run "return moth.float64.none"))
    fails("'itemsize' cannot be assigned", box.run, box, "moth.float64.itemsize = 4")
    fails("'index' cannot be assigned", box.run, box, "moth.device('cuda', 3).index = 4")
    fails("'itemsize' cannot be assigned", function() moth.float64.itemsize = 4 end)
  end)

  it("saves files with plain names only", function()
    local folder = os.tmpname()
    os.remove(folder)
    os.execute("mkdir " .. folder)
    local own = moth.sandbox {time = 5, folder = folder}
    for _, name in ipairs {"a.safetensors", "_b-c.safetensors", "9.safetensors",
      ("n"):rep(188) .. ".safetensors"} do
      assert.equal(2, (own:run([[local name = ...
        moth.save({w = moth.ones(2)}, name) return moth.load(name).w:sum():item()]], name)))
    end
    for _, name in ipairs {"", "-a", ".a", "a/b", "a b", "a\0b", ("n"):rep(201), 5} do
      for _, fname in ipairs {"save", "load"} do
        fails("bad argument 'path' to '" .. fname .. "' (a file name of letters, digits", own.run,
          own, "local f, name = ... if f == 'save' then moth.save({}, name) else moth.load(name) "
          .. "end", fname, name)
      end
    end
    os.execute("rm -r " .. folder)
  end)
end)
