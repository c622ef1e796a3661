--- Transforms of a picture of 500 x 375 bytes on one core, of Moth and of torchvision, in one run.
--
--     ./moth spec/bench/transforms.lua [PYTHON] [ROUNDS]
--
-- PYTHON (default python3) has torchvision. Rounds of both sides alternate; figures are medians of
-- CPU time in ms, and the ratio is torchvision's time by Moth's. torchvision gets the faster of the
-- two layouts of a picture, contiguous and channels last.

local moth = require "moth"
local T = moth.transforms
local F = T.functional

local python, rounds = arg[1] or "python3", tonumber(arg[2]) or 5
local script = arg[0]:match "^(.*)/" .. "/peer/transforms.py"

moth.set_num_threads(1)
moth.manual_seed(1)

local x = moth.randint(0, 256, {3, 375, 500}, {dtype = moth.uint8})
local small = moth.randint(0, 256, {3, 224, 224}, {dtype = moth.uint8})
local chain = T.Compose{
  T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToDtype(moth.float32, {scale = true}),
  T.Normalize({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}),
}
local jitter, policy = T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.RandAugment()

local RUNS = {
  {"crop, flip, normalize", function() return chain(x) end},
  {"resize to 224", function() return F.resize(x, {224, 224}) end},
  {"resize to 224, bicubic", function() return F.resize(x, {224, 224}, "bicubic") end},
  {"rotate", function() return F.rotate(small, 33) end},
  {"affine, bilinear", function()
    return F.affine(small, 23, {2, -1}, 1.3, {5, -7}, "bilinear", 0)
  end},
  {"brightness", function() return F.adjust_brightness(small, 1.3) end},
  {"contrast", function() return F.adjust_contrast(small, 1.3) end},
  {"saturation", function() return F.adjust_saturation(small, 1.3) end},
  {"hue", function() return F.adjust_hue(small, 0.1) end},
  {"ColorJitter", function() return jitter(small) end},
  {"gaussian_blur 5", function() return F.gaussian_blur(small, 5, 1) end},
  {"equalize", function() return F.equalize(small) end},
  {"RandAugment", function() return policy(small) end},
}

local CALLS = 30

local function median(list)
  table.sort(list)
  return list[math.ceil(#list / 2)]
end

-- The time of a call in ms.
local function time(f)
  local start = os.clock()
  for _ = 1, CALLS do moth.scope(f) end
  return (os.clock() - start) / CALLS * 1e3
end

local ours, peer = {}, {}
for i = 1, rounds do
  for _, run in ipairs(RUNS) do
    ours[run[1]] = ours[run[1]] or {}
    ours[run[1]][i] = time(run[2])
  end
  local pipe = assert(io.popen(("%q %q 2>/dev/null"):format(python, script)))
  for name, ms in pipe:read "*a":gmatch "([^\t\n]+)\t(%S+)\n" do
    peer[name] = peer[name] or {}
    peer[name][i] = tonumber(ms)
  end
  pipe:close()
end

print(("%-24s %9s %12s %7s"):format("ms", "Moth", "torchvision", "ratio"))
for _, run in ipairs(RUNS) do
  local mine, other = median(ours[run[1]]), peer[run[1]] and median(peer[run[1]])
  print(("%-24s %9.3f %12s %7s"):format(run[1], mine, other and ("%.3f"):format(other) or "-",
    other and ("%.2f"):format(other / mine) or "-"))
end
