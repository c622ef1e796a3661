--- moth_complete.lua -- completes the next word by a small network, which learns the words of the
-- buffer in the background of the editor's loop. The network sees the four words before the cursor.

local moth = require "moth"
local nn, F, optim = moth.nn, moth.nn.functional, moth.optim
local api = vim.api

local WORDS, CONTEXT, BATCH = 2048, 4, 64 -- words that the network knows, at most
local SLICE, PERIOD = 0.002, 10 -- seconds of work in each period of milliseconds
local STEPS = 3000 -- training steps after each change of the buffer

local plugin = {}
local models = {} -- buffer -> model

moth.set_num_threads(1)

-- The words and marks of a text.
local function split(text)
  local list = {}
  for word, mark in text:gmatch "([%w_]*)([^%w_%s]?)" do
    if word ~= "" then list[#list + 1] = word end
    if mark ~= "" then list[#list + 1] = mark end
  end
  return list
end

local function new_model()
  local net = nn.Sequential(nn.Embedding(WORDS, 16), nn.Flatten(), nn.Linear(CONTEXT * 16, 64),
    nn.Tanh(), nn.Linear(64, WORDS))
  local optimizer = optim.Adam(net:parameters(), {lr = 3e-3})
  local step = moth.capture(function(rows)
    local loss = F.cross_entropy(net(rows:narrow(2, 1, CONTEXT)), rows:select(2, CONTEXT + 1))
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
    return loss
  end)
  return {net = net, step = step, names = {"?"}, ids = {}, left = 0, tick = -1, steps = 0}
end

-- The ids of a list of words, after CONTEXT times the id of unknown words.
local function ids_of(model, words, learn)
  local list = {}
  for i = 1, CONTEXT do list[i] = 1 end
  for _, word in ipairs(words) do
    if learn and not model.ids[word] and #model.names < WORDS then
      table.insert(model.names, word)
      model.ids[word] = #model.names
    end
    list[#list + 1] = model.ids[word] or 1
  end
  return list
end

-- Reads the buffer if it has changed.
local function read(model, buffer)
  local tick = api.nvim_buf_get_changedtick(buffer)
  if tick == model.tick then return end
  local text = table.concat(api.nvim_buf_get_lines(buffer, 0, 20000, false), "\n")
  local ids = moth.tensor(ids_of(model, split(text), true), {dtype = moth.int64})
  model.tick, model.left = tick, STEPS
  model.rows = ids:numel() > CONTEXT and ids:unfold(1, CONTEXT + 1, 1) -- (words, CONTEXT + 1)
end

-- Training steps on random places of the buffer. moth.budget pauses and continues this function.
local function train(model)
  while model.left > 0 and model.rows do
    local rows = model.rows -- `read` may replace them during a pause
    model.loss = moth.scope(function()
      local places = moth.randint(1, rows:size(1) + 1, {BATCH})
      return model.step(rows:index_select(1, places)):item()
    end)
    model.left, model.steps = model.left - 1, model.steps + 1
  end
end

local function work(buffer)
  local model = models[buffer]
  if not model then return end
  if not api.nvim_buf_is_valid(buffer) then return plugin.stop(buffer) end
  model.turn = (model.turn or 0) + 1
  if model.turn % 100 == 1 then read(model, buffer) end -- once a second
  local ok, problem = pcall(moth.budget, SLICE, model.train, model)
  if not ok then
    plugin.stop(buffer)
    api.nvim_err_writeln("moth_complete: " .. problem)
  end
end

--- Starts to learn a buffer. CTRL-X CTRL-U completes there.
function plugin.start(buffer)
  if models[buffer] then return end
  local model = new_model()
  models[buffer] = model
  model.train = function(...) return train(...) end -- moth.budget knows work by its function
  model.timer = vim.loop.new_timer()
  model.timer:start(0, PERIOD, vim.schedule_wrap(function() work(buffer) end))
  api.nvim_buf_set_option(buffer, "completefunc", "v:lua.require'moth_complete'.complete")
end

function plugin.stop(buffer)
  local model = models[buffer]
  if not model then return end
  models[buffer] = nil
  model.timer:close()
  moth.cancel_budget(model.train)
end

--- Steps so far, and the loss of the last one.
function plugin.state(buffer)
  local model = models[buffer]
  return model and model.steps or 0, model and model.loss
end

--- The words that begin with `base`, the likeliest first, after a text.
function plugin.words(buffer, before, base)
  local model, found = models[buffer], {}
  if not model then return found end
  local ids = ids_of(model, split(before))
  local context = {unpack(ids, #ids - CONTEXT + 1)}
  local scores = moth.no_grad(moth.scope, function()
    return model.net(moth.tensor({context}, {dtype = moth.int64})):tolist()[1]
  end)
  for id, name in ipairs(model.names) do
    if name:find "^[%a_]" and name:sub(1, #base) == base then found[#found + 1] = id end
  end
  table.sort(found, function(a, b) return scores[a] > scores[b] end)
  for i = #found, 1, -1 do found[i] = i <= 10 and model.names[found[i]] or nil end
  return found
end

--- The completefunc of the buffer (:help complete-functions).
function plugin.complete(findstart, base)
  local row, column = unpack(api.nvim_win_get_cursor(0))
  local line = api.nvim_get_current_line():sub(1, column)
  if findstart == 1 then return #line:match "^(.-)[%w_]*$" end
  local above = api.nvim_buf_get_lines(0, math.max(0, row - 4), row - 1, false)
  return plugin.words(api.nvim_get_current_buf(), table.concat(above, "\n") .. "\n" .. line, base)
end

return plugin
