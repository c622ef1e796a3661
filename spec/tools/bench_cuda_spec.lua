-- moth bench cuda: it also runs on the GPU emulator, and its workloads match those of the peer.

local cuda = require "spec.support.cuda"
local process = require "spec.support.process"

local launcher = debug.getregistry()["moth.launcher"]

local function bench(words)
  return process.shell(("'%s' bench cuda %s"):format(launcher.program, words))
end

describe("moth bench cuda", function()
  if not cuda.here or not launcher then
    pending("times a GPU: " .. cuda.why)
    return
  end

  it("lists each workload once", function()
    local seen, n = {}, 0
    for line in bench "--list":gmatch "[^\n]+" do
      local name = line:match "^(%w+/%S+): "
      if name then
        assert.is_nil(seen[name], name)
        seen[name], n = true, n + 1
      end
    end
    for _, name in ipairs { "launch/add16", "launch/xor_step/graph", "gemm/4096x4096x4096/bf16",
      "memory/softmax/8192x8192/fwdbwd", "conv/256x64x56x56_k3/tf32/fwd",
      "conv/256x64x56x56_k3/bf16_cl/fwdbwd", "train/resnet18/bf16_cl/graph",
      "attention/sdpa_8x16x1024x64/bf16/fwd", "train/gpt124m/bf16/eager", "process/first/add" } do
      assert.is_true(seen[name], name)
    end
    assert.is_true(n > 120, n .. " workloads")
  end)

  local FIELDS = { "device_us", "wall_us", "host_us", "sync_us", "device_min", "wall_min",
    "first_ms", "n", "calls", "l2", "tf32", "peak_mib" }

  --- Dry runs of the matching workloads: name -> line.
  local function rows(patterns)
    local list = {}
    local out = bench(("--dry --only '%s'"):format(patterns))
    for line in out:gmatch "[^\n]+" do
      local name = line:match '^{"name": "([^"]+)"'
      if name then list[name] = line end
    end
    assert.is_truthy(list.machine and list.machine:find '"gpu": "', out)
    return list, out
  end

  it("prints a row with all fields for each workload, and the rate of calls", function()
    local list, out = rows("^launch/add16|^launch/square0|^gemm/1024x1024x1024/bf16"
      .. "|^memory/sum/dim0|^memory/topk|^train/mlp784/tf32/eager")
    for name, rate in pairs { ["launch/add16"] = "", ["launch/square0/fwdbwd"] = "",
      ["gemm/1024x1024x1024/bf16"] = "tflop_s", ["memory/sum/dim0"] = "gb_s",
      ["memory/topk/4096x4096_k10"] = "gb_s", ["train/mlp784/tf32/eager"] = "images_s" } do
      assert.is_truthy(list[name], name .. " is missing: " .. out)
      for _, field in ipairs(FIELDS) do
        assert.is_truthy(list[name]:find('"' .. field .. '": ', 1, true), name .. " " .. field)
      end
      assert.is_truthy(list[name]:find(rate, 1, true), name .. " " .. rate)
    end
    assert.matches("rc=0", out)
  end)

  it("trains a GPT in mixed precision", function()
    local list = rows "^train/gpt10m/bf16/eager"
    assert.matches('"mfu": ', list["train/gpt10m/bf16/eager"])
  end)

  it("prints a row for each figure of a fresh process", function()
    local list = rows "^process/first/add"
    for _, part in ipairs { "wall", "import", "first_op", "peak_rss", "device_memory" } do
      assert.matches('"median": ', list["process/first/add/" .. part])
    end
  end)
end)
