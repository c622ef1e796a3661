-- A small GPT, written in full: attention, blocks, training with AdamW, text generation. It learns
-- the King James Bible letter by letter (Radford et al., 2018; the architecture of nanoGPT).
-- Run it with: ./moth examples/06_gpt.lua [--steps N] [--write N]

local moth = require "moth"
local nn, F, optim = moth.nn, moth.nn.functional, moth.optim
local bible = dofile((arg[0]:match "^.*/" or "./") .. "bible.lua")

local parser = require "argparse"("06_gpt", "A small GPT on the King James Bible.")
parser:option("--steps", "Training steps.", "1000"):convert(tonumber)
parser:option("--batch-size", "Windows per step.", "16"):convert(tonumber)
parser:option("--context", "Letters per window.", "64"):convert(tonumber)
parser:option("--layers", "Number of blocks.", "4"):convert(tonumber)
parser:option("--width", "Features per letter.", "128"):convert(tonumber)
parser:option("--heads", "Attention heads per block.", "4"):convert(tonumber)
parser:option("--lr", "Learning rate of AdamW.", "0.001"):convert(tonumber)
parser:option("--seed", "Seed of the random numbers.", "1"):convert(tonumber)
parser:option("--write", "Letters to write at the end.", "300"):convert(tonumber)
parser:option("--device", "Device: cpu or cuda.", "cpu")
local args = parser:parse()

moth.manual_seed(args.seed)
math.randomseed(args.seed)

local text = bible.read()

-- ---- the network ----

local Attention = nn.class("Attention", nn.Module)

function Attention:init(width, heads)
  self.heads = heads
  self.qkv = nn.Linear(width, 3 * width)
  self.out = nn.Linear(width, width)
end

function Attention:forward(x)
  local n, length, width = x:size(1), x:size(2), x:size(3)
  local split = self.qkv(x):view(n, length, 3, self.heads, width / self.heads)
  local q, k, v = unpack(split:permute(3, 1, 4, 2, 5):unbind(1)) -- each (n, heads, length, -1)
  local seen = F.scaled_dot_product_attention{q, k, v, is_causal = true}
  return self.out(seen:transpose(2, 3):reshape(n, length, width))
end

local Block = nn.class("Block", nn.Module)

function Block:init(width, heads)
  self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
  self.norm2 = nn.LayerNorm(width)
  self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
end

function Block:forward(x)
  x = x + self.attention(self.norm1(x))
  return x + self.mlp(self.norm2(x))
end

local GPT = nn.class("GPT", nn.Module)

function GPT:init(symbols)
  self.token = nn.Embedding(symbols, args.width)
  self.place = nn.Embedding(args.context, args.width)
  self.blocks = nn.Sequential()
  for _ = 1, args.layers do self.blocks:append(Block(args.width, args.heads)) end
  self.norm = nn.LayerNorm(args.width)
  self.head = nn.Linear{args.width, symbols, bias = false}
  self:apply(function(module)
    if not nn.isinstance(module, nn.Linear) and not nn.isinstance(module, nn.Embedding) then
      return
    end
    nn.init.normal_(module.weight, 0, 0.02)
    if module.bias then nn.init.zeros_(module.bias) end
  end)
end

--- Letters (N, L) -> scores of the next letters (N, L, symbols).
function GPT:forward(letters)
  local places = moth.range{1, letters:size(2), device = letters.device}
  local x = self.token(letters) + self.place(places)
  return self.head(self.norm(self.blocks(x)))
end

local net = GPT(text.count):to(args.device)
local optimizer = optim.AdamW(net:parameters(), {lr = args.lr, weight_decay = 0.01})
local count = 0
for _, p in ipairs(net:parameters()) do count = count + p:numel() end
print(net)
print(count .. " parameters")

local function loss_of(part, n)
  local x, y = bible.windows(part, n, args.context)
  local scores = net(x:to(args.device))
  return F.cross_entropy(scores:flatten(1, 2), y:to(args.device):flatten())
end

-- Mean loss over 20 batches of the validation text, in nats per letter.
local function validate()
  local sum = 0
  moth.no_grad(function()
    for _ = 1, 20 do
      moth.scope(function() sum = sum + loss_of(text.valid, 32):item() end)
    end
  end)
  return sum / 20
end

-- ---- training ----

local began, validation = os.clock(), nil
for step = 1, args.steps do
  moth.scope(function()
    optimizer:zero_grad()
    loss_of(text.train, args.batch_size):backward()
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

local ids = {}
for letter in text.text:sub(1, 16):gmatch "." do
  ids[#ids + 1] = text.symbols:find(letter, 1, true)
end
moth.no_grad(function()
  for _ = 1, args.write do
    moth.scope(function()
      local window = {unpack(ids, math.max(1, #ids - args.context + 1))}
      local scores = net(moth.tensor({window}, {dtype = moth.int64, device = args.device}))
      ids[#ids + 1] = F.softmax(scores[{1, -1}]:cpu() / 0.7, 1):multinomial(1):item()
    end)
  end
end)
print(bible.spell(text.symbols, ids))
local peak = args.device == "cpu" and moth.memory().peak_bytes or moth.cuda.max_memory_allocated()
print(("peak memory of tensors: %.1f MB"):format(peak / 1e6))
assert(validation < math.log(text.count), "nothing was learned")
assert(not text.real or args.steps < 1000 or validation < 1.82, "less was learned than expected")
