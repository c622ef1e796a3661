-- moth bench cuda --peer: Moth and a mock of PyTorch's program run in turn, a failure costs only
-- its own row, and files of rows become a table.

local cuda = require "spec.support.cuda"
local process = require "spec.support.process"

local launcher = debug.getregistry()["moth.launcher"]

local function bench(words)
  return process.shell(("'%s' bench %s"):format(launcher.program, words))
end

local function written(text)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  return path
end

-- Called as PyTorch's program: `PEER gpu.py --list`, `PEER gpu.py --names FILE ...`. The mock knows
-- the names, and prints rows by rules of the shell's `case`.
local PEER = [[
#!/bin/sh
if [ "$2" = --list ]; then
  for name in NAMES; do echo "$name: a workload"; done
  exit
fi
echo '{"name": "machine", "torch": "9.8", "cuda": "7", "cudnn": 6, "python": "5", "gpu": "none"}'
while read -r name; do
  row='{"name": "'$name'", "host_us": 1e9, "sync_us": 5}'
  case $name in
ANSWERS
*) echo "$row";; esac
done <"$3"
]]

--- Runs both programs. @return the output, and the rows that were kept
local function compared(names, answers, words)
  local peer = written((PEER:gsub("NAMES", names):gsub("ANSWERS", answers)))
  local kept = os.tmpname()
  os.execute("chmod +x " .. peer)
  local out = bench(("cuda --dry --peer %s --json %s %s"):format(peer, kept, words))
  local file = assert(io.open(kept))
  local rows = file:read "*a"
  file:close()
  os.remove(peer)
  os.remove(kept)
  return out, rows
end

local function count(text, part)
  local n, from = 0, 1
  while true do
    local _, last = text:find(part, from, true)
    if not last then return n end
    n, from = n + 1, last + 1
  end
end

--- Fails unless the parts are in the text in this order.
local function in_order(text, parts)
  local from = 1
  for _, part in ipairs(parts) do
    local _, last = text:find(part, from, true)
    assert(last, ("no '%s' where it should be in:\n%s"):format(part, text))
    from = last + 1
  end
end

