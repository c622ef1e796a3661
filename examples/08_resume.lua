-- Resuming a run. The same training runs twice: once without a break, and once stopped in the
-- middle of an epoch and resumed by another process from a checkpoint. One safetensors file
-- contains the weights, momenta, schedule, random state and the position in the data, so both runs
-- end with the same bits.
-- Run it with: ./moth examples/08_resume.lua [--checkpoint FILE]

local moth = require "moth"
local nn, F, optim, data = moth.nn, moth.nn.functional, moth.optim, moth.data

local parser = require "argparse"("08_resume", "Stops a training and resumes it from a file.")
parser:option("--checkpoint", "File of the state.", os.tmpname())
parser:option("--stop-after", "Steps after which the run is cut off.", "37"):convert(tonumber)
parser:option("--epochs", "Passes over the data.", "4"):convert(tonumber)
parser:flag("--resume", "Continue from the checkpoint.")
parser:option("--result", "File for the final weights."):hidden(true)
parser:flag("--stop", "Stop at --stop-after."):hidden(true)
parser:option("--device", "Device: cpu or cuda.", "cpu")
local args = parser:parse()

-- ---- the complete state of a run ----

local Run = moth.class("Run")

function Run:init()
  moth.manual_seed(7)
  local t = moth.rand(600) * 9                                 -- two spirals
  local turn = (moth.arange(600) % 2) * math.pi
  local x = moth.stack({t * moth.cos(t + turn), t * moth.sin(t + turn)}, 2) / 9
  local y = moth.arange(600) % 2 + 1
  self.loader = data.DataLoader{data.TensorDataset(x, y), batch_size = 32, shuffle = true}
  self.net = nn.Sequential(nn.Linear(2, 64), nn.BatchNorm1d(64), nn.Tanh(), nn.Dropout(0.1),
    nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)):to(args.device)
  self.optimizer = optim.AdamW(self.net:parameters(), {lr = 0.01})
  self.scheduler = optim.lr_scheduler.CosineAnnealingLR(self.optimizer, args.epochs)
  self.epoch, self.steps = 1, 0
end

function Run:state()
  return {
    epoch = self.epoch, steps = self.steps,
    net = self.net:state_dict(), optimizer = self.optimizer:state_dict(),
    scheduler = self.scheduler:state_dict(), loader = self.loader:state_dict(),
    random = moth.get_rng_state(),
  }
end

function Run:load(state)
  self.epoch, self.steps = state.epoch, state.steps
  self.net:load_state_dict(state.net)
  self.optimizer:load_state_dict(state.optimizer)
  self.scheduler:load_state_dict(state.scheduler)
  self.loader:load_state_dict(state.loader)
  moth.set_rng_state(state.random)
end

--- Trains to the end, or saves and returns false after `stop_after` steps.
function Run:train(stop_after)
  while self.epoch <= args.epochs do
    for x, y in self.loader do
      local loss = moth.scope(function()
        self.optimizer:zero_grad()
        local off = F.cross_entropy(self.net(x:to(args.device)), y:to(args.device))
        off:backward()
        self.optimizer:step()
        return off:item()
      end)
      self.steps = self.steps + 1
      if self.steps == stop_after then
        moth.save(self:state(), args.checkpoint)
        print(("stopped in epoch %d after step %d, loss %.6f"):format(self.epoch, self.steps, loss))
        return false
      end
    end
    self.scheduler:step()
    print(("epoch %d  lr %.5f"):format(self.epoch, self.scheduler:get_last_lr()[1]))
    self.epoch = self.epoch + 1
  end
  return true
end

local run = Run()
if args.resume then
  run:load(moth.load(args.checkpoint))
  print(("resumed in epoch %d after step %d"):format(run.epoch, run.steps))
end
local done = run:train(args.stop and args.stop_after)
if args.result and done then moth.save(run.net:state_dict(), args.result) end
if args.stop or args.resume then return end

-- ---- the same run again, in two processes ----

local launcher = debug.getregistry()["moth.launcher"]
local result = os.tmpname()
local command = ("'%s' '%s' --checkpoint '%s' --epochs %d --stop-after %d --device %s ")
  :format(launcher and launcher.program or "moth", arg[0], args.checkpoint, args.epochs,
  args.stop_after, args.device)
assert(os.execute(command .. "--stop") == 0)
assert(os.execute(command .. "--resume --result '" .. result .. "'") == 0)

local other = moth.load(result)
os.remove(result)
for name, value in run.net:state_dict():items() do
  assert(value:cpu():equal(other[name]), name .. " differs")
end
print "the run in one piece and the resumed one are equal bit for bit"
