-- DataLoaders with workers: Lua states on their own threads.

local moth = require "moth"
local answers = require "spec.support.answers"
local child = require "spec.support.child"
local process = require "spec.support.process"
local sets = require "spec.support.sets"

local nn, data = moth.nn, moth.data
local batches, plain = answers.batches, answers.plain

local function threads()
  local pipe = io.popen("ls /proc/" .. io.open("/proc/self/stat"):read "*n" .. "/task | wc -l")
  local n = pipe:read "*n"
  pipe:close()
  return n
end

-- Waits until the ending threads have ended; returns the number of threads.
local function settled()
  moth.collect()
  local n = threads()
  for _ = 1, 40 do
    os.execute "sleep 0.05"
    local now = threads()
    if now == n then return n end
    n = now
  end
  return n
end

describe("with workers a loader returns the same batches in the same order", function()
  local x, y = moth.arange(60):view(20, 3):float(), moth.arange(1, 21)
  local made = {
    ["rows of tensors"] = function() return data.TensorDataset(x, y) end,
    ["a tensor"] = function() return x end,
    ["a dataset of one's own"] = function() return sets.Squares(20) end,
    ["samples of all kinds"] = function() return sets.Mixed(20) end,
    ["one that keeps its samples"] = function() return sets.Cached(20) end,
    ["a source"] = function() return data.source("spec.support.sets:Squares", 20) end,
    ["a source of a tensor"] = function() return data.source("moth:arange", 20) end,
    ["some rows"] = function() return data.Subset(data.TensorDataset(x, y), moth.arange(3, 9)) end,
    ["a part of a split"] = function() return data.random_split(sets.Squares(20), {12, 8})[1] end,
    ["one after the other"] = function()
      return data.ConcatDataset {sets.Squares(5), sets.Squares(7)}
    end,
    ["side by side"] = function() return data.StackDataset(x, sets.Squares(20)) end,
    ["side by side, by name"] = function() return data.StackDataset {a = x, b = y} end,
  }
  local ways = {
    {batch_size = 3}, {batch_size = 3, shuffle = true}, {batch_size = 6, drop_last = true},
    {collate_fn = function(list) return data.default_collate(list) end, batch_size = 4},
    {batch_sampler = data.BatchSampler(data.SequentialSampler(5), 2)},
    {sampler = data.WeightedRandomSampler({1, 2, 3}, 9), batch_size = 2},
  }
  for name, make in pairs(made) do
    it("for " .. name, function()
      moth.manual_seed(1)
      local set = make()
      for _, options in ipairs(ways) do
        local wanted
        for _, n in ipairs {0, 1, 3} do
          options.num_workers = n
          moth.manual_seed(7)
          local loader = data.DataLoader(set, options)
          local got = {batches(loader), batches(loader)}
          wanted = wanted or got
          assert.same(wanted, got)
        end
      end
    end)
  end

  it("for the rows of a table of text", function()
    local path = os.tmpname()
    local file = io.open(path, "w")
    file:write("name,size,n\na,1.5,3\nb,2,4\nc,,5\n")
    file:close()
    local set = data.csv(path)
    local wanted = batches(data.DataLoader(set, {batch_size = 2}))
    os.remove(path)
    local again = batches(data.DataLoader(set, {batch_size = 2, num_workers = 2}))
    assert.equal("nan", tostring(again[2][1].size[2][1]))
    wanted[2][1].size, again[2][1].size = nil, nil
    assert.same(wanted, again)
  end)

  it("for tables with numbers and fields", function()
    local options = {batch_size = 3, collate_fn = function(list) return list end}
    local wanted = batches(data.DataLoader(sets.Named(12), options))
    options.num_workers = 1
    assert.same(wanted, batches(data.DataLoader(sets.Named(12), options)))
  end)

  it("in the default dtype of the state that made it", function()
    moth.set_default_dtype(moth.float64)
    local x1 = data.DataLoader(sets.Squares(2), {num_workers = 1}):iter()()
    moth.set_default_dtype(moth.float32)
    assert.equal(moth.float64, x1.dtype)
  end)

  it("when two passes run at once", function()
    local loader = data.DataLoader(sets.Squares(9), {num_workers = 2})
    local one, other = loader:iter(), loader:iter()
    for i = 1, 9 do
      assert.equal(i, (one())[1][1]:item())
      assert.equal(i, (other())[1][1]:item())
    end
    assert.is_nil(one())
    assert.is_nil(one())
  end)

  it("in several passes with workers that stay alive", function()
    local loader = data.DataLoader(sets.Squares(9), {num_workers = 2, persistent_workers = true})
    local wanted = batches(data.DataLoader(sets.Squares(9)))
    local n = settled()
    for _ = 1, 3 do assert.same(wanted, batches(loader)) end
    batches(loader, 2) -- a pass that is left in the middle
    local old = loader:iter()
    assert.same(wanted, batches(loader))
    assert.is_true(threads() <= n + 2)
    assert.has_error_like(function() old() end, "this pass of the DataLoader has ended")
  end)
end)

