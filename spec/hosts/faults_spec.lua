--- Hosts that treat Moth badly, or that have little to give: states closed in the middle of work,
-- forks, signals, locales, no memory, no threads, no open files. Others are in
-- spec/core/context_spec.lua (the end of a state, forks while tensors pass),
-- spec/core/workers_spec.lua (workers) and spec/cases/faults_spec.lua (debug hooks, NULL pointers).

local moth = require "moth"
local process = require "spec.support.process"

local function host(case)
  return process.host("faults", case, "-rdynamic -ldl $(pkg-config --libs luajit)")
end

-- Runs Lua code in a process whose environment or descriptors a shell command has changed: the
-- words `run` in the command run it.
local function shell_lua(command, code)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(code)
  file:close()
  local text = process.shell((command:gsub("%f[%w]run%f[%W]", function()
    return ("%s '%s'"):format(process.program, path)
  end)))
  os.remove(path)
  return (text:gsub(path, "script"))
end

describe("a host", function()
  it("may close states while a backward pass waits in a hook or is paused", function()
    assert.equal("fine\nrc=0\n", host "backward")
  end)

  it("may drop a coroutine that waits in a hook of a backward pass", function()
    local w = moth.ones(8, 8):requires_grad_()
    local function drop()
      local y = w:matmul(w)
      y:register_hook(function() coroutine.yield() end)
      coroutine.wrap(function() moth.no_grad(function()
        moth.enable_grad(function() y:sum():backward() end)
      end) end)()
    end
    drop()
    moth.collect()
    local before = moth.memory()
    for _ = 1, 50 do drop() end
    moth.collect()
    moth.collect()
    local after = moth.memory()
    for _, name in ipairs {"live_bytes", "live_handles", "live_nodes", "live_tasks"} do
      assert.is_true(after[name] <= before[name], name)
    end
    assert.is_true(moth.is_grad_enabled())
    w.grad = nil
    w:matmul(w):sum():backward()
    assert.equal(16 * 64, w.grad:sum():item())
  end)

  it("may fork while the pool computes, and its children compute too", function()
    assert.equal("fine\nrc=0\n", host "forks")
  end)

  it("may load and unload the library 1,000 times: memory and threads do not grow", function()
    assert.equal("fine\nrc=0\n", host "unload")
  end)

  it("keeps its signal handlers, alternate stack and mask; no handler runs in the pool", function()
    assert.equal("fine\nrc=0\n", host "signals")
  end)

  it("gets an error if two threads call into one context at once", function()
    assert.equal("fine\nrc=0\n", host "two_threads")
  end)

  it("computes without a pool if the system starts no threads", function()
    if process.sanitized then return pending "a sanitizer has its own pthread_create" end
    assert.equal("fine\nrc=0\n", host "no_threads")
  end)
end)

describe("a locale with a decimal comma", function()
  it("changes no output, message, default value or file", function()
    local folder = os.tmpname()
    os.remove(folder)
    local made = process.shell(("mkdir '%s' && localedef -i de_DE -f UTF-8 '%s/de_DE.UTF-8'")
      :format(folder, folder))
    local code = [[
      local ffi = require "ffi"
      ffi.cdef "char *setlocale(int, const char *); double strtod(const char *, char **);"
      local german = os.getenv "GERMAN" ~= nil
      if german then assert(ffi.C.setlocale(6, "de_DE.UTF-8") ~= nil, "no such locale") end
      assert((ffi.C.strtod("0.5", nil) == 0) == german)
      local moth = require "moth"
      local nn, F = moth.nn, moth.nn.functional
      local x = moth.tensor{0.5, -1e-7, 3.25}
      print(x, moth.arange(0, 1, 0.25), moth.tensor(2.5), moth.tensor{1e30, -2.5})
      print(F.leaky_relu(x), F.layer_norm(x, {3}), F.softplus(x))
      print(pcall(F.dropout, x, 1.5))
      print(nn.Dropout(0.25), nn.BatchNorm1d(3), moth.optim.Adam({x}, {lr = 0.001}))
      print(pcall(moth.optim.SGD, {x}, {lr = -0.5}))
      print(pcall(moth.normal, 0, -0.5, {2}))
      local json = require "moth.json"
      print(json.number(0.5), json.decode("[0.25]")[1])
      local name = os.tmpname()
      local file = io.open(name, "w")
      file:write("a,b\n0.5,1e-3\n2.25,-1.5\n")
      file:close()
      print(moth.data.csv(name))
      moth.save({x = x, lr = 0.125}, name)
      local loaded = moth.load(name)
      print(loaded.x, loaded.lr)
      os.remove(name)
      moth.help "leaky_relu"]]
    local plain, german
    if made == "rc=0\n" then
      plain = shell_lua("run", code)
      german = shell_lua(("GERMAN=1 LOCPATH='%s' run"):format(folder), code)
    end
    os.execute("rm -r '" .. folder .. "'")
    if not plain then return pending("the locale de_DE cannot be made here: " .. made) end
    assert.matches("0%.2500.*rc=0\n$", plain)
    assert.equal(plain, german)
  end)
end)

