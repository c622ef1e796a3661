--- rule.lua -- defines optimizer classes by their options, which are also constructor arguments.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local lib = require "moth.binding.lib"
local Optimizer = require "moth.optim.optimizer"

local rule = {}

-- ---- common options ----

rule.WEIGHT_DECAY = {"float", "weight_decay", "the weight decay coefficient",
                     default = 0}
rule.MAXIMIZE = {"bool", "maximize", "maximize the objective?", default = false}

function rule.lr(default)
  return {"float", "lr", "learning rate", default = default, single = true}
end

function rule.eps(default)
  return {"float", "eps", "added to the divisor", default = default}
end

-- ---- classes ----

local PARAMS = {"params", "params", "tensors, or groups of tensors with options"}

-- Returns the default of an option; a table is copied.
local function first_of(row)
  if not lib.is_plain(row.first) then return row.first end
  return {unpack(row.first)}
end

-- PyTorch's options that select an implementation, for example fused and capturable. Moth has one
-- implementation.
local ACCEPTED = {}
for i, name in ipairs {"foreach", "fused", "capturable"} do
  ACCEPTED[i] = {"bool", name, "no effect: a step is always fused and can be captured",
    optional = true}
end

--- Returns the arguments of a constructor: parameters, options, and names that are accepted without
-- effect.
function rule.signature(name, rows)
  local all = {PARAMS, unpack(rows)}
  for _, row in ipairs(ACCEPTED) do all[#all + 1] = row end
  return (define.signature(name, all))
end

--- Creates an optimizer class.
-- @param rows  the options, as rows of define; `first`: the initial value of an option without a
-- default
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
