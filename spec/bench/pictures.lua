--- Pictures a second on one core: decoding JPEG files, and an ImageFolder with
-- RandomResizedCrop(224), RandomHorizontalFlip and Normalize, of Moth and of torchvision, in one
-- run.
--
--     ./moth spec/bench/pictures.lua [PYTHON] [ROUNDS]
--
-- PYTHON (default python3) has torchvision and scikit-learn, whose two photographs are cut to files
-- of 500 x 375 pixels (the usual size of ImageNet), and scaled to files of 2000 x 1500. Figures are
-- medians of rounds that alternate, in pictures for each second of CPU time.

local moth = require "moth"
local T = moth.transforms

local python, rounds = arg[1] or "python3", tonumber(arg[2]) or 5
local folder = os.tmpname() .. ".pictures"
local script = arg[0]:match "^(.*)/" .. "/peer/pictures.py"

moth.set_num_threads(1)

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

local function ask(...)
  local command = {("%q %q"):format(python, script)}
  for _, word in ipairs {...} do command[#command + 1] = ("%q"):format(word) end
  local pipe = assert(io.popen(table.concat(command, " ") .. " 2>/dev/null"))
  local text = pipe:read "*a"
  pipe:close()
  return text
end

local transform = T.Compose {
  T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToDtype(moth.float32, {scale = true}),
  T.Normalize({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}),
}

local sets = {}
local function set_of(size, options)
  local key = size .. tostring(options)
  sets[key] = sets[key] or moth.data.ImageFolder(folder .. "/" .. size, options)
  return sets[key]
end

local RUNS = {
  {"decode", function(set, i) return set.loader(set.samples[i][1]) end},
  {"epoch", function(set, i) return set:get(i) end, {transform = transform}},
  {"epoch, min_size 448", function(set, i) return set:get(i) end,
   {transform = transform, min_size = 448}},
}

-- Pictures a second of CPU time.
local function rate(size, run)
  local set = set_of(size, run[3])
  collectgarbage()
  local start = os.clock()
  for i = 1, set:len() do moth.scope(function() run[2](set, i) end) end
  return set:len() / (os.clock() - start)
end

ask("make", folder)
for _, size in ipairs {"500x375", "2000x1500"} do
  local ours, peer = {}, {}
  for k, run in ipairs(RUNS) do
    ours[k] = {}
    rate(size, run)
  end
  for i = 1, rounds do
    for k, run in ipairs(RUNS) do ours[k][i] = rate(size, run) end
    for name, value in ask("time", folder .. "/" .. size):gmatch "(%S+) (%S+)\n" do
      peer[name] = peer[name] or {}
      peer[name][i] = tonumber(value)
    end
  end
  local function best(what)
    return peer[what .. "/PIL"] and median(peer[what .. "/PIL"]),
      peer[what .. "/io"] and median(peer[what .. "/io"])
  end
  print(("%s: pictures a second"):format(size))
  for k, run in ipairs(RUNS) do
    local mine, pil, tensors = median(ours[k]), best(run[1]:match "^%a+")
    print(("  %-20s Moth %7.1f  torchvision with PIL %7.1f (ratio %.2f)  with torchvision.io %7.1f "
      .. "(ratio %.2f)"):format(run[1], mine, pil or 0, pil and mine / pil or 0, tensors or 0,
      tensors and mine / tensors or 0))
  end
end
os.execute(("rm -r %q"):format(folder))
