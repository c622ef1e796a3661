-- The model of example 12: word vectors that predict neighbouring words (skip-gram with negative
-- sampling, Mikolov et al., 2013), and a dataset whose elements are training runs. The gradients
-- are sparse: a step changes only the rows of its words. This file is a separate module, so that
-- the Lua states of worker threads can load it.

local moth = require "moth"
local nn, F, optim, data = moth.nn, moth.nn.functional, moth.optim, moth.data

local skipgram = {}

--- The scores of pairs of word and neighbour vectors, both (n, features).
local Model = nn.class("Model", nn.Module)
skipgram.Model = Model

function Model:init(words, neighbours)
  local function table_of(vectors)
    return nn.Embedding.from_pretrained {vectors, freeze = false, sparse = true}
  end
  self.words = table_of(words)
  self.neighbours = table_of(neighbours)
end

--- Words (B); a neighbour and K random words for each word, (B, 1 + K) -> the sum of losses.
function Model:forward(word, others)
  local scores = self.neighbours(others):matmul(self.words(word):unsqueeze(3)):squeeze(3)
  local wanted = moth.zeros_like(scores)
  wanted[{{}, 1}] = 1
  return F.binary_cross_entropy_with_logits(scores, wanted, {reduction = "sum"})
end

--- get(i) trains for a number of steps with a falling learning rate, and returns the mean loss of
-- a pair. All datasets with the same tensors train the same vectors: tensors are passed to
-- workers without a copy. If two workers write to a row at once, one step may be lost; with many
-- rows this is rare (Hogwild, Recht et al., 2011).
local Training = nn.class("Training", data.Dataset)
skipgram.Training = Training

local STEPS = 50 -- training steps in a get(i)

--- @param text     words as positions, (length)
-- @param chances  the probability of each word as a negative sample, (n)
-- @param options  steps, batch_size, window, negatives, lr
function Training:init(words, neighbours, text, chances, options)
  self.parts = {words, neighbours, text, chances, options}
  self.options = options
  self.net = Model(words, neighbours)
  self.optimizer = optim.SGD(self.net:parameters(), {lr = options.lr})
end

function Training:worker()
  return data.source("skipgram:Training", unpack(self.parts))
end

function Training:len() return math.ceil(self.options.steps / STEPS) end

function Training:draw()
  local _, _, text, chances, options = unpack(self.parts)
  local n, window = options.batch_size, options.window
  local at = moth.randint(window + 1, #text - window, {n})
  local side = moth.randint(0, 2, {n}) * 2 - 1
  local others = chances:multinomial(n * options.negatives, {replacement = true})
  local near = text[at + side * moth.randint(1, window + 1, {n})]
  return text[at], moth.cat({near:unsqueeze(2), others:view(n, -1)}, 2)
end

function Training:get(i)
  local lr, sum = self.options.lr, 0
  self.optimizer.param_groups[1].lr = lr * math.max(1 - i / self:len(), 0.01)
  for _ = 1, STEPS do
    moth.scope(function()
      local loss = self.net(self:draw())
      self.optimizer:zero_grad()
      loss:backward()
      self.optimizer:step()
      sum = sum + loss:item()
    end)
  end
  return sum / STEPS / self.options.batch_size
end

return skipgram
