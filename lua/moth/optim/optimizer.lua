--- optimizer.lua -- optim.Optimizer: parameter groups, state, hooks and state dicts of all
-- optimizers.
--
-- A subclass defines `update(group)`, which changes group.params by their gradients with the
-- group's options; it runs under no_grad. self.state[p] is a table for each parameter; its tensors
-- and numbers are saved.
--
--     local Plain = nn.class("Plain", optim.Optimizer)
--     function Plain:init(params, lr) optim.Optimizer.init(self, params, {lr = lr}) end
--     function Plain:update(group)
--       for _, p in ipairs(group.params) do
--         if p.grad ~= nil then p:add_(p.grad, {alpha = -group.lr}) end
--       end
--     end
--
-- A subclass may define `step(closure)` instead, as in PyTorch, which calls moth.no_grad itself.

local autograd = require "moth.autograd"
local bundle = require "moth.optim.bundle"
local calls = require "moth.binding.calls"
local class = require "moth.base.class"
local cleared = require "moth.nn.module.cleared"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local Optimizer = class("Optimizer")

local IS_LEAF = lib.C.MOTH_IS_LEAF

-- Fields that a group may have besides the optimizer's options: schedules write them.
local notes = {initial_lr = true, max_lr = true, min_lr = true, max_momentum = true,
               base_momentum = true, swa_lr = true}

-- ---- parameter groups ----

local function bad_params(self, text)
  errors.argument(class.typename(self), "params", text, "E_TYPE")
end

local function check_list(self, list)
  if lib.istensor(list) then
    bad_params(self, "a list of tensors is needed, got a tensor; write {x}")
  elseif not lib.is_plain(list) then
    bad_params(self, "a list of tensors, for example net:parameters(), is needed, got " ..
      errors.describe(list))
  elseif calls.gap(list) then
    bad_params(self, calls.gap(list))
  elseif #list == 0 then
    bad_params(self, next(list) == nil and "a list of tensors is needed, got an empty list"
      or "a list of tensors is needed, got only named entries")
  end
  local seen = {}
  for i, p in ipairs(list) do
    if not lib.istensor(p) then
      bad_params(self, ("element %d is %s, not a tensor"):format(i, errors.describe(p)))
    elseif bit.band(lib.inspect(p).flags, IS_LEAF) == 0 then
      bad_params(self, ("element %d, %s, is the result of an op; only leaves are optimized")
        :format(i, errors.describe(p)))
    end
    if seen[p] then
      bad_params(self, ("elements %d and %d are the same tensor"):format(seen[p], i))
    end
    seen[p] = i
  end
end

-- Returns true if a value is {name, tensor}.
local function is_named(entry)
  return lib.is_plain(entry) and type(entry[1]) == "string"
end

