--- state.lua -- state_dict and load_state_dict: a module's tensors under PyTorch's names.
--
-- A state dict is an ordered map. Its tensors have plain string keys, so that `sd["fc.weight"]`,
-- assignment and `pairs` work; a separate table stores the order of the keys, and `sd:items()`
-- follows it. This file is loaded at the first use.

local class = require "moth.base.class"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local Module = require "moth.nn.module"
local parameter = require "moth.nn.module.parameter"

local STORE = Module.store_key
local state = {}

-- ---- the ordered map ----

local StateDict = class("StateDict")
local orders = setmetatable({}, {__mode = "k"}) -- state dict -> list of its keys

--- Creates an empty state dict, or a copy of a state dict or of a table (names sorted).
function StateDict:init(from)
  orders[self] = {}
  if from ~= nil then
    for name, value in StateDict.items(from) do self[name] = value end
  end
end

function StateDict:__newindex(name, value)
  if value == nil then return end
  local order = orders[self]
  for i = #order, 1, -1 do -- so that a removed name that is added again is the last
    if order[i] == name then table.remove(order, i) end
  end
  order[#order + 1] = name
  rawset(self, name, value)
end

--- The names, in order, as a list. A plain table is also accepted; its names are sorted.
function StateDict.keys(self)
  local list, order = {}, orders[self]
  if order then
    for _, name in ipairs(order) do
      if rawget(self, name) ~= nil then list[#list + 1] = name end
    end
  else
    for name in pairs(self) do list[#list + 1] = name end
    table.sort(list, function(a, b) return tostring(a) < tostring(b) end)
  end
  return list
end

--- Iterates over names and values in order. It uses a snapshot of the names.
function StateDict.items(self)
  local list, i = StateDict.keys(self), 0
  return function()
    i = i + 1
    local name = list[i]
    if name ~= nil then return name, rawget(self, name) end
  end
end

--- The number of entries.
function StateDict.len(self)
  return #StateDict.keys(self)
end

function StateDict:__tostring()
  local lines = {}
  for name, value in StateDict.items(self) do
    lines[#lines + 1] = ("  %s: %s"):format(errors.bare(tostring(name), 120),
      errors.describe(value))
  end
  return "StateDict {\n" .. table.concat(lines, "\n") .. "\n}"
end

-- ---- saving ----

local function fire(hooks, ...)
  if not hooks then return end
  local list = {}
  for i, hook in ipairs(hooks) do list[i] = hook.fn end
  for _, fn in ipairs(list) do fn(...) end
end

local function check_depth(self, prefix)
  if #prefix > 4000 then
    errors.raise(class.typename(self) .. " contains itself, at " .. errors.shown(prefix))
  end
end

local function save_into(self, out, prefix, keep_vars)
  check_depth(self, prefix)
  local hooks = self[STORE].hooks
  fire(hooks and hooks.state_dict_pre, self, prefix, keep_vars)
  for _, member in ipairs(self:_members()) do
    if member[3] ~= "transient" then
      local x = member[2]
      local whole = keep_vars or parameter.waiting[x] ~= nil
      out[prefix .. member[1]] = whole and x or x:detach()
    end
  end
  if self.get_extra_state ~= Module.get_extra_state then
    out[prefix .. "_extra_state"] = self:get_extra_state()
  end
  for _, child in ipairs(self:_children()) do
    save_into(child[2], out, prefix .. child[1] .. ".", keep_vars)
  end
  fire(hooks and hooks.state_dict_post, self, out, prefix)
end

--- Implements Module:state_dict.
function state.save(self, destination, prefix, keep_vars)
  if destination ~= nil and type(destination) ~= "table" then
    errors.refuse("state_dict", "destination", "a table is needed", destination, "E_TYPE")
  end
  local out = destination or StateDict()
  save_into(self, out, prefix, keep_vars)
  return out
end

-- ---- loading ----

local FLOATS = lib.C.MOTH_F16 -- the first of the float dtypes

local function fits(name, here, value, problems, assign)
  if not lib.istensor(value) then
    problems[#problems + 1] = ("'%s' is %s, not a tensor"):format(name, errors.describe(value))
    return false
  end
  local waits, empty = parameter.waiting[here] ~= nil, parameter.waiting[value] ~= nil
  if waits and empty then return false end
  if waits or empty then
    problems[#problems + 1] = ("'%s' is uninitialized in the %s: run %s once before "
      .. "loading"):format(name,
      empty and "state dict" or "module", empty and "the net that saved it" or "the module")
    return false
  end
  local shape, given = here.shape, value.shape
  if shape ~= given then
    problems[#problems + 1] = ("'%s' has the shape %s, the module's is %s"):format(name,
      tostring(given), tostring(shape))
    return false
  end
  if assign and here.requires_grad and lib.inspect(value).dtype < FLOATS then
    problems[#problems + 1] = ("'%s' is %s, which cannot be a parameter that requires grad")
      :format(name, errors.describe(value))
    return false
  end
  return true
end

-- Lists the assignments for one module and its submodules, and the mismatches; changes nothing.
local function plan(self, given, prefix, strict, assign, found)
  check_depth(self, prefix)
  local hooks = self[STORE].hooks
  fire(hooks and hooks.load_state_dict_pre, self, given, prefix, strict)
  if self._before_load then self:_before_load(given, prefix) end -- the hook of lazy layers
  for _, name in ipairs(self._ignored_keys or {}) do found.known[prefix .. name] = true end
  for _, member in ipairs(self:_members()) do
    local name = prefix .. member[1]
    local value = rawget(given, name)
    if member[3] ~= "transient" then
      found.known[name] = true
      if value == nil then
        found.missing[#found.missing + 1] = name
      elseif fits(name, member[2], value, found.problems, assign) then
        found.copies[#found.copies + 1] = {self, member, value}
      end
    end
  end
  if self.set_extra_state ~= Module.set_extra_state then
    local name = prefix .. "_extra_state"
    found.known[name] = true
    local extra = rawget(given, name)
    if extra ~= nil then
      found.extras[#found.extras + 1] = {self, extra}
    elseif self.get_extra_state ~= Module.get_extra_state then
      found.missing[#found.missing + 1] = name
    end
  end
  for _, child in ipairs(self:_children()) do
    plan(child[2], given, prefix .. child[1] .. ".", strict, assign, found)
  end
  if hooks and hooks.load_state_dict_post then
    found.post[#found.post + 1] = {hooks.load_state_dict_post, self}
  end
end

local function take(copy, assign)
  local module, name, kind = copy[1], copy[2][1], copy[2][3]
  local here, value = copy[2][2], copy[3]
  if assign then
    if value == here then return end
    local new = value:detach()
    if here.requires_grad then lib.check(lib.C.moth_requires_grad(lib.ctx, new, 1), "load") end
    module[name] = parameter.mark(new, kind)
  else
    here:copy_(value)
  end
end

local MOST_LISTED = 100

local function listing(title, names, lines)
  if #names == 0 then return end
  local parts = {}
  for i = 1, math.min(#names, MOST_LISTED) do parts[i] = errors.shown(names[i], 120) end
  if #names > MOST_LISTED then parts[#parts + 1] = ("and %d more"):format(#names - MOST_LISTED) end
  lines[#lines + 1] = title .. ": " .. table.concat(parts, ", ")
end

-- The hint if one side is wrapped by DistributedDataParallel; else nil.
local function wrapped(missing, unexpected)
  for _, name in ipairs(unexpected) do
    if name == "module." .. missing then
      return "these are names of a DistributedDataParallel: save net.module:state_dict(), or load "
        .. "into such a net"
    end
    if missing == "module." .. name then
      return "this net is a DistributedDataParallel: load into net.module"
    end
  end
end

-- The result of load_state_dict.
local Keys = {}
function Keys:__tostring()
  if #self.missing_keys + #self.unexpected_keys == 0 then return "<All keys matched>" end
  local lines = {}
  listing("missing", self.missing_keys, lines)
  listing("unexpected", self.unexpected_keys, lines)
  return table.concat(lines, "\n")
end

--- Implements Module:load_state_dict.
function state.load(self, given, strict, assign)
  if lib.is_plain(given) and type(given[1]) == "table" then
    errors.argument("load_state_dict", "state_dict", "names and tensors are needed, got a list "
      .. "with a table in it; named arguments are a second argument: "
      .. "net:load_state_dict(dict, {strict = false})", "E_TYPE")
  end
  given = StateDict(given)
  local found = {known = {}, missing = {}, unexpected = {}, problems = {}, copies = {},
                 extras = {}, post = {}}
  plan(self, given, "", strict, assign, found)
  for name in StateDict.items(given) do
    if not found.known[name] then found.unexpected[#found.unexpected + 1] = tostring(name) end
  end
  local keys = setmetatable({missing_keys = found.missing, unexpected_keys = found.unexpected},
    Keys)
  local lines = {}
  if strict then
    listing("missing", found.missing, lines)
    listing("unexpected", found.unexpected, lines)
  end
  for _, text in ipairs(found.problems) do lines[#lines + 1] = text end
  if strict and #found.missing > 0 then
    lines[#lines + 1] = wrapped(found.missing[1], found.unexpected)
  end
  if #lines > 0 then
    errors.raise(("the state dict does not fit %s; nothing was loaded:\n  %s"):format(
      class.typename(self), table.concat(lines, "\n  ")), "E_ARG")
  end
  require("moth").no_grad(function()
    for _, copy in ipairs(found.copies) do take(copy, assign) end
  end)
  for _, extra in ipairs(found.extras) do extra[1]:set_extra_state(extra[2]) end
  for _, post in ipairs(found.post) do fire(post[1], post[2], keys) end
  return keys
end

return state
