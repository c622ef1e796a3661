--- nginx.lua -- loads examples/hosts/nginx, and the same network behind aiohttp and PyTorch.
--
--     ./moth spec/bench/hosts/nginx.lua [REQUESTS = 6000] [PYTHON]
--
-- REQUESTS a row, over 32 connections on this machine; the client is one process and shares the
-- processors with the server. PYTHON has torch, aiohttp and perhaps uvloop; without it only Moth is
-- measured. All servers run; a row is measured in three rounds, in turn with the others. A batch
-- runs when it has so many rows, or after a time; 0 ms: after one pass of nginx's event loop.

local ffi = require "ffi"
local host = require "spec.support.nginx_host"
local http = require "spec.support.http"
local moth = require "moth"
local nn = moth.nn

local requests, python = tonumber(arg[1]) or 6000, arg[2]
local CONNECTIONS, ROUNDS = 32, 3
if host.why then error(host.why, 0) end

local function bytes_of(x) return ffi.string(ffi.cast("char *", x:data_ptr()), x.nbytes) end

local net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
  nn.Linear(256, 10))
local x = moth.randn(1, 64)
local right = moth.no_grad(function() return net(x):softmax(2) end)
local body = bytes_of(x)
local rows = {}

local function nginx(name, batch, wait)
  local server = host.start({{"batch = 8, wait = 0.002",
    ("batch = %d, wait = %g"):format(batch, wait)}}, 7200)
  moth.save(net:state_dict(), server:path "weights.safetensors")
  local old = server:workers()[1]
  server:hup()
  repeat
    os.execute "sleep 0.1"
    local workers = server:workers()
  until #workers == 2 and workers[1] ~= old
  rows[#rows + 1] = {name = "nginx, Moth, " .. name, port = server.port,
    pids = function() return server:workers() end, stop = function() server:stop() end}
end

local function aiohttp(name, batch, wait)
  local port, path, pids = http.free_port(), os.tmpname(), {}
  local file = assert(io.open(path, "wb"))
  file:write(bytes_of(nn.utils.parameters_to_vector(net:parameters()):detach()))
  file:close()
  for i = 1, 2 do
    local pipe = io.popen(("'%s' '%sspec/bench/hosts/server.py' %d %d %g '%s' > '%s.log' 2>&1 "
      .. "& echo $!"):format(python, require("moth.error").root, port, batch, wait, path, path))
    pids[i] = pipe:read "*n"
    pipe:close()
  end
  local ready = 0
  for _ = 1, 600 do -- until both have the port open
    local list = io.popen("ss -ltnH 'sport = :" .. port .. "' | wc -l")
    ready = list:read "*n" or 0
    list:close()
    if ready == 2 then break end
    os.execute "sleep 0.1"
  end
  if ready < 2 then error("aiohttp did not start: see " .. path .. ".log", 0) end
  rows[#rows + 1] = {name = "aiohttp, PyTorch, " .. name, port = port,
    pids = function() return pids end,
    stop = function()
      os.execute("kill " .. table.concat(pids, " "))
      os.remove(path)
      os.remove(path .. ".log")
    end}
end

local function measure(row, n)
  local text = http.request("/predict", body, "application/octet-stream")
  local load = http.load {port = row.port, connections = CONNECTIONS, requests = n,
    request = function() return text end,
    check = function(reply)
      if reply.status ~= 200 then return "status " .. reply.status end
      if row.last ~= reply.body then -- compare other bytes as numbers
        row.last = reply.body
        local y = moth.frombuffer(reply.body, {dtype = moth.float32}):view(1, 10)
        return not moth.allclose(y, right, {rtol = 1e-4, atol = 1e-6}) and "another value" or nil
      end
    end}
  row.failures = (row.failures or 0) + #load.failures
  row.first = row.first or load.failures[1]
  row.resident = {}
  for i, pid in ipairs(row.pids()) do
    row.resident[i] = ("%.1f"):format(host.status(pid, "VmRSS") / 1024)
  end
  return load
end

local function run()
  nginx("no batches", 1, 0)
  nginx("8 rows or 2 ms", 8, 0.002)
  nginx("32 rows or 0 ms", 32, 0)
  if python then
    aiohttp("no batches", 1, 0)
    aiohttp("8 rows or 2 ms", 8, 0.002)
  end
  for _, row in ipairs(rows) do
    measure(row, math.min(requests, 500)) -- compiled code, allocators
    row.rates, row.times = {}, {}
  end
  for round = 1, ROUNDS do
    for _, row in ipairs(rows) do
      local load = measure(row, math.ceil(requests / ROUNDS))
      row.rates[round] = #load.times / load.seconds
      for _, t in ipairs(load.times) do row.times[#row.times + 1] = t end
    end
  end
  print(("%-32s %10s %8s %8s %8s  %s"):format("", "requests/s", "p50 ms", "p99 ms", "errors",
    "workers, MiB"))
  for _, row in ipairs(rows) do
    table.sort(row.rates)
    table.sort(row.times)
    local n = #row.times
    print(("%-32s %10.0f %8.2f %8.2f %8d  %s"):format(row.name, row.rates[math.ceil(ROUNDS / 2)],
      1e3 * row.times[math.ceil(n / 2)], 1e3 * row.times[math.ceil(0.99 * n)], row.failures,
      table.concat(row.resident, " ")))
    if row.first then print("  " .. row.first) end
  end
end

local ok, problem = xpcall(run, debug.traceback)
for _, row in ipairs(rows) do row.stop() end
if not ok then error(problem, 0) end
