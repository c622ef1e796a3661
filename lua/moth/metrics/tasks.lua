--- tasks.lua -- makes the classes of a classification metric: BinaryX, MulticlassX, MultilabelX,
-- and X, which becomes one of them by its argument `task`; and the functions of the same names.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local inputs = require "moth.metrics.inputs"
local Metric = require "moth.metrics.metric"

local tasks = {}

local OF = {binary = "Binary", multiclass = "Multiclass", multilabel = "Multilabel"}

-- The argument that X needs for a task.
local NEEDED = {multiclass = "num_classes", multilabel = "num_labels"}

local function names_of(rows)
  local list = {}
  for i, row in ipairs(rows) do list[i] = row[2] end
  return list
end

-- Collects the values of the arguments by name.
local function by_name(names, ...)
  local out = {}
  for i, name in ipairs(names) do out[name] = (select(i, ...)) end
  return out
end

-- The arguments of a task's class among those of X.
local function passed(Class, given)
  local out = {}
  for _, name in ipairs(Class._arguments) do out[name] = given[name] end
  return out
end

local function need(name, given)
  local wanted = NEEDED[given.task]
  if wanted and given[wanted] == nil and not (wanted == "num_classes" and given.average == "micro"
      and given.optional_classes) then
    errors.argument(name, wanted, ("task = %q needs it"):format(given.task))
  end
end

--- Makes the classes.
-- @param space  the table that gets them
-- @param name   X
-- @param row    fields: doc, and by task (binary, multiclass, multilabel, any) the names of the
-- arguments of `inputs.rows`; optional_classes: may num_classes be absent if average is "micro"?;
-- base(task): the base class of a task; setup(self): called at the end of init
function tasks.make(space, name, row)
  local made = {}
  for task, prefix in pairs(OF) do
    local Class = class(prefix .. name, row.base(task))
    space[prefix .. name], made[task] = Class, Class
    local rows = inputs.args(row[task])
    Class._doc = row.doc .. (" Of the task \"%s\"."):format(task)
    Class._arguments, Class._task = names_of(rows), task
    Class.higher_is_better = row.higher_is_better
    Class.signature = define.signature(prefix .. name, rows)
    function Class:init(...)
      for i, argument in ipairs(Class._arguments) do self[argument] = (select(i, ...)) end
      self:_begin()
    end
    for key, value in pairs(row.methods or {}) do Class[key] = value end
  end
  local Any = class(name, Metric)
  space[name] = Any
  Any._doc = row.doc .. " It becomes Binary" .. name .. ", Multiclass" .. name .. " or Multilabel"
    .. name .. " by the argument `task`."
  local rows = inputs.args("task " .. row.any)
  local names = names_of(rows)
  Any.signature = define.signature(name, rows)
  function Any:init(...)
    local given = by_name(names, ...)
    given.optional_classes = row.optional_classes
    need(name, given)
    local Class = made[given.task]
    Metric._become(self, Class)
    Class.init(self, passed(Class, given))
  end
end

--- Makes the functions of X: x, binary_x, multiclass_x, multilabel_x. They return the value of one
-- batch.
-- @param space   the table that gets them
-- @param names   {"accuracy", "Accuracy"}
-- @param orders  the arguments after preds and target, by "any", "binary" and so on, as for
-- inputs.rows
-- @param text    {doc =, and an example for each}
function tasks.functions(space, names, orders, text)
  local metrics = require "moth.metrics"
  for _, task in ipairs {"any", "binary", "multiclass", "multilabel"} do
    local prefix = task == "any" and "" or task .. "_"
    local rows = inputs.args((task == "any" and "task " or "") .. orders[task])
    local arguments = names_of(rows)
    local args = {inputs.preds, inputs.target, unpack(rows)}
    local class_name = (OF[task] or "") .. names[2]
    space[prefix .. names[1]] = define {
      name = prefix .. names[1], args = args, examples = text[task], scoped = true,
      doc = text.doc .. (task == "any" and "" or (" Of the task \"%s\"."):format(task)),
      run = function(preds, target, ...)
        local metric = metrics[class_name](by_name(arguments, ...))
        metric:update(preds, target)
        return metric:compute(Metric._on_step) -- of this process
      end,
    }
  end
end

return tasks
