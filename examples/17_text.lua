-- Text classification: which part of the Bible is a verse from? The net adds the vectors of words
-- and of pairs of neighboring words (nn.EmbeddingBag); one linear layer follows. Whole chapters are
-- kept for the test, because verses of one chapter are similar.
-- Run it with: ./moth examples/17_text.lua [--epochs N] [--every N] ...

local moth = require "moth"
local nn, F, optim, data = moth.nn, moth.nn.functional, moth.optim, moth.data

package.path = (arg[0]:match "^.*/" or "./") .. "?.lua;" .. package.path
local bible = require "bible"

local parser = require "argparse"("17_text", "Learns from which part of the Bible a verse is.")
parser:option("--epochs", "Passes over the training verses.", "4"):convert(tonumber)
parser:option("--batch-size", "Verses per step.", "64"):convert(tonumber)
parser:option("--lr", "Learning rate of Adam.", "0.003"):convert(tonumber)
parser:option("--features", "Numbers in the vector of a word.", "64"):convert(tonumber)
parser:option("--least", "Rarer words and pairs are left out.", "3"):convert(tonumber)
parser:option("--every", "Use every n-th verse only.", "1"):convert(tonumber)
parser:option("--seed", "Seed of the random numbers.", "1"):convert(tonumber)
local args = parser:parse()

moth.manual_seed(args.seed)

-- ---- the verses ----

local PARTS = {"Law", "History", "Poetry", "Prophets", "Gospels and Acts", "Letters"}
local FIRST = {1, 6, 18, 23, 40, 45} -- the number of the first book of each part

local function part_of(book)
  for part = #FIRST, 1, -1 do
    if book >= FIRST[part] then return part end
  end
end

local verses, real = bible.verses()
local train, test, last, chapters = {}, {}, nil, 0
for i, verse in ipairs(verses) do
  if verse.chapter ~= last then last, chapters = verse.chapter, chapters + 1 end
  if i % args.every == 0 then table.insert(chapters % 5 == 0 and test or train, verse) end
end

-- ---- words as numbers ----

-- Calls f for each word and each pair of neighboring words.
local function each_token(text, f)
  local before
  for word in text:lower():gmatch "%a+" do
    f(word)
    if before then f(before .. " " .. word) end
    before = word
  end
end

local counts, place, tokens = {}, {}, 1 -- token 1 begins each verse
for _, verse in ipairs(train) do
  each_token(verse.text, function(token)
    counts[token] = (counts[token] or 0) + 1
    if counts[token] == args.least then
      tokens = tokens + 1
      place[token] = tokens
    end
  end)
end

-- A list of samples: the numbers of a verse's tokens, and its part.
local function dataset(list)
  local set = {}
  for i, verse in ipairs(list) do
    local ids = {1}
    each_token(verse.text, function(token) ids[#ids + 1] = place[token] end)
    set[i] = {moth.tensor(ids, {dtype = moth.int64}), part_of(verse.book) * 1LL}
  end
  return set
end

-- Joins verses of different lengths. offsets: where each begins, from 0 as in PyTorch.
local function collate(samples)
  local ids, offsets, parts, at = {}, {}, {}, 0
  for i, sample in ipairs(samples) do
    ids[i], offsets[i], parts[i] = sample[1], at, sample[2]
    at = at + #sample[1]
  end
  return moth.cat(ids), moth.tensor(offsets, {dtype = moth.int64}), moth.tensor(parts)
end

local train_loader = data.DataLoader{dataset(train), batch_size = args.batch_size, shuffle = true,
  collate_fn = collate}
local test_loader = data.DataLoader{dataset(test), batch_size = 1000, collate_fn = collate}
print(("%d verses for training, %d for testing, %d words and pairs"):format(#train, #test, tokens))

-- ---- training and testing ----

local Net = nn.class("Net", nn.Module)

function Net:init()
  self.words = nn.EmbeddingBag(tokens, args.features)
  self.drop, self.out = nn.Dropout(0.3), nn.Linear(args.features, #PARTS)
end

function Net:forward(ids, offsets) return self.out(self.drop(self.words(ids, offsets))) end

local net = Net()
local optimizer = optim.Adam(net:parameters(), {lr = args.lr})

local function test_accuracy()
  local right = 0
  net:eval()
  moth.no_grad(function()
    for ids, offsets, parts in test_loader do
      right = right + net(ids, offsets):argmax(2):eq(parts):sum():item()
    end
  end)
  return 100 * right / #test
end

local accuracy
for epoch = 1, args.epochs do
  net:train()
  local bar = moth.progress(train_loader, {desc = "epoch " .. epoch, unit = "batches"})
  for ids, offsets, parts in bar do
    moth.scope(function()
      optimizer:zero_grad()
      local loss = F.cross_entropy(net(ids, offsets), parts)
      loss:backward()
      optimizer:step()
      bar:set{loss = loss:item()}
    end)
  end
  accuracy = test_accuracy()
  print(("epoch %d  test accuracy %.2f %%"):format(epoch, accuracy))
end

local function guess(text)
  local ids, offsets = collate{dataset{{text = text, book = 1}}[1]}
  return PARTS[tonumber(net(ids, offsets):argmax(2):item())]
end
for _, text in ipairs{"Praise ye the LORD with the harp.", "And Jesus went unto the sea."} do
  print(("%-40s %s"):format(text, guess(text)))
end

-- The default options reach 74.3 %; PyTorch's EmbeddingBag, with the same words and net, 74.0 %.
local full = real and args.every == 1 and args.epochs >= 4
local few = args.epochs * #train < 7000 -- too few verses to learn from
assert(few or accuracy > (full and 72 or 40), "nothing was learned")
