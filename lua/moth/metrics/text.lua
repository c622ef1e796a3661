--- text.lua -- metrics of text: Perplexity, BLEUScore.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local inputs = require "moth.metrics.inputs"
local lib = require "moth.binding.lib"
local Metric = require "moth.metrics.metric"

local text = {}

local function zeros(shape)
  local moth = require "moth"
  return moth.zeros(shape, {dtype = moth.float64})
end

--- exp of the mean negative log-likelihood of tokens: `preds` are logits (N, L, V), `target` token
-- ids from 1 to V (N, L).
local Perplexity = class("Perplexity", Metric)
text.Perplexity = Perplexity
Perplexity.higher_is_better = false
Perplexity.signature = define.signature("Perplexity", {
  {"int", "ignore_index", "targets of this value are left out", optional = true},
})

function Perplexity:init(ignore_index)
  self.ignore_index = ignore_index
  self:add_state("total_log_probs", zeros {}, "sum")
  self:add_state("count", require("moth").tensor(0LL), "sum")
end

function Perplexity:update(preds, target)
  inputs.tensors("Perplexity", preds, target)
  if preds:dim() ~= 3 or target:dim() ~= 2 or preds:size(1) ~= target:size(1)
      or preds:size(2) ~= target:size(2) then
    errors.argument("Perplexity", "preds", ("(N, L, V) for a target (N, L) is needed, got %s for "
      .. "%s"):format(tostring(preds.shape), tostring(target.shape)), "E_SHAPE")
  elseif not preds:is_floating_point() then
    errors.argument("Perplexity", "preds", "logits are needed, got " .. errors.describe(preds),
      "E_DTYPE")
  elseif target:is_floating_point() then
    errors.argument("Perplexity", "target", "integer token ids are needed, got "
      .. errors.describe(target), "E_DTYPE")
  end
  local moth, size = require "moth", preds:size(3)
  inputs.in_range("Perplexity", "target", target, 1, size, self.ignore_index)
  target = target:flatten():to(moth.int64)
  local valid = self.ignore_index and target:ne(self.ignore_index)
  if valid then target = target:where(valid, 1) end
  local logs = preds:reshape(-1, size):log_softmax(2):gather(2, target:unsqueeze(2)):squeeze(2)
  if valid then logs = logs:where(valid, 0) end
  self.total_log_probs:sub_(logs:sum({dtype = moth.float64}))
  self.count:add_(valid and valid:sum() or target:numel())
end

function Perplexity:compute()
  return (self.total_log_probs / self.count):exp():to(require("moth").get_default_dtype())
end

-- ---- BLEU ----

--- BLEU (Papineni et al., 2002): the n-grams of translations that are in their references.
-- metric:update(preds, target): a list of sentences, and for each a list of references (or one).
local BLEUScore = class("BLEUScore", Metric)
text.BLEUScore = BLEUScore
BLEUScore.higher_is_better = true
BLEUScore.signature = define.signature("BLEUScore", {
  {"int", "n_gram", "the longest n-grams", default = 4, bounds = {1}},
  {"bool", "smooth", "add 1 to the counts of all n-grams of more than one word?", default = false},
  {"any", "weights", "the weight of each n; default: equal", optional = true},
})

function BLEUScore:init(n_gram, smooth, weights)
  if weights and (not lib.is_plain(weights) or #weights ~= n_gram) then
    errors.refuse("BLEUScore", "weights", ("n_gram = %d numbers are needed"):format(n_gram),
      weights)
  end
  self.n_gram, self.smooth, self.weights = n_gram, smooth, weights
  self:add_state("preds_len", zeros {}, "sum")
  self:add_state("target_len", zeros {}, "sum")
  self:add_state("numerator", zeros {n_gram}, "sum")
  self:add_state("denominator", zeros {n_gram}, "sum")
end

local function words_of(sentence)
  local list = {}
  for word in sentence:gmatch "%S+" do list[#list + 1] = word end
  return list
end

-- Counts n-grams: a list, for each n a table of counts by text.
local function ngrams(words, most)
  local found = {}
  for n = 1, most do
    local counts = {}
    for i = 1, #words - n + 1 do
      local gram = table.concat(words, " ", i, i + n - 1)
      counts[gram] = (counts[gram] or 0) + 1
    end
    found[n] = counts
  end
  return found
end

-- Adds the counts of one sentence to lists of numbers.
local function add_sentence(self, pred, references, matches, all)
  local words, best, length = words_of(pred), math.huge, 0
  local known = {}
  for n = 1, self.n_gram do known[n] = {} end
  for _, reference in ipairs(references) do
    local other = words_of(reference)
    local difference = math.abs(#other - #words)
    if difference < best then best, length = difference, #other end
    for n, counts in ipairs(ngrams(other, self.n_gram)) do
      for gram, count in pairs(counts) do
        known[n][gram] = math.max(known[n][gram] or 0, count)
      end
    end
  end
  for n, counts in ipairs(ngrams(words, self.n_gram)) do
    for gram, count in pairs(counts) do
      matches[n] = matches[n] + math.min(count, known[n][gram] or 0)
      all[n] = all[n] + count
    end
  end
  return #words, length
end

local function check_texts(preds, target)
  if not lib.is_plain(preds) then
    errors.refuse("BLEUScore", "preds", "a list of sentences is needed", preds, "E_TYPE")
  elseif not lib.is_plain(target) or #target ~= #preds then
    errors.refuse("BLEUScore", "target", ("a list of %d lists of sentences is needed"):format(
      #preds), target, "E_TYPE")
  end
  for i, pred in ipairs(preds) do
    if type(pred) ~= "string" then
      errors.refuse("BLEUScore", "preds", "a list of sentences is needed", pred, "E_TYPE")
    end
    local references = type(target[i]) == "string" and {target[i]} or target[i]
    for _, reference in ipairs(lib.is_plain(references) and references or {references}) do
      if type(reference) ~= "string" then
        errors.refuse("BLEUScore", "target", "lists of sentences are needed", reference, "E_TYPE")
      end
    end
  end
end

function BLEUScore:update(preds, target)
  if type(preds) == "string" then preds = {preds} end
  check_texts(preds, target)
  local matches, all, mine, theirs = {}, {}, 0, 0
  for n = 1, self.n_gram do matches[n], all[n] = 0, 0 end
  for i, pred in ipairs(preds) do
    local references = type(target[i]) == "string" and {target[i]} or target[i]
    local length, other = add_sentence(self, pred, references, matches, all)
    mine, theirs = mine + length, theirs + other
  end
  local moth = require "moth"
  local options = {dtype = moth.float64, device = self.numerator.device}
  self.preds_len:add_(mine)
  self.target_len:add_(theirs)
  self.numerator:add_(moth.tensor(matches, options))
  self.denominator:add_(moth.tensor(all, options))
end

function BLEUScore:compute()
  local moth, sum = require "moth", 0
  local matches, all = self.numerator:tolist(), self.denominator:tolist()
  for n = 1, self.n_gram do
    if matches[n] == 0 then return moth.tensor(0) end
    local more = self.smooth and n > 1 and 1 or 0
    sum = sum + (self.weights and self.weights[n] or 1 / self.n_gram)
      * math.log((matches[n] + more) / (all[n] + more))
  end
  local mine, theirs = self.preds_len:item(), self.target_len:item()
  local penalty = mine > theirs and 1 or math.exp(1 - theirs / mine)
  return moth.tensor(penalty * math.exp(sum))
end

return text
