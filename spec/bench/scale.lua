--- scale.lua -- predicts the time of a data-parallel step on 8 to 1,024 ranks from the measured
-- computation, the sizes of the messages, and the latency and bandwidth of a network. It checks
-- the prediction by measurements of 1, 2 and 4 ranks on this machine.
--
--   ./moth spec/bench/scale.lua [STEPS] [MOST_RANKS]     (10 4)
--
-- MOTH_MPIRUN names the launcher; default: mpirun.
--
-- The model: an all_reduce of B bytes on n ranks takes the shorter time of
--   a ring   2 (n - 1) (latency + B / (n bandwidth))
--   a tree   2 log2(n) (latency + B / bandwidth)
-- A message starts when its gradients are ready and the message before it has ended. While it
-- moves, the backward pass runs at the rate 1 - cpu: `cpu` is the share of a processor that the
-- transfer needs. It is 1 for shared memory, which the processor copies, and about 0 for RDMA.

local folder = arg[0]:match "^(.*)/[^/]*$" or "."
package.path = folder .. "/?.lua;" .. package.path

local moth = require "moth"
local lib = require "moth.binding.lib"
local nets = require "nets"
local nn, F, dist = moth.nn, moth.nn.functional, moth.distributed

local RANKS = {}
for _, n in ipairs {1, 2, 4} do
  if n <= (tonumber(arg[2]) or 4) then RANKS[#RANKS + 1] = n end
end
local SIZES = {4, 2 ^ 12, 2 ^ 16, 2 ^ 20, 2 ^ 22, 25e6} -- bytes of measured messages
local NETWORKS = {
  {name = "10 Gbit/s Ethernet, TCP", latency = 30e-6, bandwidth = 1.1e9, cpu = 0.5},
  {name = "100 Gbit/s InfiniBand", latency = 2e-6, bandwidth = 11e9, cpu = 0},
}

local function seconds() return lib.C.moth_seconds() end

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

-- ---- the model ----

local function all_reduce_time(network, n, bytes)
  if n == 1 then return 0 end
  local ring = 2 * (n - 1) * (network.latency + bytes / (n * network.bandwidth))
  local tree = 2 * math.ceil(math.log(n) / math.log(2))
    * (network.latency + bytes / network.bandwidth)
  return math.min(ring, tree)
end

-- Simulates the backward pass and its messages. Returns the time of a step.
-- @param work  forward, backward and optimizer: seconds; units: lists of bytes and the time of the
-- backward pass at which the gradients are ready
local function step_time(work, network, n)
  local time, position, unit, remaining = work.forward, 0, 1, nil
  local units = work.units
  while position < work.backward or unit <= #units do
    if not remaining and units[unit] and units[unit].ready <= position then
      remaining = all_reduce_time(network, n, units[unit].bytes)
    end
    local next_ready = not remaining and units[unit] and units[unit].ready or work.backward
    local rate = remaining and position < work.backward and 1 - network.cpu or 1
    local left = math.max(next_ready, position) - position
    local until_ready = left == 0 and (remaining and math.huge or 0) or left / rate
    local passed = math.min(until_ready, remaining or math.huge)
    position = math.min(next_ready, position + passed * rate)
    if passed == until_ready then position = next_ready end
    time = time + passed
    if remaining then
      remaining = remaining - passed
      if remaining <= 0 then unit, remaining = unit + 1, nil end
    end
  end
  return time + work.optimizer
end

-- ---- measurements, in each rank ----

local problems = {
  {name = "MLP 784-1024-1024-10, 64 samples", make = function()
    return nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
      nn.Linear(1024, 10))
  end, input = {64, 784}},
  {name = "ResNet-18 for CIFAR, 8 samples", make = function() return nets.resnet18() end,
   input = {8, 3, 32, 32}},
}

-- Times of one step: {forward, backward, optimizer, whole}; fills `ready` by unit.
local function time_step(net, optimizer, x, y, ready)
  dist.barrier()
  local began = seconds()
  optimizer:zero_grad()
  local loss = F.cross_entropy(net(x), y)
  local forward = seconds()
  for i = 1, #ready do ready[i] = 0 end
  ready.began = forward
  loss:backward()
  local backward = seconds()
  optimizer:step()
  local ended = seconds()
  return {forward - began, backward - forward, ended - backward, ended - began}
end

