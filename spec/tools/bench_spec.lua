--- bench_spec.lua -- the benchmark: it runs, and both sides have the same workloads.

local process = require "spec.support.process"

local HERE = "spec/bench/"

local function text_of(path)
  local file = assert(io.open(path))
  local text = file:read "*a"
  file:close()
  return text
end

-- A module of the benchmark.
local function module(name)
  local path = package.path
  package.path = HERE .. "?.lua;" .. path
  local loaded = require(name)
  package.path = path
  return loaded
end

local function rows() return module("workloads").read(HERE .. "workloads.txt") end

-- The peer's definition of a row's call: a key of a table, or a function of a file.
local function peer_has(row)
  if row.kind == "train" or row.kind == "infer" then return true end
  if row.kind == "call" or row.kind == "graph" or row.kind == "op" then
    return text_of(HERE .. "peer/ops.py"):find('"' .. row.fn .. '":', 1, true)
  end
  local all = text_of(HERE .. "peer/train.py") .. text_of(HERE .. "peer/data.py")
    .. text_of(HERE .. "peer/whole.py")
  local name = row.group == "memory" and "memory" or row.fn
  return all:find("\ndef " .. name .. "_?%(")
end

describe("the benchmark", function()
  it("has the peer's side of each workload", function()
    for _, row in ipairs(rows()) do
      assert.is_truthy(peer_has(row), row.name)
    end
  end)

  it("has each network on both sides", function()
    local ours, theirs = text_of(HERE .. "nets.lua"), text_of(HERE .. "peer/nets.py")
    for _, row in ipairs(rows()) do
      local net = row.kind ~= "whole" and row.options.net and row.options.net:match "^[%w_]+"
      if net then
        assert.is_truthy(ours:find("function nets." .. net .. "(", 1, true), net)
        assert.is_truthy(theirs:find("def " .. net .. "(", 1, true), net)
      end
    end
  end)

  it("gives each workload one name", function()
    local seen = {}
    for _, row in ipairs(rows()) do
      assert.is_nil(seen[row.name], row.name)
      seen[row.name] = true
    end
  end)

  it("reports the mean of all calls, including those that the garbage collector slows", function()
    local took, n = { 0.1, 0.1, 0.6 }, 0
    local function batch()
      n = n + 1
      return took[n]
    end
    assert.near(0.8 / 3 / 10 * 1e6, module("timing").mean(batch, 10, 0.7, 0), 1e-6)
    assert.equal(3, n)
  end)

  it("times small calls until ten garbage collections have ended, if they make garbage", function()
    local passed, kept = require("moth.profiler.benchmark").cycles(), nil
    local function garbage()
      for _ = 1, 20000 do kept = { {}, {}, {}, {} } end
      return 0.01
    end
    module("timing").mean(garbage, 20000, 0.001, 10)
    assert.equal(4, #kept)
    assert.is_true(passed() >= 2, passed() .. " cycles")
    collectgarbage() -- so that no collection ends during the call below
    local calls = 0
    module("timing").mean(function() calls = calls + 1 return 1 end, 1, 0.5, 10)
    assert.equal(1, calls)
  end)

  it("is compared with plain loops by its own script", function()
    local program = debug.getregistry()["moth.launcher"].program
    local out = process.shell(program .. " spec/bench/loop.lua inplace --turns 1000 --rounds 1")
    assert.matches("small/add16_inplace +%d+%.%d+ +%d+%.%d+ +%d+%.%d+", out)
    assert.matches("rc=0", out)
  end)

  -- A mock of PyTorch's side: it answers by a rule of the shell's `case`.
  local function bench(words, answer)
    local program = debug.getregistry()["moth.launcher"].program
    local peer = os.tmpname()
    local file = assert(io.open(peer, "w"))
    file:write("#!/bin/sh\nwhile read -r line; do case $line in\n", answer or "",
      "\n*) echo done a peer;; esac; done\n")
    file:close()
    os.execute("chmod +x " .. peer)
    local command = ("%s bench %s --seconds 0.0001"):format(program, words)
    if answer then command = command .. " --peer " .. peer end
    local text = process.shell(command)
    os.remove(peer)
    return text
  end

  it("times Moth without a peer and prints a row for each workload and variant", function()
    local out = bench "small --only matmul4 --rounds 1"
    assert.matches("small/matmul4 +us +%d+%.%d+", out)
    assert.matches("small/matmul4%+scope +us +%d+%.%d+", out)
    assert.matches("rc=0", out)
  end)

  it("accepts all groups and several patterns", function()
    local out = bench "--list --only 'add16/?|gpt$'"
    assert.matches("small/add16", out)
    assert.matches("train/gpt", out)
    assert.matches("memory/gpt", out)
    assert.not_matches("mlp784", out)
  end)

  it("suggests near names if no name matches", function()
    local out = bench "op --only sofmax"
    assert.matches("no workload of 'op' matches 'sofmax'; near: .*softmax", out)
    assert.matches("rc=1", out)
    assert.matches("rc=1", bench "--list --only nosuch")
  end)

  it("prints the ratio to a peer, its range, and the mean of a group", function()
    local out = bench("small --only inplace", "time*) echo part - us 1000; echo done;;")
    assert.matches("small/add16_inplace +us +%d+%.%d+ +1000 +%d+%.%d%d +%d+%.%d%d", out)
  end)

  it("shows a row that fails on one side, and continues", function()
    local out = bench("small --only add16_ --rounds 1",
      "setup*grad) echo done;; time*) echo error no memory;;")
    assert.matches("small/add16_grad +us +%d+%.%d+ +error", out)
    assert.matches("PyTorch: no memory", out)
    assert.matches("small/add16_inplace +us +%d+%.%d+ +error", out)
  end)

  it("shows a row whose process crashes, and starts another", function()
    local out = bench("small --only add16_ --rounds 1",
      "*inplace) exit;; time*) echo part - us 7; echo done;;")
    assert.matches("small/add16_grad +us +%d+%.%d+ +7.000", out)
    assert.matches("PyTorch: the process ended", out)
    assert.matches("rc=0", out)
  end)
end)

describe("the rows of the benchmark that are generated from records", function()
  local json = require "moth.json"
  local moth = require "moth"

  local path = package.path
  package.path = HERE .. "?.lua;" .. path
  local records, recorded = require "records", require "recorded"
  package.path = path
  local made, without = records.read()

  it("exist for every op of the registry, or a reason why not", function()
    for _, op in ipairs(records.ops()) do
      assert.is_truthy(op.row or op.reason, op.name .. " has neither a row nor a reason")
    end
  end)

  it("have unique names, by which they are found again", function()
    local seen = {}
    for _, row in ipairs(made) do
      assert.is_nil(seen[row.name], row.name)
      seen[row.name] = true
      local found = records.find(row.name)
      assert.equal(row.call, found.call, row.name)
      assert.equal(row.backward, found.backward, row.name)
      assert.is_nil(without[row.fn], row.fn)
    end
    assert.is_true(#made > 900)
  end)

  it("run at the sizes of their examples", function()
    for _, row in ipairs(made) do
      local ok, problem = pcall(function()
        local step = recorded.step(records.call(row, true))
        moth.scope(function() step() end)
      end)
      assert.is_true(ok, row.name .. ": " .. tostring(problem))
    end
  end)

  it("are enlarged, and are written as JSON for the peer, which counts from 0", function()
    local function call(name) return json.decode(records.peer_call(records.find(name))) end
    local sum = call "op/softmax/record/fwdbwd"
    assert.equal("softmax", sum.fn)
    assert.equal(1, sum.args[2])
    assert.is_true(sum.args[1].grad and sum.backward)
    assert.is_true(sum.args[1].shape[1] * sum.args[1].shape[2] > 1e5)
    local add = call "op/add/record/fwd"
    assert.equal(add.args[1].shape[2], add.args[2].shape[1])
    local solve = call "op/linalg.solve/record/fwd"
    assert.equal("linalg.solve", solve.fn)
    assert.equal("matrix", solve.args[1].draw)
  end)
end)