describe("a process without address space", function()
  it("raises, and computes on after memory was freed", function()
    if process.sanitized then return pending "limits the address space" end
    local text = process.lua [[
      local ffi, moth = require "ffi", require "moth"
      ffi.cdef "int setrlimit(int resource, const uint64_t *limit);"
      local nn = moth.nn
      local net = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
      local x = moth.randn(32, 64)
      local limit = io.open("/proc/self/statm"):read "*n" * 4096 + 64 * 2 ^ 20
      ffi.C.setrlimit(9, ffi.new("uint64_t[2]", limit, limit)) -- RLIMIT_AS
      local kept = {}
      local fine, message = pcall(function()
        for i = 1, 1e6 do kept[i] = moth.ones(2 ^ 18) end
      end)
      print(fine, moth.errcode(), #kept > 20)
      moth.set_num_threads(8) -- their stacks do not fit
      local a = moth.ones(8, 8)
      print(a:matmul(a):sum():item())
      for _, sizes in ipairs {{4096, 4096}, {2 ^ 31}} do
        print(pcall(moth.ones, unpack(sizes)) == false, moth.errcode())
      end
      kept = nil
      moth.collect()
      moth.empty_cache()
      for _ = 1, 20 do net(x):square():mean():backward() end
      local big = moth.ones(400, 400)
      print(big:matmul(big)[1][1]:item(), net[1].weight.grad:isfinite():all():item())
    ]]
    assert.equal("false\tE_MEM\ttrue\n512\n" .. ("true\tE_MEM\n"):rep(2)
      .. "400\ttrue\nrc=0\n", text)
  end)
end)

describe("a process without standard input, output and error", function()
  it("trains, saves and loads, and writes nothing to files that take their numbers", function()
    local name = os.tmpname()
    local text = shell_lua(("run <&- >&- 2>&-; echo status $?; cat '%s.log'"):format(name), ([[
      local moth = require "moth"
      local name = %q
      local log = io.open(name .. ".log", "w") -- one of the closed descriptors
      local nn = moth.nn
      local net = nn.Linear(4, 1)
      local optimizer = moth.optim.SGD(net:parameters(), {lr = 0.1})
      local loader = moth.data.DataLoader(moth.data.TensorDataset(moth.ones(8, 4)),
        {batch_size = 4, num_workers = 2})
      for x in loader do
        net(type(x) == "table" and x[1] or x):square():mean():backward()
        optimizer:step()
      end
      local a = moth.ones(400, 400)
      local y = a:matmul(a)
      moth.save(net:state_dict(), name)
      net:load_state_dict(moth.load(name))
      log:write("done ", y[1][1]:item(), "\n")
      log:close()]]):format(name))
    os.remove(name)
    os.remove(name .. ".log")
    assert.equal("status 0\ndone 400\nrc=0\n", text)
  end)
end)

describe("a sealed file in memory", function()
  it("is loaded, mapped or read, and a write to the tensor leaves it as it is", function()
    local text = process.lua [[
      local ffi, moth = require "ffi", require "moth"
      ffi.cdef "int memfd_create(const char *, unsigned); int fcntl(int, int, ...);"
      local name = os.tmpname()
      moth.save({x = moth.arange(1, 1000)}, name)
      local file = io.open(name, "rb")
      local bytes = file:read "*a"
      file:close()
      local fd = ffi.C.memfd_create("weights", 2) -- MFD_ALLOW_SEALING
      local path = "/proc/self/fd/" .. fd
      local out = io.open(path, "wb")
      out:write(bytes)
      out:close()
      assert(ffi.C.fcntl(fd, 1033, ffi.cast("int", 15)) == 0) -- F_ADD_SEALS: all
      for _, mmap in ipairs {true, false} do
        local x = moth.load(path, {mmap = mmap}).x
        x:zero_()
        print(moth.load(path).x:sum():item())
      end
      print(pcall(moth.save, {x = moth.ones(3)}, path))
      os.remove(name)]]
    assert.matches("^499500\n499500\nfalse\t.*rc=0\n$", text)
  end)
end)
