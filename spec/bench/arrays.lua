--- The time to read and write NumPy's files, Moth's and NumPy's in one run.
--
--     ./moth spec/bench/arrays.lua [PYTHON] [ROUNDS]
--
-- PYTHON (default python3) has numpy. Both sides use one thread. Figures are medians of CPU time
-- over rounds that alternate, in milliseconds; a ratio above 1 means that Moth is faster.

local moth = require "moth"

local python, rounds = arg[1] or "python3", tonumber(arg[2]) or 7
local folder = os.tmpname()
os.remove(folder)
os.execute(("mkdir %q"):format(folder))
local script = arg[0]:match "^(.*)/" .. "/peer/arrays.py"
moth.set_num_threads(1)

local function path(name) return folder .. "/" .. name end

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

-- Runs the peer, which prints "name seconds" for each row.
local function ask(command)
  local pipe = assert(io.popen(("%q %q %s %q"):format(python, script, command, folder)))
  local result = {}
  for line in pipe:lines() do
    local name, seconds = line:match "^(.-)\t(.*)$"
    if name then result[name] = tonumber(seconds) end
  end
  pipe:close()
  return result
end

local function total(arrays)
  local sum = 0
  for _, x in pairs(arrays) do sum = sum + x:sum():item() end
  return sum
end

local large, many = moth.rand(2 ^ 23), {}
for i = 1, 8 do many["a" .. i] = moth.rand(2 ^ 20) end

-- Name, repetitions in a round, function. The peer has the same names.
local rows = {
  {"npy 32 MiB, read", 3, function() return moth.load {path "large.npy", mmap = false} end},
  {"npy 32 MiB, mapped, sum", 3, function() return moth.load(path "large.npy"):sum():item() end},
  {"npy 32 MiB of the other byte order", 3, function() return moth.load(path "big.npy") end},
  {"npy 4 KiB, read", 300, function() return moth.load {path "small.npy", mmap = false} end},
  {"npz 32 MiB, read, sum", 3, function() return total(moth.load(path "many.npz")) end},
  {"npz 32 MiB, written by Moth, read, sum", 3, function()
    return total(moth.load(path "own.npz"))
  end},
  {"npz 32 MiB, compressed, read", 1, function() return moth.load(path "packed.npz") end},
  {"npy 32 MiB, write", 3, function()
    moth.save {large, path "out.npy", durable = false}
  end},
  {"npz 32 MiB, write", 3, function() moth.save {many, path "out.npz", durable = false} end},
}

local function measure(row)
  moth.collect()
  local start = os.clock()
  for _ = 1, row[2] do moth.scope(function() row[3]() end) end
  return (os.clock() - start) / row[2]
end

ask "write"
moth.save {many, path "own.npz", durable = false}
for _, row in ipairs(rows) do measure(row) end -- warm-up
local ours, theirs = {}, {}
for _ = 1, rounds do
  for name, seconds in pairs(ask "time") do
    theirs[name] = theirs[name] or {}
    table.insert(theirs[name], seconds)
  end
  for _, row in ipairs(rows) do
    ours[row[1]] = ours[row[1]] or {}
    table.insert(ours[row[1]], measure(row))
  end
end

print(("%-42s %9s %9s %7s"):format("", "Moth, ms", "NumPy, ms", "ratio"))
for _, row in ipairs(rows) do
  local own, other = median(ours[row[1]]), theirs[row[1]] and median(theirs[row[1]])
  print(("%-42s %9.3f %9s %7s"):format(row[1], own * 1e3,
    other and ("%.3f"):format(other * 1e3) or "absent", other and ("%.2f"):format(other / own)
    or "-"))
end
os.execute(("rm -r %q"):format(folder))