-- Returns the parameters of a list, and their names if it is a list of {name, tensor} or the
-- iterator of net:named_parameters().
local function split_names(self, list)
  if lib.is_plain(list) and type(list[1]) == "function" then
    list = list[1] -- SGD{net:named_parameters(), lr = 0.1}
  end
  if type(list) == "function" then
    local entries = {}
    for name, p in list do entries[#entries + 1] = {name, p} end
    list = entries
  end
  if not lib.is_plain(list) then return list end
  local tensors, names = {}, {}
  for i, entry in ipairs(list) do
    local named = is_named(entry)
    if i > 1 and named ~= (#names > 0) then
      bad_params(self, ("element %d has %s name, and those before it have %s; give all a name, or "
        .. "none"):format(i, named and "a" or "no", named and "none" or "one"))
    end
    tensors[i], names[#names + 1] = named and entry[2] or entry, named and entry[1] or nil
  end
  if #names == 0 then return list end
  return tensors, names
end

--- Returns true if a group may have a field of that name.
function Optimizer:_knows(name) return self.defaults[name] ~= nil or notes[name] end

--- Returns the end of a message about an unknown option: a similar option's name.
function Optimizer:_nearest_option(name)
  local names = {"params"}
  for known in pairs(self.defaults) do names[#names + 1] = known end
  return errors.nearest(tostring(name), names)
end

-- Returns a number from a number or a 0-d tensor.
local function number_of(v)
  return lib.istensor(v) and v:dim() == 0 and v:item() or v
end

--- Adds a group of parameters with its own options; for absent options the optimizer's defaults
-- apply. `optimizer:add_param_group{params = head:parameters(), lr = 1e-3}`. With
-- `head:named_parameters()` or a list of {name, tensor} the group gets `param_names`; then all
-- groups must have names. Other fields, for example `name = "head"`, are kept; a name that
-- resembles an option raises.
function Optimizer:add_param_group(param_group)
  local group = param_group
  if not lib.is_plain(group) or group.params == nil then
    errors.refuse("add_param_group", "param_group", "{params = list of tensors, ...} is needed",
      group, "E_TYPE")
  end
  local params, names = group.params, nil
  if lib.istensor(params) then params = {params} else params, names = split_names(self, params) end
  check_list(self, params)
  for name in pairs(group) do
    local nearest = name ~= "params" and not self:_knows(name) and self:_nearest_option(name) or ""
    if nearest ~= "" then
      errors.raise(("%s has no option '%s'%s"):format(class.typename(self), tostring(name),
        nearest))
    end
  end
  local earlier = {}
  for _, other in ipairs(self.param_groups) do
    if (names == nil) ~= (other.param_names == nil) then
      bad_params(self, "some groups have names and some do not; name all or none")
    end
    for _, p in ipairs(other.params) do earlier[p] = true end
  end
  for i, p in ipairs(params) do
    if earlier[p] then
      bad_params(self, ("element %d of a group is also in an earlier group"):format(i))
    end
  end
  local made = {params = {}, param_names = names}
  for i, p in ipairs(params) do
    made.params[i] = p
    lib.check(lib.C.moth_keep_always(lib.ctx, p), class.typename(self))
  end
  for name, value in pairs(self.defaults) do made[name] = value end
  for name, value in pairs(group) do
    if name ~= "params" then made[name] = value end
  end
  made.lr = number_of(made.lr)
  if lib.is_plain(made.betas) then
    local list = {}
    for i, v in ipairs(made.betas) do list[i] = number_of(v) end
    made.betas = list
  end
  self:check(made)
  self.param_groups[#self.param_groups + 1] = made
end

-- Checks element i of the parameters if it is a group. A list that is not a group raises.
local function check_group(self, i, group)
  if not lib.is_plain(group) or group.params ~= nil then return end
  if lib.istensor(group[1]) then
    bad_params(self, ("element %d is a list of tensors; join the lists, or write {params = list} "
      .. "for a separate group"):format(i))
  end
  for name in pairs(group) do
    local nearest = errors.nearest(tostring(name), {"params"})
    if nearest ~= "" then bad_params(self, ("group %d has '%s'%s"):format(i, name, nearest)) end
  end
end

--- Sets up the groups.
-- @param params    a list of tensors or of {name, tensor}, the iterator of
-- net:named_parameters(), or a list of group tables {params = list, lr = ...}
-- @param defaults  a table of the options and their values
function Optimizer:init(params, defaults)
  if defaults ~= nil and type(defaults) ~= "table" then
    errors.refuse("Optimizer", "defaults", "a table of options is needed", defaults, "E_TYPE")
  end
  self.defaults = {}
  for name, value in pairs(defaults or {}) do self.defaults[name] = value end
  self.param_groups = {}
  self.state = {}
  if not errors.is_own(class.written(self.step)) then self.step = self._own_step end
  if lib.is_plain(params) and params.params then
    params = {params}
  end
  if lib.is_plain(params) and calls.gap(params) then bad_params(self, calls.gap(params)) end
  local first = lib.is_plain(params) and params[1]
  if type(first) == "table" and not is_named(first) then
    for i, group in ipairs(params) do
      check_group(self, i, group)
      self:add_param_group(group)
    end
  else
    self:add_param_group {params = params == nil and {}
      or (type(params) == "table" or type(params) == "function") and params
      or check_list(self, params)}
  end
end

--- Checks the options of a group. Subclasses raise for values out of range.
function Optimizer:check(group) -- luacheck: ignore group
end

--- Raises unless an option is a number from `least` on, and below `below` if present.
function Optimizer:range(group, name, least, below)
  local value = group[name]
  if type(value) ~= "number" or not (value >= least) or (below and not (value < below)) then
    errors.argument(class.typename(self), name, below
      and ("a number from %g to below %g is needed, got %s"):format(least, below,
        errors.describe(value))
      or ("a number from %g on is needed, got %s"):format(least, errors.describe(value)),
      "E_DOMAIN")
  end
end

-- ---- steps ----

--- Clears the gradients of all parameters; `set_to_none = false` fills them with zeros.
function Optimizer:zero_grad(...)
  local set_to_none = true
  if select("#", ...) > 0 then set_to_none = cleared.parse(...) end
  for _, group in ipairs(self.param_groups) do cleared.clear(group.params, set_to_none) end
end

define.takes(Optimizer.zero_grad, cleared.parse)

--- Changes the parameters of one group by their gradients; each optimizer overrides it.
function Optimizer:update(group) -- luacheck: ignore group
  class.abstract(self, "update", ":update(group)")
end

-- Keeps the state alive after the scope of a step, for optimizers that users define. Moth's classes
-- keep their tensors themselves and set `keeps_own_state`, which subclasses do not inherit, since
-- they may have more state.
local function keep_state(self)
  if rawget(class.of(self), "keeps_own_state") then return end
  for _, values in pairs(self.state) do
    if lib.istensor(values) then
      lib.check(lib.C.moth_keep_always(lib.ctx, values), class.typename(self))
    elseif type(values) == "table" then
      for _, value in pairs(values) do
        if lib.istensor(value) then
          lib.check(lib.C.moth_keep_always(lib.ctx, value), class.typename(self))
        end
      end
    end
  end
end

-- Returns the state, fields and options of a user-defined optimizer, while a step is captured.
local function plain_values(self)
  local list = {}
  for name, value in pairs(self) do
    if type(value) == "number" then list[#list + 1] = {self, name, value} end
  end
  for p, values in pairs(self.state) do
    for name, value in pairs(type(values) == "table" and values or {}) do
      list[#list + 1] = {values, name, value, p}
    end
  end
  return list
end

local function options_of(self)
  local list = {}
  for _, group in ipairs(self.param_groups) do
    for name, value in pairs(group) do
      if name ~= "params" then list[#list + 1] = {group, name, value} end
    end
  end
  return list
end

local function unchanged(cell)
  for _, row in ipairs(cell.options) do
    if row[1][row[2]] ~= row[3] then return false end
  end
  return true
end

-- Records a step of a user-defined optimizer in a captured step. Its options are constants: a
-- changed option needs another capture. Its state must be changed in place.
local function recorded(self, before, options, ...)
  keep_state(self)
  local recording = require "moth.capture.recording"
  if #plain_values(self) ~= #before then recording.void() end
  for _, row in ipairs(before) do
    if not rawequal(row[1][row[2]], row[3]) then
      recording.refuse(("the step of %s, which replaces '%s' in its state instead of writing to "
        .. "it,"):format(class.typename(self), tostring(row[2])))
    end
  end
  recording.cell(nil, {write = unchanged, options = options})
  return ...
end

local function update_groups(self)
  local groups = self.param_groups
  for i = 1, #groups do self:update(groups[i]) end
end

local function update_all(self)
  if lib.capture then
    lib.capture.states[self.state] = true
    if not rawget(class.of(self), "keeps_own_state") then
      local before, options = plain_values(self), options_of(self)
      return recorded(self, before, options, update_groups(self))
    end
  end
  if #self.param_groups == 1 then
    self:update(self.param_groups[1]) -- LuaJIT compiles this call into the caller's loop
  else
    update_groups(self)
  end
  keep_state(self)
end

local Hook = class("Hook")

function Hook:init(list, entry)
  self.list, self.entry = list, entry
end

--- Removes the hook.
function Hook:remove()
  for i, entry in ipairs(self.list) do
    if entry == self.entry then return table.remove(self.list, i) end
  end
end

local function add_hook(self, kind, fname, fn)
  if type(fn) ~= "function" then
    errors.refuse(fname, "hook", "a function is needed", fn, "E_TYPE")
  end
  local list, entry = self[kind] or {}, {fn = fn}
  self[kind] = list
  list[#list + 1] = entry
  return Hook(list, entry)
end

-- Calls the hooks before or after a step, unless _own_step calls them.
local function run_hooks(self, list, closure, is_own)
  if is_own or rawget(self, "step") ~= self._own_step then
    for _, entry in ipairs({unpack(list)}) do entry.fn(self, {closure}) end
  end
end
Optimizer.run_hooks = run_hooks

--- Adds fn(optimizer, args), called before every step; args is {closure} or {}.
-- @return a handle with :remove()
function Optimizer:register_step_pre_hook(hook)
  return (add_hook(self, "pre_hooks", "register_step_pre_hook", hook))
end

--- Adds fn(optimizer, args), called after every step.
-- @return a handle with :remove()
function Optimizer:register_step_post_hook(hook)
  return (add_hook(self, "post_hooks", "register_step_post_hook", hook))
end

for name, list in pairs {state_dict_pre = "save_pre", state_dict_post = "save_post",
                         load_state_dict_pre = "load_pre", load_state_dict_post = "load_post"} do
  local fname = "register_" .. name .. "_hook"
  --- Adds a hook. state_dict_pre and load_state_dict_post: fn(optimizer); state_dict_post and
  -- load_state_dict_pre: fn(optimizer, state_dict), which may return a replacement.
  -- @return a handle with :remove()
  Optimizer[fname] = function(self, hook) return (add_hook(self, list, fname, hook)) end
end

-- The call log entry of a step: a replay sets `stepped`, which schedules read.
local function write_nothing() return true end
local function set_stepped(cell) cell.optimizer.stepped = true end

local function before_step(self, closure, is_own)
  self.stepped = true -- schedules read it
  if lib.capture then
    local cell = {write = write_nothing, done = set_stepped, optimizer = self}
    require("moth.capture.recording").cell(nil, cell)
  end
  if lib.capture and (self.pre_hooks or self.post_hooks) then
    require("moth.capture.recording").refuse("an optimizer's hook")
  end
  if self.pre_hooks then run_hooks(self, self.pre_hooks, closure, is_own) end
end

--- One step of optimization.
-- @param closure  computes the loss and its gradients; called first, if present
-- @return the closure's result, or nothing
function Optimizer:step(closure)
  local loss
  before_step(self, closure)
  if closure ~= nil then loss = require("moth").enable_grad(closure) end
  local ok, problem = autograd.frames.unrecorded(update_all, self)
  if bundle.borrowed then bundle.give_back() end
  if not ok then error(problem, 0) end
  if self.post_hooks then run_hooks(self, self.post_hooks, closure) end
  return loss
end

local function after_own(self, closure, ...)
  keep_state(self)
  if self.post_hooks then run_hooks(self, self.post_hooks, closure, true) end
  return ...
end

--- Wraps the step method of a user-defined class: calls the hooks and keeps the state alive.
function Optimizer:_own_step(...)
  local closure, step = ..., class.of(self).step
  before_step(self, closure, true)
  if not lib.capture then return after_own(self, closure, step(self, ...)) end
  lib.capture.states[self.state] = true
  local before, options = plain_values(self), options_of(self)
  return recorded(self, before, options, step(self, ...))
end

-- ---- saving ----

--- Returns true if a tensor in a state dict has the shape of the parameter's state of that name.
function Optimizer:fits(p, name, value) -- luacheck: ignore self name
  return value.shape == p.shape
end

--- Returns a copy of one parameter's state from a state dict, on the parameter's device and in its
-- dtype, float32 for half types.
function Optimizer:adopt_state(p, values)
  return (require "moth.optim.state".adopt(self, p, values))
end

--- Returns the state and the groups as plain tables, with PyTorch's names:
-- `state["0"].momentum_buffer` belongs to parameter 0, and `param_groups[1].params` lists the
-- parameters' numbers.
function Optimizer:state_dict()
  return (require "moth.optim.state".save(self))
end

--- Loads a copy of the state and the options from a state dict. PyTorch's state dicts are accepted.
-- If an entry does not fit, nothing is loaded. Parameters are matched by position, not by name.
-- @param state_dict  {state = ..., param_groups = ...}; each group must have the same number of
-- parameters
function Optimizer:load_state_dict(state_dict)
  require "moth.optim.state".load(self, state_dict)
end

function Optimizer:__tostring()
  local lines = {class.typename(self) .. " ("}
  for i, group in ipairs(self.param_groups) do
    lines[#lines + 1] = "  group " .. i .. ": " .. #group.params .. " parameters"
    local names = {}
    for name in pairs(group) do
      if name ~= "params" then names[#names + 1] = name end
    end
    table.sort(names)
    for _, name in ipairs(names) do
      local value = group[name]
      if lib.is_plain(value) then
        local words = {}
        for k = 1, #value do words[k] = tostring(value[k]) end
        value = "{" .. table.concat(words, ", ") .. "}"
      end
      lines[#lines + 1] = "    " .. name .. ": " .. tostring(value)
    end
  end
  lines[#lines + 1] = ")"
  return table.concat(lines, "\n")
end

return Optimizer
