--- state.lua -- the state dicts of optimizers, with PyTorch's names and numbers. A state dict is
-- checked completely before anything is loaded. The file is loaded at the first use.

local bundle = require "moth.optim.bundle"
local class = require "moth.base.class"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

-- PyTorch's options that select an implementation, which have no effect in Moth.
local ignored = {foreach = true, fused = true, capturable = true, differentiable = true,
                 param_names = true} -- these are loaded by other code
-- Entries that are tensors of one element in PyTorch, but numbers in Moth.
local NUMBERS = {step = true, mu_product = true, eta = true, mu = true}

local M = {}

-- Calls hooks that may replace a state dict. Returns the final state dict.
local function pass_through(self, list, fname, state_dict)
  for _, entry in ipairs({unpack(list or {})}) do
    local new = entry.fn(self, state_dict)
    if new ~= nil and type(new) ~= "table" then
      errors.raise("a hook of " .. fname .. " must return a state dict or nothing, got "
        .. errors.describe(new), "E_TYPE")
    elseif new ~= nil and state_dict then
      state_dict = new
    end
  end
  return state_dict
end

--- Implements Optimizer:state_dict.
function M.save(self)
  pass_through(self, self.save_pre, "state_dict")
  local numbers, count = {}, 0
  local groups, state = {}, {}
  for i, group in ipairs(self.param_groups) do
    local packed = {params = {}}
    for name, value in pairs(group) do
      if name ~= "params" then packed[name] = value end
    end
    if group.param_names then packed.param_names = {} end
    for j, p in ipairs(group.params) do
      packed.params[j] = count
      if group.param_names then packed.param_names[j] = group.param_names[j] end
      numbers[p] = count
      count = count + 1
    end
    groups[i] = packed
  end
  for p, values in pairs(self.state) do
    local copy = {}
    for name, value in pairs(values) do copy[name] = value end
    state[tostring(numbers[p])] = copy
  end
  return pass_through(self, self.save_post, "state_dict", {state = state, param_groups = groups})
end

local function misfit(self, text)
  errors.raise(("the state dict does not fit this %s; nothing was loaded: %s"):format(
    class.typename(self), text))
end

local function check_state(self, state_dict)
  if type(state_dict) ~= "table" or type(state_dict.state) ~= "table"
     or type(state_dict.param_groups) ~= "table" then
    errors.refuse("load_state_dict", "state_dict", "{state = ..., param_groups = ...} is needed",
      state_dict, "E_TYPE")
  end
  local groups = state_dict.param_groups
  if #groups ~= #self.param_groups then
    misfit(self, ("it has %d parameter groups, this one %d"):format(#groups, #self.param_groups))
  end
  for i, group in ipairs(self.param_groups) do
    local given = groups[i].params
    if type(given) ~= "table" or #given ~= #group.params then
      misfit(self, ("its group %d has %d parameters, this one's %d"):format(i,
        type(given) == "table" and #given or 0, #group.params))
    end
  end
end

--- Implements Optimizer:adopt_state.
function M.adopt(self, p, values)
  if type(values) ~= "table" then
    misfit(self, "the state of a parameter is " .. errors.describe(values))
  end
  local copy = {}
  for name, value in pairs(values) do
    if value == lib.none then
      value = nil
    elseif lib.istensor(value) then
      if value:dim() == 0 and p:dim() > 0 or NUMBERS[name] then
        value = tonumber(value:item())
      elseif not self:fits(p, name, value) then
        misfit(self, ("%s is %s, its parameter is %s"):format(errors.shown(name),
          errors.describe(value), errors.describe(p)))
      else
        value = value:detach():to(bundle.state_dtype(p)):to(p.device):clone()
        lib.check(lib.C.moth_keep_always(lib.ctx, value), "load_state_dict")
      end
    end
    copy[name] = value
  end
  return copy
end

-- Returns the options of a group, overwritten by the saved options.
local function adopt_options(self, group, saved, i)
  local options = {}
  for name, value in pairs(group) do options[name] = value end
  for name, value in pairs(saved) do
    local known = name ~= "param_names" and (self:_knows(name) or group[name] ~= nil)
    if lib.istensor(value) then value = value:item() end
    if known and name ~= "params" then
      if value ~= lib.none or self.defaults[name] == lib.none then options[name] = value end
    elseif not known and not ignored[name] and value ~= false and value ~= lib.none then
      misfit(self, ("its group %d has the unknown option %s%s"):format(i,
        errors.shown(tostring(name)), self:_nearest_option(name)))
    end
  end
  local names = saved.param_names
  if type(names) == "table" and names ~= lib.none then
    if #names ~= #group.params then
      misfit(self, ("its group %d has %d names for %d parameters"):format(i, #names,
        #group.params))
    end
    options.param_names = {}
    for j, name in ipairs(names) do options.param_names[j] = name end
  end
  self:check(options)
  return options
end

--- Implements Optimizer:load_state_dict.
function M.load(self, state_dict)
  state_dict = pass_through(self, self.load_pre, "load_state_dict", state_dict)
  check_state(self, state_dict)
  local state, options = {}, {}
  for i, group in ipairs(self.param_groups) do
    local saved = state_dict.param_groups[i]
    options[i] = adopt_options(self, group, saved, i)
    for j, p in ipairs(group.params) do
      local values = state_dict.state[tostring(saved.params[j])]
        or state_dict.state[saved.params[j]]
      if values ~= nil then state[p] = self:adopt_state(p, values) end
    end
  end
  for i, group in ipairs(self.param_groups) do
    for name, value in pairs(options[i]) do group[name] = value end
  end
  self.state = state
  pass_through(self, self.load_post, "load_state_dict")
end

return M
