--- nginx_spec.lua -- examples/hosts/nginx: a model behind nginx with two workers.
-- MOTH_HOST_REQUESTS sets the requests of the load (3,000 by default).

local ffi = require "ffi"
local host = require "spec.support.nginx_host"
local http = require "spec.support.http"
local moth = require "moth"
local nn = moth.nn

describe("a model in nginx", function()
  if host.why then
    pending("answers requests: " .. host.why)
    return
  end

  local RAW = "application/octet-stream"
  local COUNTED = [[
    local model = require "model"
    local predict, forwards = model.predict, 0
    model.predict = function(bytes) forwards = forwards + 1 return predict(bytes) end
    function forwards_of() return forwards end
  ]]
  local server

  local function bytes_of(x)
    return ffi.string(ffi.cast("char *", x:contiguous():data_ptr()), x.nbytes)
  end

  local function rows_of(bytes, width)
    return moth.frombuffer(bytes, {dtype = moth.float32}):view(-1, width)
  end

  local function network()
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
      nn.Linear(256, 10))
  end

  local function probabilities(net, x)
    return moth.no_grad(function() return net(x):softmax(2) end)
  end

  local function ask(path, body, kind) return http.ask(server.port, path, body, kind) end

  local function predict(x) return rows_of(ask("/predict", bytes_of(x), RAW).body, 10) end

  local function json(x, more) -- the text of a request
    local rows = {}
    for i, row in ipairs(x:tolist()) do rows[i] = "[" .. table.concat(row, ",") .. "]" end
    return ('{"input":[%s]%s}'):format(table.concat(rows, ","), more or "")
  end

  local function numbers(text) -- the matrix in a JSON reply
    local list = {}
    for number in text:match('"output":(.*)}'):gmatch "[-+.%deE]+" do
      list[#list + 1] = tonumber(number)
    end
    return moth.tensor(list, {dtype = moth.float32}):view(-1, 10)
  end

  local function save(net) moth.save(net:state_dict(), server:path "weights.safetensors") end

  -- Waits until f() is true.
  local function wait(what, f)
    for _ = 1, 200 do
      if f() then return end
      os.execute "sleep 0.05"
    end
    error("not within 10 seconds: " .. what .. "\n" .. server:read "error.log")
  end

  -- Sends a request until each worker has answered. @return {[pid] = reply}, the number of workers
  local function each_worker(path, body, kind)
    local replies, n = {}, 0
    for _ = 1, 200 do
      local reply = ask(path, body, kind)
      local pid = reply.head:match "moth%-worker: (%d+)"
      if not replies[pid] then replies[pid], n = reply, n + 1 end
      if n == 2 then break end
    end
    return replies, n
  end

  -- Waits until the workers from before a HUP or a crash are gone. @return the two processes
  local function two_workers(old)
    local now
    wait("two workers", function()
      now = server:workers()
      for _, pid in ipairs(now) do
        if old and old[pid] then return false end
      end
      return #now == 2
    end)
    return now
  end

  local function reload()
    local old = {}
    for _, pid in ipairs(two_workers()) do old[pid] = true end
    server:hup()
    two_workers(old)
  end

  setup(function()
    server = host.start({
      {"app = require", COUNTED .. "app = require"},
      {"location = /predict", "location = /forwards { content_by_lua_block "
        .. "{ ngx.print(forwards_of()) } }\n location = /waiting { content_by_lua_block "
        .. "{ ngx.print(ngx.shared.moth:llen 'examples') } }\n location = /predict"},
    })
  end)

  teardown(function()
    if server then server:stop() end
  end)

  it("is loaded in the master, before the fork and without a thread", function()
    assert.equal(1, host.status(server:pid(), "Threads"))
    local workers = server:workers()
    assert.equal(2, #workers)
    for _, pid in ipairs(workers) do assert.equal(1, host.status(pid, "Threads")) end
  end)

  it("predicts the same from raw tensors and from JSON, in both workers", function()
    local net, x = network(), moth.randn(3, 64)
    net:load_state_dict(moth.load(server:path "weights.safetensors"))
    local right = probabilities(net, x)
    for path, f in pairs {[RAW] = {bytes_of(x), function(t) return rows_of(t, 10) end},
      ["application/json"] = {json(x), numbers}} do
      local replies, n = each_worker("/predict", f[1], path)
      assert.equal(2, n)
      for _, reply in pairs(replies) do
        assert.equal(200, reply.status)
        assert.is_truthy(reply.head:find("content-type: " .. path, 1, true))
        local y = f[2](reply.body)
        assert.same({3, 10}, {y:size(1), y:size(2)})
        assert.is_true(moth.allclose(y, right, {rtol = 1e-5, atol = 1e-7}))
      end
    end
  end)

  it("answers mistakes with a status and a message", function()
    local row = json(moth.zeros(1, 64))
    for _, case in ipairs {
      {400, "/predict", ""}, {400, "/predict", "{"}, {400, "/predict", "3"},
      {400, "/predict", '{"input":[1,2,3]}'}, {400, "/predict", '{"input":["a"]}'},
      {400, "/predict", '{"input":[[1],[2,3]]}'}, {400, "/predict", '{"input":null}'},
      {400, "/predict", (row:gsub("%[0,", "[1e39,"))},
      {400, "/predict", ("\0"):rep(255), RAW}, {400, "/predict", "", RAW},
      {400, "/learn", row}, {400, "/learn", (row:gsub("}", ',"target":[11]}'))},
      {400, "/learn", (row:gsub("}", ',"target":[0]}'))},
      {400, "/learn", (row:gsub("}", ',"target":[1,2]}'))},
      {400, "/learn", (row:gsub("%[0,", "[1e39,"):gsub("}", ',"target":[1]}'))},
      {413, "/predict", ("\0"):rep(256 * 1025), RAW},
      {413, "/predict", ("\0"):rep(2 ^ 20 + 256), RAW},
      {503, "/learn", ("\0\0\128\63"):rep(65 * 1001), RAW},
      {404, "/other", ""},
    } do
      local reply = ask(case[2], case[3], case[4])
      local text = ("%s %.60s: %s"):format(case[2], case[3], reply.body)
      assert.equal(case[1], reply.status, text)
      if case[1] == 400 then
        assert.is_truthy(reply.body:match '^{"error":".+"}$', text)
        assert.is_falsy(reply.body:find(".lua:", 1, true), text)
      end
    end
    local reply = ask("/predict", row)
    assert.equal(200, reply.status)
    assert.is_true(moth.allclose(numbers(reply.body):sum(), moth.tensor(1)))
  end)

  it("answers a NaN as it came from the forward, in JSON as null", function()
    local net = network()
    moth.no_grad(function() net[5].bias[1] = 0 / 0 end)
    save(net)
    reload()
    local reply = ask("/predict", json(moth.zeros(1, 64)))
    assert.equal(200, reply.status)
    assert.equal('{"output":[[' .. ("null,"):rep(9) .. "null]]}", reply.body)
    assert.is_true(predict(moth.zeros(1, 64)):isnan():all():item())
    save(network())
    reload()
  end)

  it("runs one forward for requests that come at the same time", function()
    local function forwards()
      local sum, replies = 0, each_worker "/forwards"
      for _, reply in pairs(replies) do sum = sum + tonumber(reply.body:match "\r\n(%d+)\r\n") end
      return sum
    end
    local x, alone, before = moth.randn(64, 64), {}, forwards()
    for i = 1, 16 do alone[i] = predict(x:narrow(1, i, 1)) end
    assert.equal(before + 16, forwards())
    local load = http.load {port = server.port, connections = 16, requests = 320,
      request = function(i)
        return http.request("/predict", bytes_of(x:narrow(1, i % 16 + 1, 1)), RAW)
      end,
      check = function(reply, i)
        local y = reply.status == 200 and rows_of(reply.body, 10)
        return not (y and moth.allclose(y, alone[i % 16 + 1], {rtol = 1e-4, atol = 1e-6}))
          and "status " .. reply.status .. ", another value" or nil
      end}
    assert.same({}, load.failures)
    local n = forwards() - before - 16
    assert.is_true(n >= 10 and n <= 160, "forwards for 320 requests: " .. n)
  end)

  it("learns in one worker, and both predict with the new weights", function()
    local classes = moth.arange(1, 11)
    local x = moth.randn(10, 64)
    local body = bytes_of(moth.cat({x, classes:view(10, 1):to(moth.float32)}, 2))
    local function learn()
      local reply = ask("/learn", body, RAW)
      assert.equal(202, reply.status)
      return tonumber(reply.body:match '"loss":([%d.e-]+)')
    end
    assert.is_true(learn() > 0.5)
    wait("a small loss", function()
      for _ = 1, 20 do learn() end
      return learn() < 0.1
    end)
    wait("all examples are learned", function()
      return ask("/waiting").body:find "\r\n0\r\n"
    end)
    os.execute "sleep 0.1" -- the last step
    wait("equal weights in both workers", function()
      local replies, n = each_worker("/predict", bytes_of(x), RAW)
      assert.equal(2, n)
      local list = {}
      for _, reply in pairs(replies) do list[#list + 1] = reply.body end
      return list[1] == list[2]
        and moth.equal(rows_of(list[1], 10):argmax(2), classes:to(moth.int64))
    end)
  end)

  it("gives learned weights to a worker that replaces a crashed one", function()
    local x = moth.randn(2, 64)
    local before = predict(x)
    local old = {}
    for _, pid in ipairs(server:workers()) do
      os.execute("kill -KILL " .. pid)
      old[pid] = true
    end
    two_workers(old)
    local replies, n = each_worker("/predict", bytes_of(x), RAW)
    assert.equal(2, n)
    for _, reply in pairs(replies) do
      assert.is_true(moth.equal(rows_of(reply.body, 10), before))
    end
  end)

  it("serves the old weights after a HUP with a broken file", function()
    local x = moth.randn(2, 64)
    local before = predict(x)
    local file = assert(io.open(server:path "weights.safetensors", "w"))
    file:write("\255no weights")
    file:close()
    server:hup()
    wait("an error", function()
      return server:read "error.log":find("init_by_lua error", 1, true)
    end)
    assert.is_true(moth.equal(predict(x), before))
    assert.equal(2, #server:workers())
  end)

  it("loads new weights on a HUP; no request fails meanwhile", function()
    local n = tonumber(os.getenv "MOTH_HOST_REQUESTS") or 3000
    local x, answers = moth.randn(1, 64), {}
    local body, current, hups = bytes_of(x), 3, 0
    local function replace(class) -- with a network that predicts this class only
      local net = network()
      moth.no_grad(function() net[5].bias[class] = 1000 end)
      save(net)
      current = class
    end
    replace(3)
    reload()
    local load
    local function each(done) -- a HUP after each quarter, when the last one has new answers
      if done >= n / 4 * (hups + 1) and hups < 3 and answers[current] then
        hups = hups + 1
        replace(3 + hups)
        server:hup()
      elseif done >= load.requests - 32 and not answers[6] then
        load.requests = load.requests + 100
      end
    end
    load = {port = server.port, connections = 32, requests = n, each = each,
      request = function(i)
        if i % 50 > 0 then return http.request("/predict", body, RAW) end
        local example = moth.cat({x, moth.full({1, 1}, current)}, 2)
        return http.request("/learn", bytes_of(example), RAW)
      end,
      check = function(reply, i)
        if reply.status ~= (i % 50 > 0 and 200 or 202) then return "status " .. reply.status end
        if i % 50 == 0 then return nil end
        local class = rows_of(reply.body, 10):argmax(2):item()
        answers[class] = (answers[class] or 0) + 1
        return (class < 3 or class > 3 + hups) and "class " .. class or nil
      end}
    http.load(load)
    assert.same({}, load.failures)
    assert.equal(3, hups)
    wait("the newest weights in both workers", function()
      local replies, count = each_worker("/predict", body, RAW)
      for _, reply in pairs(replies) do
        if rows_of(reply.body, 10):argmax(2):item() ~= 6 then return false end
      end
      return count == 2
    end)
    if os.getenv "MOTH_HOST_REQUESTS" then
      table.sort(load.times)
      print(("%d requests, %.0f/s, p50 %.2f ms, p99 %.2f ms, %d sent again")
        :format(load.done, load.done / load.seconds, 1e3 * load.times[math.ceil(n / 2)],
          1e3 * load.times[math.ceil(0.99 * n)], load.reconnected))
    end
  end)

  it("keeps its memory: workers have the same size after more requests", function()
    local n = tonumber(os.getenv "MOTH_HOST_REQUESTS") or 3000
    local body = bytes_of(moth.randn(1, 64))
    local example = bytes_of(moth.ones(1, 65))
    two_workers()
    local function resident(requests)
      local load = http.load {port = server.port, connections = 32, requests = requests,
        request = function(i)
          if i % 50 > 0 then return http.request("/predict", body, RAW) end
          return http.request("/learn", example, RAW)
        end,
        check = function(reply)
          return reply.status >= 300 and "status " .. reply.status or nil
        end}
      assert.same({}, load.failures)
      local list = {}
      for i, pid in ipairs(two_workers()) do list[i] = host.status(pid, "VmRSS") / 1024 end
      return list
    end
    local early = resident(math.max(3000, math.min(n / 10, 50000))) -- compiled code, caches
    local late = resident(n)
    for i = 1, 2 do
      local text = ("worker %d: %.1f MiB, later %.1f MiB"):format(i, early[i], late[i])
      if os.getenv "MOTH_HOST_REQUESTS" then print(text) end
      assert.is_true(late[i] < early[i] * 1.1 + 2, text)
    end
  end)

  it("answers 503 where the memory limit is reached, and goes on", function()
    server:configure {{"256 * 2 ^ 20", "2 * 2 ^ 20"}, }
    reload()
    local large = ask("/predict", ("\0"):rep(256 * 1024), RAW)
    assert.equal(503, large.status)
    assert.is_truthy(large.body:find("memory limit", 1, true))
    assert.equal(200, ask("/predict", ("\0"):rep(256), RAW).status)
  end)
end)
