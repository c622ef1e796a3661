-- Times moth.models against torchvision and transformers: the forward pass in evaluation mode, also
-- as a captured step, and loading weights. One thread; both sides alternate in one run; medians.
-- Run it with: ./moth spec/bench/models.lua --peer PYTHON [--models NAME,NAME] [--rounds N]

local here = arg[0]:match "^(.*)/" or "."
package.path = here .. "/?.lua;" .. package.path

local child = require "child"
local moth = require "moth"
local timing = require "timing"

local parser = require "argparse"("models", "Times models against torchvision's.")
parser:option("--peer", "A Python that has torchvision and transformers.")
parser:option("--models", "Names, separated by commas.", "resnet18,resnet50,mobilenet_v3_small,"
  .. "mobilenet_v3_large,efficientnet_b0,vgg11,vit_b_16,gpt2,bert_base")
parser:option("--batches", "Numbers of images, separated by commas.", "1,8")
parser:option("--rounds", "Calls of each side.", "7"):convert(tonumber)
parser:flag("--wall", "Wall time instead of the processes' CPU time.")
local args = parser:parse()

moth.set_num_threads(1)
if not args.wall then timing.use_cpu_time() end

local folder = child.folder()
local peer = args.peer and child.new("PyTorch", {args.peer, here .. "/peer/models.py",
  args.wall and "wall" or "cpu"}, {OPENBLAS_CORETYPE = false}, folder)

local function ask(...)
  if not peer then return nil end
  return tonumber((assert(peer:ask(...))))
end

local function median(list)
  table.sort(list)
  local middle = math.ceil(#list / 2)
  return #list % 2 == 1 and list[middle] or (list[middle] + list[middle + 1]) / 2
end

local function given(name, batch)
  if name == "gpt2" or name == "bert_base" then
    return moth.ones(batch, 64, {dtype = moth.int64})
  end
  return moth.randn(batch, 3, 224, 224)
end

-- Times functions in turns. @return their medians in seconds
local function alternate(functions)
  local times = {}
  for i = 1, #functions do times[i] = {} end
  for _ = 1, args.rounds do
    for i, f in ipairs(functions) do times[i][#times[i] + 1] = f() end
  end
  for i = 1, #functions do times[i] = median(times[i]) end
  return times
end

local function timed(f, ...)
  collectgarbage()
  local start = timing.now()
  moth.scope(f, ...)
  return timing.now() - start
end

local function show(name, what, times)
  local line = ("%-20s %-8s Moth %8.1f ms"):format(name, what, 1e3 * times[1])
  if times.captured then
    line = line .. ("  captured %8.1f ms"):format(1e3 * times.captured)
  end
  if times.peer then
    line = line .. ("  PyTorch %8.1f ms  ratio %5.2f"):format(1e3 * times.peer,
      times.peer / times[1])
    if times.captured then line = line .. ("  %5.2f"):format(times.peer / times.captured) end
  end
  print(line)
  io.stdout:flush()
end

local function forward(name, net, batch)
  local x = given(name, batch)
  local function run() return (net(x)) end
  local step = moth.capture(run)
  moth.no_grad(function()
    for _ = 1, 3 do moth.scope(run) moth.scope(step) end
  end)
  if peer then assert(peer:ask("setup", name, batch)) end
  local functions = {
    function() return (moth.no_grad(timed, run)) end,
    function() return (moth.no_grad(timed, step)) end,
    peer and function() return ask "forward" end,
  }
  local times = alternate(functions)
  show(name, "batch " .. batch, {times[1], captured = times[2], peer = times[3]})
end

local function load(name, path)
  if peer then assert(peer:ask("setup", name, 1)) end
  local function make() moth.models[name] {weights = path} end
  local times = alternate {
    function() return timed(make) end, peer and function() return ask("load", path) end,
  }
  show(name, "load", {times[1], peer = times[2]})
end

print("ratio: PyTorch's time / Moth's; above 1 Moth is faster")
for name in args.models:gmatch "[^,]+" do
  local net = moth.models[name]():eval()
  for batch in args.batches:gmatch "%d+" do forward(name, net, tonumber(batch)) end
  local path = folder .. "/weights.safetensors"
  moth.save(net:state_dict(), path)
  net = nil -- luacheck: ignore 311
  load(name, path)
  os.remove(path)
end
if peer then peer:stop() end
os.remove(folder)