local function measure_net(problem, steps)
  moth.manual_seed(1)
  local net = nn.parallel.DistributedDataParallel(problem.make(), {broadcast_buffers = false})
  local optimizer = moth.optim.SGD(net:parameters(), {lr = 1e-4, momentum = 0.9})
  local x, y = moth.randn(problem.input), moth.randint(1, 11, {problem.input[1]})
  local units, index, ready = net._units, {}, {}
  for i, unit in ipairs(units) do index[unit], ready[i] = i, 0 end
  for p, unit in pairs(net._unit_of) do
    p:register_post_accumulate_grad_hook(function()
      ready[index[unit]] = seconds() - ready.began
    end)
  end
  local alone, together, readies = {{}, {}, {}, {}}, {}, {}
  for i = 1, #units do readies[i] = {} end
  for step = -1, steps do -- the first two warm up
    local times = net:no_sync(time_step, net, optimizer, x, y, ready)
    local at = {unpack(ready)}
    local whole = time_step(net, optimizer, x, y, ready)[4]
    if step > 0 then
      for k = 1, 4 do alone[k][step] = times[k] end
      for i = 1, #units do readies[i][step] = at[i] end
      together[step] = whole
    end
  end
  local work = {forward = median(alone[1]), backward = median(alone[2]),
                optimizer = median(alone[3]), alone = median(alone[4]),
                measured = median(together), units = {}}
  local latest = 0
  for i, unit in ipairs(units) do
    local bytes = 0
    for _, p in ipairs(unit) do bytes = bytes + p.nbytes end
    latest = math.min(work.backward, math.max(latest, median(readies[i])))
    work.units[i] = {bytes = bytes, ready = latest}
  end
  return work
end

local function measure_messages()
  local times = {}
  for i, bytes in ipairs(SIZES) do
    local x, list = moth.ones(bytes / 4), {}
    for k = 1, 12 do
      dist.barrier()
      local began = seconds()
      dist.all_reduce(x, "max")
      list[k] = seconds() - began
    end
    times[i] = median(list)
  end
  return times
end

local function measure(steps)
  moth.set_num_threads(1)
  dist.init_process_group()
  local result = {messages = measure_messages()}
  for i, problem in ipairs(problems) do result[i] = measure_net(problem, steps) end
  local all = {}
  dist.gather_object(result, all)
  if dist.get_rank() == 0 then moth.save(all[1], arg[2]) end
  dist.destroy_process_group()
end

-- ---- the report ----

local function run(n, steps)
  local path, program = os.tmpname(), debug.getregistry()["moth.launcher"].program
  local line = ("%s run -n %d %s measure %s %d"):format(program, n, arg[0], path, steps)
  if os.execute(line) ~= 0 then error("failed: " .. line, 0) end
  local result = moth.load(path)
  os.remove(path)
  return result
end

-- The network that has the measured times of the shortest and of the longest message.
local function fit(times, n)
  local network = {latency = 0, bandwidth = 1e9, cpu = 1}
  if n == 1 then return network end
  local rounds = math.ceil(math.log(n) / math.log(2))
  network.latency = times[1] / (2 * rounds)
  local bytes, rest = SIZES[#SIZES], times[#SIZES] - 2 * (n - 1) * network.latency
  network.bandwidth = 2 * (n - 1) / n * bytes / math.max(rest, 1e-9)
  return network
end

local function check(results)
  print "all_reduce on this machine: milliseconds, measured (predicted)"
  for _, n in ipairs(RANKS) do
    if n > 1 then
      local network, row = fit(results[n].messages, n), {}
      for i, bytes in ipairs(SIZES) do
        row[i] = ("%.0f B %.3f (%.3f)"):format(bytes, 1e3 * results[n].messages[i],
          1e3 * all_reduce_time(network, n, bytes))
      end
      print(("  %d ranks, latency %.1f us, %.2f GB/s:  %s"):format(n, 1e6 * network.latency,
        network.bandwidth / 1e9, table.concat(row, "  ")))
    end
  end
  for i, problem in ipairs(problems) do
    print("\n" .. problem.name .. ": milliseconds of a step on this machine")
    print "  ranks  without messages  predicted  measured  measured / predicted"
    for _, n in ipairs(RANKS) do
      local work = results[n][i]
      local predicted = step_time(work, fit(results[n].messages, n), n)
      print(("  %5d  %16.1f  %9.1f  %8.1f  %.2f"):format(n, 1e3 * work.alone, 1e3 * predicted,
        1e3 * work.measured, work.measured / predicted))
    end
  end
end

local function predict(results)
  for i, problem in ipairs(problems) do
    local work, bytes = results[1][i], 0
    for _, unit in ipairs(work.units) do bytes = bytes + unit.bytes end
    local alone = step_time(work, NETWORKS[1], 1)
    print(("\n%s a rank: %.1f MB of gradients in %d messages, %.1f ms alone; predicted"):format(
      problem.name, bytes / 1e6, #work.units, 1e3 * alone))
    print("  ranks" .. (("  %s: ms, efficiency"):rep(#NETWORKS)):format(NETWORKS[1].name,
      NETWORKS[2].name))
    local n = 8
    while n <= 1024 do
      local row = {}
      for k, network in ipairs(NETWORKS) do
        local time = step_time(work, network, n)
        row[k] = ("%26.1f  %8.0f %%"):format(1e3 * time, 100 * alone / time)
      end
      print(("  %5d%s"):format(n, table.concat(row)))
      n = n * 2
    end
  end
end

if arg[1] == "measure" then
  measure(tonumber(arg[3]))
else
  local results = {}
  for _, n in ipairs(RANKS) do results[n] = run(n, tonumber(arg[1]) or 10) end
  check(results)
  predict(results)
end
