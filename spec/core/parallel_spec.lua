-- The pool of threads: its start, its sleep, and results that do not depend on it. Each claim runs
-- in a forked process, which has a new pool.

local ffi = require "ffi"
local moth = require "moth"
local F = moth.nn.functional
local child = require "spec.support.child"

pcall(ffi.cdef, "int usleep(unsigned microseconds);")

--- Threads of this process.
local function threads()
  local n = 0
  for line in io.lines "/proc/self/status" do
    n = tonumber(line:match("^Threads:%s*(%d+)")) or n
  end
  return n
end

--- Clock ticks that all threads of this process have used.
local function ticks()
  local file = io.open "/proc/self/stat"
  local user, system = file:read("*a"):match("%) %S+" .. (" %S+"):rep(10) .. " (%d+) (%d+)")
  file:close()
  return tonumber(user) + tonumber(system)
end

local function large_work()
  local x = moth.randn(512, 2048)
  local part = x[{ {}, { 1, 300 } }]
  local sorted, order = part:sort(2)
  local top, which = x:topk(8, 2)
  local middle, where = part:median(2)
  return { x:exp(), F.softmax(x, 2), x:matmul(x:t()), x:sum(1), x:sum(), F.layer_norm(x, { 2048 }),
           sorted, order, top, which, middle, where, x[{ {}, 1 }]:matmul(x),
           moth.zeros(512, 2048):scatter_add(2, which, top), x:kthvalue(100, 2),
           F.pad(x, { 3, 2, 1, -2 }), x:scatter_reduce(2, order, part, "mean"), x:double():tanh() }
end

describe("the pool of threads", function()
  it("is not started by small ops", function()
    assert.is_true(child.run(function()
      moth.set_num_threads(4)
      local x = moth.randn(64)
      for _ = 1, 200 do x = (x + 1):tanh() end
      return threads() == 1
    end))
  end)

  it("is started by large ops, and not with one thread", function()
    assert.is_true(child.run(function()
      moth.set_num_threads(1)
      large_work()
      if threads() ~= 1 then return false end
      moth.set_num_threads(3)
      large_work()
      return threads() == 3
    end))
  end)

  it("uses no CPU time while idle", function()
    assert.is_true(child.run(function()
      moth.set_num_threads(4)
      large_work()
      ffi.C.usleep(20000)
      local before = ticks()
      ffi.C.usleep(300000)
      return ticks() - before <= 1
    end))
  end)

  it("computes the same bits for any number of threads", function()
    assert.is_true(child.run(function()
      local results = {}
      for n = 1, 4 do
        moth.set_num_threads(n)
        moth.manual_seed(3)
        results[n] = large_work()
        for i, y in ipairs(results[n]) do
          if not moth.equal(y, results[1][i]) then return false end
        end
      end
    end))
  end)

  it("works in a forked process whose parent used it", function()
    assert.is_true(child.run(function()
      moth.set_num_threads(2)
      moth.manual_seed(3)
      local x = large_work()
      return child.run(function()
        moth.manual_seed(3)
        for i, y in ipairs(large_work()) do
          if not moth.equal(y, x[i]) then return false end
        end
        return threads() == 2
      end)
    end))
  end)
end)
