-- Word vectors: learned from pairs of neighbouring words in the King James Bible, with sparse
-- gradients. With --workers several threads write to the same vectors without locks. At the end the
-- program prints the most similar words.
-- Run it with: ./moth examples/12_word2vec.lua [--steps N] [--workers N]

local moth = require "moth"
local F, data = moth.nn.functional, moth.data

local folder = arg[0]:match "^.*/" or "./"
package.path = folder .. "?.lua;" .. package.path -- workers use this path too
local bible, skipgram = require "bible", require "skipgram"

local parser = require "argparse"("12_word2vec", "Learns vectors of words.")
parser:option("--steps", "Training steps.", "6000"):convert(tonumber)
parser:option("--batch-size", "Pairs of words per step.", "256"):convert(tonumber)
parser:option("--features", "Numbers in a vector.", "64"):convert(tonumber)
parser:option("--window", "Largest distance of neighbours.", "4"):convert(tonumber)
parser:option("--negatives", "Random words for each neighbour.", "5"):convert(tonumber)
parser:option("--lr", "Learning rate of SGD, for the sum over pairs.", "0.05"):convert(tonumber)
parser:option("--least", "Rarer words are left out.", "10"):convert(tonumber)
parser:option("--seed", "Seed of the random numbers.", "1"):convert(tonumber)
parser:option("--workers", "Threads that train at once; 0: only this one.", "0"):convert(tonumber)
local args = parser:parse()

moth.manual_seed(args.seed)
math.randomseed(args.seed)

-- ---- words as numbers ----

local read = bible.read()
local counts, list = {}, {}
for word in read.text:lower():gmatch "%a+" do
  counts[word] = (counts[word] or 0) + 1
  list[#list + 1] = word
end
local vocabulary, place = {}, {}
for word, n in pairs(counts) do
  if n >= args.least then vocabulary[#vocabulary + 1] = word end
end
table.sort(vocabulary, function(a, b)
  return counts[a] > counts[b] or (counts[a] == counts[b] and a < b)
end)
local often = moth.zeros(#vocabulary)
for i, word in ipairs(vocabulary) do
  place[word] = i
  often[i] = counts[word]
end

-- Most occurrences of frequent words are skipped: these words carry little information.
local ids = {}
for _, word in ipairs(list) do
  local share = place[word] and counts[word] / #list
  if share and math.random() < math.sqrt(1e-3 / share) then ids[#ids + 1] = place[word] end
end
local text = moth.tensor(ids, {dtype = moth.int64})
print(("%d words, %d of them different; %d kept"):format(#list, #vocabulary, #ids))

-- ---- training ----

local words = moth.rand(#vocabulary, args.features):sub_(0.5):div_(args.features)
local neighbours = moth.zeros(#vocabulary, args.features)
local few = math.min(#vocabulary / 50, 1) -- with few words, a step contains a word many times
local training = skipgram.Training(words, neighbours, text, often:pow(0.75), {
  steps = args.steps, batch_size = args.batch_size, window = args.window, lr = args.lr * few,
  negatives = args.negatives})

-- The current vectors; workers change them too.
local function loss_here()
  return moth.no_grad(function()
    local sum = 0
    for _ = 1, 10 do sum = sum + training.net(training:draw()):item() end
    return sum / 10 / args.batch_size
  end)
end

local first = loss_here()
local bar = moth.progress(data.DataLoader {training, num_workers = args.workers})
for loss in bar do bar:set_postfix{loss = loss} end
local last = loss_here()

-- ---- what was learned ----

local unit = F.normalize(words, {dim = 2})
for _, word in ipairs {"king", "sea", "bread", "father", "sword"} do
  if place[word] then
    local _, at = unit:mv(unit[place[word]]):topk(math.min(6, #vocabulary))
    local near = {}
    for i, id in ipairs(at:tolist()) do near[i] = vocabulary[id] end
    print(("%-7s is near to %s"):format(word, table.concat(near, ", ", 2)))
  end
end
print(("loss of a pair: %.3f at first, %.3f now"):format(first, last))
assert(last == last, "the vectors left all bounds")
assert(args.steps < 500 or last < 0.9 * first, "nothing was learned")
