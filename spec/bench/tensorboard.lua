--- The time of one add_scalar of Moth's and of PyTorch's SummaryWriter, in one run; and what
-- TensorBoard's own reader counts in the file that Moth wrote.
--
--     ./moth spec/bench/tensorboard.lua [PYTHON]
--
-- PYTHON (default python3) has torch and tensorboard. Figures are medians of rounds that alternate,
-- in microseconds a call, flushing included.

local moth = require "moth"

local ROUNDS, CALLS = 7, 20000
local HISTOGRAMS, IMAGES = 5, 3

local python = arg[1] or "python3"
local folder = os.tmpname() .. ".runs"
local script = arg[0]:match "^(.*)/" .. "/peer/event_files.py"

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

local writer = moth.utils.tensorboard.SummaryWriter(folder .. "/moth")

local function round(number)
  local start = moth.time()
  for i = 1, CALLS do writer:add_scalar("loss/train", i * 0.5, number * CALLS + i) end
  writer:flush()
  return (moth.time() - start) / CALLS * 1e6
end

local function ask(command)
  local pipe = assert(io.popen(("%q %q %s %q 2>/dev/null"):format(python, script, command, folder)))
  local text = pipe:read "*a"
  pipe:close()
  return text
end

round(0) -- warm-up
local ours, theirs = {}, {}
for i = 1, ROUNDS do
  ours[i] = round(i)
  theirs[i] = tonumber(ask("time/" .. CALLS))
end
for i = 1, HISTOGRAMS do writer:add_histogram("weights", moth.randn(1000), i) end
for i = 1, IMAGES do writer:add_image("noise", moth.rand(3, 8, 8), i) end
writer:close()

print(("add_scalar, us a call: Moth %.2f, PyTorch %s, ratio %s"):format(median(ours),
  theirs[1] and ("%.1f"):format(median(theirs)) or "absent",
  theirs[1] and ("%.1f"):format(median(theirs) / median(ours)) or "-"))
print("TensorBoard's reader counts: " .. (ask "count":gsub("\n$", "")))
print(("written: %d scalars, %d histograms, %d images"):format((ROUNDS + 1) * CALLS, HISTOGRAMS,
  IMAGES))
os.execute(("rm -r %q"):format(folder))
