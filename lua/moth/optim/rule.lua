--- rule.lua -- optimizers by their options, which are the arguments of their constructors too.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local lib = require "moth.binding.lib"
local Optimizer = require "moth.optim.optimizer"

local rule = {}

-- ---- options that many have ----

rule.WEIGHT_DECAY = {"float", "weight_decay", "share of the parameter added to its gradient",
                     default = 0}
rule.MAXIMIZE = {"bool", "maximize", "climb instead of descend", default = false}

function rule.lr(default)
  return {"float", "lr", "learning rate", default = default, single = true}
end

function rule.eps(default)
  return {"float", "eps", "keeps the division from 0", default = default}
end

-- ---- classes ----

local PARAMS = {"params", "params", "tensors, or groups of them with options"}

-- What an option is that was left out: a list of its own.
local function first_of(row)
  if not lib.is_plain(row.first) then return row.first end
  return {unpack(row.first)}
end

-- PyTorch's ways to run a step, of which Moth has one: fused, and fit to be captured.
local ACCEPTED = {}
for i, name in ipairs {"foreach", "fused", "capturable"} do
  ACCEPTED[i] = {"bool", name, "accepted; a step is fused and can be captured", optional = true}
end

--- What a constructor takes: parameters, options, and what is accepted and changes nothing.
function rule.signature(name, rows)
  local all = {PARAMS, unpack(rows)}
  for _, row in ipairs(ACCEPTED) do all[#all + 1] = row end
  return (define.signature(name, all))
end

--- A class of optimizers.
-- @param rows  the options, as rows of define; `first`: what one without a default begins as
function rule.new(name, rows)
  local made = class(name, Optimizer)
  made.keeps_own_state = true
  made.signature = rule.signature(name, rows)

  function made:init(params, ...)
    local options = {}
    for i, row in ipairs(rows) do
      local value = (select(i, ...))
      if value == nil then value = first_of(row) end
      options[row[2]] = value
    end
    Optimizer.init(self, params, options)
  end

  return made
end

return rule
