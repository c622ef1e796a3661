-- The outcome of a call with one unusual argument stays as it is: the whole text of the error, or
-- the dtypes and sizes of the results. Every public function and class is called.
-- spec/golden/outcomes.txt has a checksum of the outcomes of each argument. After an intended
-- change, write it again, and read the differences of the outcomes in full:
--
--     MOTH_OUTCOMES=/tmp/before ./moth test spec/face/outcomes_spec.lua     before the change
--     MOTH_OUTCOMES=/tmp/after ./moth test spec/face/outcomes_spec.lua      after it
--     diff /tmp/before /tmp/after; cp /tmp/after.sums spec/golden/outcomes.txt

local moth = require "moth"
local class = require "moth.base.class"
local mistaken = require "spec.support.mistaken_calls"

local FILE = "spec/golden/outcomes.txt"

-- ---- outcomes as texts ----

-- A text without what differs between runs: addresses, numbers of handles, folders.
local function stable(text)
  text = tostring(text):gsub("\nstack traceback.*", ""):gsub("0x%x+", "ADDRESS")
  return (text:gsub("^[^\n]-%.lua:%d+: ", ""):gsub("[%w_./-]*/[%w_.-]+%.lua:%d+", "PLACE"))
end

local function results_text(...)
  local list = {}
  local function add(value, depth)
    if moth.is_tensor(value) then
      list[#list + 1] = tostring(value.dtype) .. tostring(value.shape)
    elseif class.isinstance(value, moth.nn.Module) then
      list[#list + 1] = stable(value)
    elseif type(value) == "table" and getmetatable(value) == nil and depth < 3 then
      for i = 1, math.min(#value, 8) do add(value[i], depth + 1) end
    else
      list[#list + 1] = type(value)
    end
  end
  for i = 1, select("#", ...) do add((select(i, ...)), 1) end
  return table.concat(list, " ")
end

-- A checksum of 32 bits (FNV-1a).
local function sum(text)
  local hash = 0x811c9dc5
  for i = 1, #text do
    hash = bit.bxor(hash, text:byte(i))
    local low, high = hash % 65536, math.floor(hash % 2 ^ 32 / 65536)
    hash = (low * 0x193 + (high * 0x193 + low * 0x100) % 65536 * 65536) % 2 ^ 32
  end
  return ("%08x"):format(hash)
end

-- ---- the calls ----

local WRONG = {{"0", 0}, {"empty", function(x)
  return moth.zeros({0}, {dtype = moth.is_tensor(x) and x.dtype or nil})
end}}
local TAKEN = {["-1"] = true, rank = true, size = true} -- others have the texts of these
for _, row in ipairs(mistaken.WRONG) do
  if TAKEN[row[1]] then WRONG[#WRONG + 1] = row end
end

-- Calls that train, or whose outcomes depend on the machine.
local SKIP = {"^fit$", "^lr_find$", "^DataLoader$"}

local SPACES = {"transforms", "metrics", "audio", "nn.utils.parametrizations", "nn.utils.prune",
  "optim.swa_utils"}
for _, space in ipairs(mistaken.SPACES) do SPACES[#SPACES + 1] = space end

describe("the outcome of a call with an unusual argument", function()
  it("is the recorded one", function()
    local lines, keys, by_key = {}, {}, {}
    mistaken.each {spaces = SPACES, methods = false, skip = SKIP, wrong = WRONG,
      describe = results_text,
      visit = function(title, _, argument, wrong, _, fine, result)
        local key = title .. " " .. argument.name
        if not by_key[key] then
          by_key[key] = {}
          keys[#keys + 1] = key
        end
        local line = ("%s: %s"):format(wrong, fine and result or "raises " .. stable(result))
        table.insert(by_key[key], line)
        lines[#lines + 1] = key .. " " .. line
      end}
    local sums, known = {}, {}
    for _, key in ipairs(keys) do sums[#sums + 1] = key .. " " .. sum(table.concat(by_key[key],
      "\n")) end
    local path = os.getenv "MOTH_OUTCOMES"
    if path then
      local file = assert(io.open(path, "w"))
      file:write(table.concat(lines, "\n"), "\n")
      file:close()
      file = assert(io.open(path .. ".sums", "w"))
      file:write(table.concat(sums, "\n"), "\n")
      file:close()
    end
    for line in io.lines(FILE) do known[line:match "^(.*) %x+$"] = line end
    local wrong = {}
    for i, key in ipairs(keys) do
      if known[key] ~= sums[i] then
        wrong[#wrong + 1] = key .. ":\n  " .. table.concat(by_key[key], "\n  ")
      end
      known[key] = nil
    end
    for key in pairs(known) do wrong[#wrong + 1] = key .. " is not called any more" end
    if #wrong > 0 then error(#wrong .. " outcomes are new:\n" .. table.concat(wrong, "\n", 1,
      math.min(#wrong, 10))) end
  end)
end)