describe("a worker", function()
  it("knows its number, has one thread and its own dataset", function()
    assert.is_nil(data.get_worker_info())
    local ids, loader = {}, data.DataLoader(sets.Told(40), {num_workers = 2,
      worker_init_fn = data.source("spec.support.sets:mark", 10)})
    for x in loader do
      local _, id, n, len, lanes, mark = unpack(x[1]:tolist())
      assert.same({2, 40, 1, 10 * id}, {n, len, lanes, mark})
      ids[id] = true
    end
    for id in pairs(ids) do assert.is_true(id == 1 or id == 2) end
  end)

  it("can collate the samples itself", function()
    local loader = data.DataLoader(sets.Squares(4), {batch_size = 2, num_workers = 1,
      collate_fn = data.source("spec.support.sets:total", 10)})
    assert.same({80, 320}, {batches(loader)[1][1][2], batches(loader)[2][1][2]})
    loader = data.DataLoader(sets.Squares(4), {batch_size = 2,
      collate_fn = data.source("spec.support.sets:total", 10)})
    assert.equal(80, batches(loader)[1][1][2])
  end)
end)

describe("a stream", function()
  local function positions(loader)
    local list = {}
    for _, batch in ipairs(batches(loader)) do list[#list + 1] = batch[1][2] end
    return list
  end

  it("is read in advance by one worker, in its own order", function()
    for _, options in ipairs {{batch_size = 3}, {batch_size = 4, drop_last = true}, {},
                              {batch_size = 5, collate_fn = function(list)
                                return moth.tensor(#list)
                              end}} do
      local wanted = batches(data.DataLoader(sets.Stream(10), options))
      options.num_workers = 1
      assert.same(wanted, batches(data.DataLoader(sets.Stream(10), options)))
      assert.same(wanted, batches(data.DataLoader(sets.Shared(10), options)))
    end
    local chain = data.ChainDataset {sets.Stream(3), sets.Stream(4)}
    assert.same({{1, 2}, {3, 1}, {2, 3}, {4}},
      positions(data.DataLoader(chain, {batch_size = 2, num_workers = 1})))
    assert.same({}, positions(data.DataLoader(sets.Stream(0), {num_workers = 1})))
  end)

  it("that reads its worker's number is read in turn by all, until each has ended", function()
    local wanted = {{1, 3}, {2, 4}, {5, 7}, {6, 8}, {9}, {10}}
    local loader = data.DataLoader(sets.Shared(10), {batch_size = 2, num_workers = 2,
                                                     persistent_workers = true})
    assert.same(wanted, positions(loader))
    assert.same(wanted, positions(loader))
    local step = loader:iter()
    for _ = 1, 3 do step() end
    local state = loader:state_dict()
    loader:load_state_dict(state)
    assert.same({wanted[4], wanted[5], wanted[6]}, positions(loader))
    assert.same({{1}, {2}}, positions(data.DataLoader(sets.Shared(2), {num_workers = 3})))
  end)

  it("that does not is refused with several workers: each would return all samples", function()
    assert.has_error_like(function()
      positions(data.DataLoader(sets.Stream(9), {num_workers = 2}))
    end, "Stream does not call data.get_worker_info.*each of 2 workers would return all")
  end)

  it("raises its errors in the main state", function()
    assert.has_error_like(function()
      positions(data.DataLoader(sets.Shared(20), {num_workers = 2}))
    end, "in worker 1: .*sets%.lua:%d+: 13 is broken")
  end)
end)

describe("an error in a worker", function()
  local function step_of(...)
    return data.DataLoader(sets.Wrong(10, ...), {num_workers = 2}):iter()
  end
  local function raised(step)
    local fine, message = pcall(step)
    assert.is_false(fine)
    return message
  end

  it("is raised at its place in the order, with its line, and the pass continues", function()
    local step = step_of()
    assert.equal(1, step()[1]:item())
    assert.equal(2, step()[1]:item())
    assert.matches("^spec/core/workers_spec.*: in worker %d: .*sets%.lua:%d+: sample 3 is broken$",
      raised(step))
    assert.equal(4, step()[1]:item())
    assert.matches("in worker %d: .*'view' .*%(get of the dataset: .*sets%.lua:%d+%)", raised(step))
    assert.equal("E_SHAPE", moth.errcode())
    assert.equal(6, step()[1]:item())
    assert.matches("a function cannot be sent to or from a worker", raised(step))
    assert.equal(8, step()[1]:item())
    assert.matches("sample 9 of the dataset is nil", raised(step))
    assert.equal(10, step()[1]:item())
    assert.is_nil(step())
  end)

  it("that is a table is shown as text", function()
    local step = data.DataLoader(sets.Thrown(4), {num_workers = 1}):iter()
    assert.matches("in worker 1: no sample 1 %(get of the dataset: .*sets%.lua", raised(step))
    assert.matches("in worker 1: thing 2 %(", raised(step))
    assert.matches("in worker 1: the error is {3} %(", raised(step))
    assert.matches("in worker 1: the error is nil %(", raised(step))
  end)

  it("from the constructor of the dataset is raised by the first batch", function()
    local set = nn.class("Gone", data.Dataset)
    function set:len() return 3 end
    function set:worker() return data.source("spec.support.sets:dies") end
    assert.has_error_like(function() batches(data.DataLoader(set(), {num_workers = 2})) end,
      "a worker of the DataLoader has failed: .*sets%.lua:%d+: no dataset today")
    function set:worker() return data.source("spec.support.sets:dies", {message = "gone"}) end
    assert.has_error_like(function() batches(data.DataLoader(set(), {num_workers = 2})) end,
      "a worker of the DataLoader has failed: gone$")
    function set:worker() return data.source("no.such.module") end
    assert.has_error_like(function() batches(data.DataLoader(set(), {num_workers = 2})) end,
      "there is no module 'no.such.module'")
  end)

  it("is raised for os.exit", function()
    assert.has_error_like(function() batches(data.DataLoader(sets.Exits(3), {num_workers = 1})) end,
      "os.exit was called in a worker")
  end)

  it("of too little memory in the main state loses no batch", function()
    local x = moth.arange(8):view(8, 1):expand(8, 2 ^ 16):float()
    for _, set in ipairs {data.TensorDataset(x, x + 1), sets.Stream(8, 2 ^ 16)} do
      local loader = data.DataLoader(set, {num_workers = 1, timeout = 20})
      local wanted = batches(data.DataLoader(set))
      local step = loader:iter()
      assert.same(wanted[1], plain {step()})
      moth.collect()
      moth.set_memory_limit(moth.memory().live_bytes + 3 * 2 ^ 17) -- for one of two tensors
      for _ = 1, 2 do
        assert.has_error_like(step, "memory")
        assert.equal("E_LIMIT", moth.errcode())
      end
      moth.set_memory_limit(0)
      for i = 2, 8 do assert.same(wanted[i], plain {step()}) end
      assert.is_nil(step())
    end
  end)

  it("is raised after waiting longer than timeout", function()
    local loader = data.DataLoader(sets.Slow(3, 5), {num_workers = 1, timeout = 0.2})
    assert.has_error_like(function() batches(loader) end,
      "no worker returned batch 1 within 0.2 seconds")
  end)
end)

describe("a DataLoader with workers", function()
  local function refuses(set, options, text, code)
    options.num_workers = options.num_workers or 1
    assert.has_error_like(function() data.DataLoader(set, options) end, text)
    assert.equal(code, moth.errcode())
  end

  it("says what a dataset needs, so that a worker can make it again", function()
    local own = nn.class("Own", data.Dataset)
    function own:len() return 3 end
    refuses(own(), {}, "must create the Own: put its class into a module", "E_UNSUPPORTED")
    refuses(data.Subset(own(), {1}), {}, "must create the Subset", "E_UNSUPPORTED")
    local rows = nn.class("Rows", data.TensorDataset)
    refuses(rows(moth.ones(3)), {}, "must create the Rows", "E_UNSUPPORTED")
    function own:worker() return 3 end
    refuses(own(), {}, "Own:worker%(%) returned 3; data.source", "E_TYPE")
    function own:worker() return data.source("x", print) end
    refuses(own(), {}, "a function cannot be sent to", "E_TYPE")
    local loop = {}
    loop[1] = loop
    function own:worker() return data.source("x", loop) end
    refuses(own(), {}, "a table that contains itself", "E_TYPE")
    refuses(data.IterableDataset(ipairs), {}, "must create the IterableDataset", "E_UNSUPPORTED")
    refuses(data.ChainDataset {data.IterableDataset(ipairs)}, {}, "must create the ChainDataset",
      "E_UNSUPPORTED")
  end)

  it("raises for tensors that require a gradient, which a worker would lose", function()
    local x = moth.ones(3, 2, {requires_grad = true})
    refuses(x, {}, "f32 %(3, 2%) requires a gradient.*x:detach", "E_GRAPH")
    refuses(data.TensorDataset(moth.ones(3), x), {}, "requires a gradient", "E_GRAPH")
    assert.equal(3, #batches(data.DataLoader(x:detach(), {num_workers = 1})))
    local kept = data.source("moth.data.dataset:TensorDataset", x)
    assert.equal(3, #batches(data.DataLoader(kept)))
    refuses(kept, {}, "requires a gradient", "E_GRAPH")
    assert.has_error_like(data.DataLoader(sets.Learned(3), {num_workers = 1}):iter(),
      "in worker 1: .*requires a gradient")
  end)

  it("raises at once for a source with an argument that no worker can receive", function()
    local function made(text, ...)
      local fine, message = pcall(data.source, "slow:Set", ...)
      assert.is_false(fine)
      assert.matches("^[^\n]*bad argument '%.%.%.' to 'source' %(" .. text, message)
      assert.equal("E_TYPE", moth.errcode())
    end
    made("argument 1: a function cannot be sent to or from a worker; numbers, strings", print)
    made("argument 2: a function cannot", 1, {2, {x = print}})
    made("argument 2: a thread cannot", nil, {[coroutine.create(print)] = 1})
    made("argument 1: a Linear cannot", nn.Linear(1, 1))
    local loop = {}
    loop[1] = loop
    made("argument 3: a table that contains itself", 1, 2, loop)
    local twice = {1}
    data.source("slow:Set", nil, true, 2LL, "x", moth.float32, moth.ones(2), moth.ones(2).shape,
      {twice, {twice}}, data.source("x", 1))
  end)

  it("names the wrong argument", function()
    local x = moth.ones(3)
    refuses(x, {num_workers = -1}, "a number from 0 to 256", "E_DOMAIN")
    refuses(x, {num_workers = 1e6}, "a number from 0 to 256", "E_DOMAIN")
    refuses(x, {prefetch_factor = 0}, "'prefetch_factor'.*a number from 1 on", "E_DOMAIN")
    refuses(x, {timeout = -1}, "'timeout'.*seconds from 0 on", "E_DOMAIN")
    refuses(x, {worker_init_fn = print}, "pass its name: data.source", "E_TYPE")
    refuses(x, {num_workers = 0, prefetch_factor = 2}, "needs workers", "E_ARG")
    refuses(x, {num_workers = 0, persistent_workers = true}, "needs workers", "E_ARG")
    refuses(x, {num_workers = 0, timeout = 3}, "needs workers", "E_ARG")
  end)

  it("requests a bounded number of batches in advance", function()
    local count = moth.zeros(1)
    local step = data.DataLoader(sets.Counted(100, count), {num_workers = 2, prefetch_factor = 3})
      :iter()
    for given = 1, 3 do
      step()
      for _ = 1, 50 do moth.ones(100, 100):matmul(moth.ones(100, 100)) end
      local asked = count:item()
      assert.is_true(asked <= given + 6, asked .. " samples for batch " .. given)
    end
  end)

  it("leaks no memory, for any end of a pass", function()
    local set = data.TensorDataset(moth.randn(64, 300), moth.arange(64))
    local function passes()
      for _, most in ipairs {false, 1, 5} do
        batches(data.DataLoader(set, {batch_size = 4, num_workers = 2}), most)
        batches(data.DataLoader(sets.Wrong(9), {num_workers = 2}), 2)
        moth.scope(function() batches(data.DataLoader(set, {num_workers = 1}), 2) end)
      end
      settled()
    end
    passes()
    local before = moth.memory()
    for _ = 1, 3 do passes() end
    local now = moth.memory()
    assert.equal(before.shared_bytes, now.shared_bytes)
    assert.equal(before.live_bytes, now.live_bytes)
    assert.equal(before.live_storages, now.live_storages)
    assert.equal(before.live_handles, now.live_handles)
  end)

  it("keeps few batches in a loop that stores none, as without workers", function()
    moth.collect()
    local size = 2 ^ 20
    local set = data.TensorDataset(moth.zeros(200, size / 4))
    local base, most, cached = moth.memory().live_bytes, 0, nil
    for x in data.DataLoader(set, {batch_size = 1, num_workers = 2}) do
      assert.equal(size / 4, x:numel())
      local now = moth.memory()
      most, cached = math.max(most, now.live_bytes - base), cached or now.cached_bytes
    end
    assert.is_true(most < 64 * size, most / size .. " batches were alive")
    assert.is_true(moth.memory().cached_bytes < cached + 16 * size)
  end)

  it("has no thread after the end of a pass or a break", function()
    local n = settled()
    batches(data.DataLoader(sets.Squares(9), {num_workers = 3}))
    assert.is_true(settled() <= n)
    batches(data.DataLoader(sets.Squares(9), {num_workers = 3}), 1)
    data.DataLoader(sets.Squares(9), {num_workers = 3})(nil, nil)
    do
      local loader = data.DataLoader(sets.Squares(9), {num_workers = 2, persistent_workers = true})
      batches(loader)
    end
    assert.is_true(settled() <= n)
  end)

  it("has few threads after many breaks", function()
    local n = settled()
    for _ = 1, 30 do
      data.DataLoader(sets.Squares(9), {num_workers = 2})(nil, nil)
    end
    local now
    for _ = 1, 100 do
      now = threads()
      if now <= n + 12 then break end
      os.execute "sleep 0.05"
    end
    assert.is_true(now <= n + 12, now - n .. " threads")
  end)

  it("frees the threads of passes that were left if the system has no more threads", function()
    if process.sanitized then
      pending "limits the address space"
      return
    end
    local text = process.lua(([[
      package.path = %q .. "?.lua;" .. package.path
      local ffi, moth = require "ffi", require "moth"
      ffi.cdef "int setrlimit(int resource, const uint64_t *limit);"
      moth.set_num_threads(1)
      local set = require("spec.support.sets").Squares(9)
      local loader = moth.data.DataLoader(set, {num_workers = 4})
      local limit = io.open("/proc/self/statm"):read "*n" * 4096 + 6 * 2 ^ 30
      ffi.C.setrlimit(9, ffi.new("uint64_t[2]", limit, limit)) -- RLIMIT_AS: six stacks
      for _ = 1, 3 do
        for _ in loader do break end
      end
      local fine, message = pcall(function() -- referenced: no collection frees them
        return {loader:iter(), loader:iter()}
      end)
      print(fine, moth.errcode(), message)
    ]]):format(require("moth.error").root), {stack = 2 ^ 20})
    assert.matches("^false%s+E_MEM.*the system would not start 4 more threads\nrc=0", text)
  end)

  it("ends a pass that was left, also if a batch begins with a string", function()
    local n, i = settled(), 0
    local loader = data.DataLoader(sets.Squares(9), {num_workers = 1, collate_fn = function()
      i = i + 1
      return "batch " .. i
    end})
    for _ = 1, 3 do loader(nil, nil) end
    assert.is_true(settled() <= n + 2)
    assert.equal(9, #batches(loader))
  end)

  it("uses no CPU time while it waits for a request", function()
    local step = data.DataLoader(sets.Squares(9), {num_workers = 3}):iter()
    step()
    local sleep, before = "sleep 0.3", os.clock()
    os.execute(sleep)
    assert.is_true(os.clock() - before < 0.1)
    step()
  end)

  it("stops waiting after an interrupt, and loses no batch", function()
    local lib = require "moth.binding.lib"
    local step = data.DataLoader(sets.Squares(9), {num_workers = 2}):iter()
    assert.equal(1, step()[1][1]:item())
    for _ = 1, 3 do
      lib.C.moth_interrupt() -- the interrupt also reaches the workers
      assert.has_error_like(step, "interrupted")
      assert.equal("E_INTERRUPT", moth.errcode())
    end
    for i = 2, 9 do assert.equal(i, step()[1][1]:item()) end
  end)
end)

describe("a host", function()
  it("may close a state in the middle of a pass: its workers end with it", function()
    local text = process.host("workers", "20")
    assert.matches("^0 failures\nrc=0", text)
  end)

  it("with hidden symbols of Lua has no workers, and the error says so", function()
    local archive = process.shell("pkg-config --variable=libdir luajit"):match("^[^\n]+")
      .. "/libluajit-5.1.a"
    if process.sanitized or not io.open(archive) then
      pending "needs LuaJIT as an archive"
      return
    end
    local text = process.host("workers", "1", archive .. " -lm -ldl")
    assert.matches("^E_UNSUPPORTED.*'num_workers'.*this host does not export its Lua", text)
    assert.matches("0 failures\nrc=0", text)
  end)

  it("whose Lua cannot open its libraries in a worker survives, with an error", function()
    local text = process.lua([[
      package.path = "]] .. require("moth.error").root .. [[?.lua;" .. package.path
      local ffi = require "ffi"
      ffi.cdef 'void luaL_openlibs(void *L) __asm__("lua_error");'
      assert(ffi.C.luaL_openlibs) -- bound to lua_error from now on
      local sets = require "spec.support.sets"
      print(pcall(require("moth").data.DataLoader(sets.Squares(2), {num_workers = 1}):iter()))
    ]])
    assert.matches("a worker of the DataLoader has failed: an error without a message\nrc=0", text)
  end)
end)

describe("a forked process", function()
  it("has none of its parent's workers, says so, and may start its own", function()
    local loader = data.DataLoader(sets.Squares(9), {num_workers = 2})
    local lasting = data.DataLoader(sets.Squares(9), {num_workers = 2, persistent_workers = true})
    batches(lasting)
    local step = loader:iter()
    step()
    assert.is_true(child.run(function()
      local fine, message = pcall(step)
      assert(not fine and message:find "forked")
      step = nil -- luacheck: ignore
      moth.collect()
      assert(#batches(loader) == 9 and #batches(lasting) == 9)
    end))
    assert.equal(2, step()[1][1]:item())
    assert.equal(9, #batches(lasting))
  end)

  it("that a worker has forked ends by itself", function()
    local ended = batches(data.DataLoader(sets.Forked(3), {num_workers = 1}), 1)[1][1]
    assert.same({"moth.float32", {0}}, ended)
  end)
end)

describe("a process that exits with workers", function()
  local head = ([[
    package.path = %q .. "?.lua;" .. package.path
    local moth = require "moth"
    local sets = require "spec.support.sets"
    local function loader(name, ...)
      return moth.data.DataLoader(sets[name](100, ...), {num_workers = 2})
    end
  ]]):format(require("moth.error").root)

  -- Long before the minute for which a worker is busy, also on a loaded machine.
  local function ends(code, wanted)
    local before = os.time()
    local text = process.lua(head .. code)
    assert.matches(wanted, text)
    assert.is_true(os.time() - before <= 30)
  end

  it("ends at once: by its last line, by os.exit, by an error", function()
    ends("step = loader('Squares'):iter() step() print 'here'", "here\nrc=0")
    ends("step = loader('Squares'):iter() step() os.exit(5)", "rc=5")
    ends("step = loader('Squares'):iter() step() os.exit(6, true)", "rc=6")
    ends("for x in loader('Squares') do error 'enough' end", "enough.*rc=1")
    ends("step = loader('Slow', 60):iter() print 'here'", "here\nrc=0")
    ends("step = loader('Slow', 60):iter() os.exit(7)", "rc=7")
  end)

  it("ends soon, also if a worker does not react", function()
    ends("step = loader('Busy', 60):iter() print 'here'", "here\nrc=0")
    ends("step = loader('Busy', 60):iter() os.exit(7)", "rc=7")
  end)

  it("ends on Ctrl-C while it waits for a batch", function()
    local path = os.tmpname()
    local file = io.open(path, "w")
    file:write(head, "print 'waiting' io.stdout:flush() for x in loader('Slow', 60) do end")
    file:close()
    local launcher = debug.getregistry()["moth.launcher"]
    if not launcher then
      pending "needs the launcher"
      return
    end
    local text = process.shell(("'%s' '%s' & job=$!; sleep 1; kill -INT $job; wait $job"):format(
      launcher.program, path))
    os.remove(path)
    assert.matches("waiting\n.*interrupted", text)
    assert.matches("rc=130", text)
  end)
end)