describe("moth bench cuda --peer", function()
  if not launcher then
    pending "times programs: this is not the launcher"
    return
  end

  it("runs both sides in turn, and changes which side begins", function()
    if not cuda.here then return pending(cuda.why) end
    local out, rows = compared("launch/add16 launch/alone", "",
      "--only 'launch/add16|launch/alone'")
    assert.matches("rc=0", out)
    in_order(out, { "PyTorch alone: launch/alone", "1 Moth    launch/add16",
      "1 PyTorch launch/add16", "1 PyTorch launch/alone", "2 PyTorch launch/add16",
      "2 Moth    launch/add16", "## launch" })
    assert.matches("| add16 | host_us | [%d.]+ | 1000000000 | [%d.]+", out)
    assert.matches('{"side": "pytorch", "round": 2, "name": "launch/add16"', rows, 1, true)
    assert.equal(2, count(rows, '"side": "moth", "round": 1,')) -- the machine, and the row
    assert.matches("PyTorch 9.8, CUDA 7, cuDNN 6", out, 1, true)
  end)

  it("ends a process at its limit, keeps its rows and continues with the next group", function()
    local out, rows = compared("launch/a launch/b gemm/c", "launch/b) exec sleep 60;;",
      "--only '/[abc]$' --rounds 1 --limit 1")
    in_order(out, { "1 PyTorch launch/a", "launch", "ended by its limit of 1 seconds, 1 of 2",
      "1 PyTorch gemm/c", "## Failed", "- PyTorch, launch: ended by its limit" })
    assert.matches("rc=0", out)
    assert.equal(1, count(rows, '"name": "launch/a"'))
    assert.equal(0, count(rows, '"name": "launch/b"'))
  end)

  it("starts another process after a crash, without the row that crashed", function()
    local out, rows = compared("launch/a launch/b launch/c", "launch/b) echo out of luck >&2; "
      .. "exit 3;;", "--only '/[abc]$' --rounds 1")
    in_order(out, { "launch/b", "error: the process ended with status 3: out of luck",
      "1 PyTorch launch/c" })
    assert.equal(1, count(rows, '"name": "launch/a"'))
    assert.equal(1, count(rows, '"name": "launch/c"'))
  end)

  it("skips a group whose process ends before any row", function()
    local peer = written("#!/bin/sh\n[ $2 = --list ] && echo 'launch/a: x' && exit\n"
      .. "echo 'no card' >&2; echo 'stack traceback:' >&2; echo 'deep down' >&2; exit 4\n")
    os.execute("chmod +x " .. peer)
    local out = bench(("cuda --dry --only '/a$' --rounds 1 --peer %s"):format(peer))
    os.remove(peer)
    assert.matches("error: the process ended with status 4: no card", out)
    assert.equal(1, count(out, "1 PyTorch"))
    assert.matches("rc=0", out)
  end)

  it("tries rows that failed after another row again in a new process without it", function()
    local out, rows = compared("launch/a launch/b launch/c", [[
launch/a) bad=1; echo '{"name": "launch/a", "error": "an illegal address"}';;
launch/*) [ -n "$bad" ] && row='{"name": "'$name'", "error": "as before"}'; echo "$row";;]],
      "--only '/[abc]$' --rounds 1")
    assert.equal(1, count(rows, '"name": "launch/a"'))
    assert.equal(2, count(rows, '"name": "launch/b"'))
    assert.matches("- PyTorch, launch/a: an illegal address", out, 1, true)
    assert.not_matches("- PyTorch, launch/b", out, 1, true)
  end)

  it("names the rows that it cannot run or read", function()
    local out = bench "cuda --peer no-such-python --only add16"
    assert.matches("PyTorch does not list its workloads (no-such-python", out, 1, true)
    assert.matches("rc=1", out)
    assert.matches("no workload matches 'nosuch'", (compared("launch/a", "", "--only nosuch")))
    assert.matches("%-%-rounds wants %-%-peer", bench "cuda --rounds 2")
    assert.matches("'0' is not a number above 0", bench "cuda --peer sh --rounds 0")
    assert.matches("cannot read nosuch.json: No such file", bench "cuda --table nosuch.json")
    local path = written '{"name": "launch/add16"}\n'
    assert.matches(":1: not a row of moth bench cuda", bench("cuda --table " .. path), 1, true)
    os.remove(path)
  end)

  it("also runs for --device cuda without a group", function()
    assert.equal(bench "cuda --list --only add16", bench "--device cuda --list --only add16")
    assert.matches("op/softmax", bench "op --device cuda --list --only softmax")
  end)
end)

describe("moth bench cuda --table", function()
  if not launcher then return end

  -- "side round name field=value ...", a line each.
  local function rows_of(text)
    local lines = {}
    for line in text:gmatch "[^\n]+" do
      local side, round, name, more = line:match "^%s*(%S+) (%d) (%S+) (.*)$"
      lines[#lines + 1] = ('{"side": "%s", "round": %s, "name": "%s", %s}'):format(side, round,
        name, (more:gsub("(%S+)=(%S+)%s?", '"%1": %2, '):gsub(", $", "")))
    end
    return table.concat(lines, "\n") .. "\n"
  end

  local function table_of(...)
    local paths = {}
    for i, text in ipairs { ... } do paths[i] = written(rows_of(text)) end
    local out = bench("cuda --table " .. table.concat(paths, " "))
    for _, path in ipairs(paths) do os.remove(path) end
    assert.matches("rc=0", out)
    return out
  end

  local function has(out, line)
    assert(out:find(line, 1, true), "no " .. line .. " in:\n" .. out)
  end

  it("pairs the rounds, computes the median ratio, and marks a tie by the range", function()
    local out = table_of([[
      moth 1 memory/relu/1e7/f32 device_us=10 gb_s=1000
      moth 2 memory/relu/1e7/f32 device_us=20 gb_s=3000
      pytorch 1 memory/relu/1e7/f32 device_us=20
      pytorch 2 memory/relu/1e7/f32 device_us=60
      moth 1 memory/exp/1e7/f32 device_us=10
      moth 2 memory/exp/1e7/f32 device_us=10
      pytorch 1 memory/exp/1e7/f32 device_us=9
      pytorch 2 memory/exp/1e7/f32 device_us=10.8]])
    has(out, "| relu/1e7/f32 | device_us | 15.00 | 40.00 | 2.50 | 1.50 |  |  | 2000 GB/s | 47 % |")
    has(out, "| exp/1e7/f32 | device_us | 10.00 | 9.900 | 0.99 = | 1.20 |")
    has(out, "| memory | device_us | the same row | 1.57 | 2 | 0.99 exp/1e7/f32 |")
    has(out, "| memory/exp/1e7/f32 | device_us | the same row | 0.99 = | 1.20 |")
  end)

  it("reads several files as one run and keeps their rounds separate", function()
    local out = table_of("moth 1 gemm/a/f32 device_us=10\npytorch 1 gemm/a/f32 device_us=20",
      "moth 1 gemm/a/f32 device_us=10\npytorch 1 gemm/a/f32 device_us=40",
      "moth 1 conv/b/tf32/fwd device_us=1")
    has(out, "| a/f32 | device_us | 10.00 | 30.00 | 3.00 | 2.00 |")
    has(out, "| b/tf32/fwd | device_us | 1.000 |  |")
  end)

  it("also compares with PyTorch's fastest variant, and names it", function()
    local out = table_of [[
      moth 1 train/mlp784/tf32/eager wall_us=100 peak_mib=4
      moth 1 train/mlp784/tf32/graph wall_us=50 peak_mib=4
      pytorch 1 train/mlp784/tf32/eager wall_us=400 peak_mib=2
      pytorch 1 train/mlp784/tf32/graph wall_us=40 peak_mib=2
      moth 1 attention/sdpa_8/bf16/fwd device_us=10
      pytorch 1 attention/sdpa_8/bf16/fwd device_us=20
      pytorch 1 attention/cudnn_8/bf16/fwd device_us=5]]
    has(out, "| mlp784/tf32/eager | wall_us | 100.0 | 400.0 | 4.00 |  | graph 40.00 | 0.40 |")
    has(out, "| mlp784/tf32/eager | peak_mib | 4.000 | 2.000 | 0.50 |  |  |  |")
    has(out, "| sdpa_8/bf16/fwd | device_us | 10.00 | 20.00 | 2.00 |  | cudnn 5.000 | 0.50 |")
    has(out, "| train | wall_us | best / best | 0.80 | 1 | 0.80 mlp784/tf32 |")
    has(out, "| train/mlp784/tf32 | wall_us | best / best: graph / graph | 0.80 |  |")
    local small = out:match "## Small networks below 3\n(.*)"
    has(small, "| train/mlp784/tf32/graph | wall_us | the same row | 0.80 |")
    assert.is_nil(small:find("mlp784/tf32/eager", 1, true))
  end)

  it("compares the times of fresh processes, each figure separately", function()
    local out = table_of [[
      moth 1 process/first/add/wall median=100
      pytorch 1 process/first/add/wall median=900
      moth 1 process/first/add/import median=1
      pytorch 1 process/first/add/import median=1
      moth 1 process/first/add/peak_rss median=10
      pytorch 1 process/first/add/peak_rss median=40]]
    has(out, "| first/add/wall | wall | 100.0 | 900.0 | 9.00 |")
    has(out, "| process | peak_rss | the same row | 4.00 | 1 |")
    assert.is_nil(out:find("first/add/import", 1, true))
    assert.is_nil(out:find("To repeat", 1, true))
  end)

  it("computes the limit from the faster side's large product; clocks are separate", function()
    local out = table_of [[
      moth 1 gemm/8192x8192x8192/bf16 device_us=2 tflop_s=400 sm_mhz=1980
      pytorch 1 gemm/8192x8192x8192/bf16 device_us=1 tflop_s=800 sm_mhz=1500]]
    has(out, "| 400.0 TFLOP/s | 50 % |")
    has(out, "bf16 800.0, f16 790.0 (not measured here)")
    has(out, "gemm/8192x8192x8192/bf16 (1980, 1500)")
  end)
end)
