-- Text generation: an LSTM reads the King James Bible letter by letter, learns to predict the next
-- letter, and then writes text.
-- Run it with: ./moth examples/05_char_lstm.lua [--steps N] [--write N]

local moth = require "moth"
local nn, F, optim = moth.nn, moth.nn.functional, moth.optim
local bible = dofile((arg[0]:match "^.*/" or "./") .. "bible.lua")

local parser = require "argparse"("05_char_lstm", "Learns to write letter by letter.")
parser:option("--steps", "Training steps.", "1000"):convert(tonumber)
parser:option("--batch-size", "Windows per step.", "32"):convert(tonumber)
parser:option("--length", "Letters per window.", "64"):convert(tonumber)
parser:option("--lr", "Learning rate of Adam.", "0.003"):convert(tonumber)
parser:option("--seed", "Seed of the random numbers.", "1"):convert(tonumber)
parser:option("--write", "Letters to write at the end.", "300"):convert(tonumber)
parser:option("--device", "Device: cpu or cuda.", "cpu")
local args = parser:parse()

moth.manual_seed(args.seed)
math.randomseed(args.seed)

local text = bible.read()

-- ---- the network ----

local Writer = nn.class("Writer", nn.Module)

function Writer:init(symbols)
  self.embedding = nn.Embedding(symbols, 64)
  self.lstm = nn.LSTM{64, 128, batch_first = true}
  self.out = nn.Linear(128, symbols)
end

--- Letters (N, L) -> scores of the next letters (N, L, symbols), and the final state.
function Writer:forward(letters, state)
  local out, after = self.lstm(self.embedding(letters), state)
  return self.out(out), after
end

local net = Writer(text.count):to(args.device)
local optimizer = optim.Adam(net:parameters(), {lr = args.lr})
local count = 0
for _, p in ipairs(net:parameters()) do count = count + p:numel() end
print(net)
print(count .. " parameters")

local function loss_of(part)
  local x, y = bible.windows(part, args.batch_size, args.length)
  local scores = net(x:to(args.device))
  return F.cross_entropy(scores:flatten(1, 2), y:to(args.device):flatten())
end

-- Mean loss over 20 batches of the validation text, in nats per letter.
local function validate()
  net:eval()
  local sum = 0
  moth.no_grad(function()
    for _ = 1, 20 do
      moth.scope(function() sum = sum + loss_of(text.valid):item() end)
    end
  end)
  net:train()
  return sum / 20
end

-- ---- training ----

local began, validation = os.clock(), nil
for step = 1, args.steps do
  moth.scope(function()
    optimizer:zero_grad()
    local loss = loss_of(text.train)
    loss:backward()
    nn.utils.clip_grad_norm_(net:parameters(), 1)
    optimizer:step()
  end)
  if step == 100 or step % 250 == 0 or step == args.steps then
    local seconds = os.clock() - began
    validation = validate()
    print(("step %5d  validation loss %.3f  %.1f ms per step"):format(step, validation,
      1000 * seconds / step))
  end
end

-- ---- writing ----

-- Samples letters one at a time from the predicted probabilities. The state of the LSTM is the
-- input of the next step.
local function write(start, n)
  return moth.no_grad(function()
    net:eval()
    local ids, state = {}, nil
    for letter in start:gmatch "." do
      ids[#ids + 1] = text.symbols:find(letter, 1, true)
    end
    local next_ids = ids
    for _ = 1, n do
      moth.scope(function()
        local letters = moth.tensor({next_ids}, {dtype = moth.int64, device = args.device})
        local scores, after = net(letters, state)
        state = {moth.keep(after[1]), moth.keep(after[2])}
        local drawn = F.softmax(scores[{1, -1}]:cpu() / 0.7, 1):multinomial(1):item()
        ids[#ids + 1], next_ids = drawn, {drawn}
      end)
    end
    return bible.spell(text.symbols, ids)
  end)
end

print(write(text.text:sub(1, 16), args.write))
local peak = args.device == "cpu" and moth.memory().peak_bytes or moth.cuda.max_memory_allocated()
print(("peak memory of tensors: %.1f MB"):format(peak / 1e6))
assert(validation < math.log(text.count), "nothing was learned")
assert(not text.real or args.steps < 1000 or validation < 1.66, "less was learned than expected")
