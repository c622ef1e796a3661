--- init.lua -- generates classes of layers and losses from functions. The function's arguments
-- after its tensors become settings of the class; tensors among them (weights) become buffers. Each
-- class is created at its first use, since inspecting a function's arguments takes time.

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local functional = require "moth.nn.functional"
local lib = require "moth.binding.lib"
local Module = require "moth.nn.module"
local named = require "moth.nn.module.named"
local window = require "moth.nn.layer.window"

local layer = {}

local built_in = getmetatable(functional).__built_in

--- Returns true if a user has replaced the function of that name in moth.nn.functional.
function layer.replaced(fname)
  local now = rawget(functional, fname)
  return now ~= nil and now ~= built_in(fname)
end

-- Arguments that the class omits: its tensors determine the dtype, and its result is a new tensor.
local LEFT_OUT = {dtype = true, out = true}
local KINDS = {position = "int"} -- the function converts positions

-- Checks that the functions make, by argument, or by function and argument; the constructor repeats
-- them.
local ABOVE_0 = {0, open = true}
local BOUNDS = {
  label_smoothing = {0, 1}, upscale_factor = {1}, downscale_factor = {1}, kernel_size = {1},
  dilation = {1}, stride = {1},
  ["channel_shuffle groups"] = {1}, ["fold output_size"] = {1}, ["fold padding"] = {0},
  ["unfold padding"] = {0},
  ["huber_loss delta"] = ABOVE_0, ["smooth_l1_loss beta"] = {0},
  ["triplet_margin_loss margin"] = ABOVE_0, ["softshrink lambd"] = {0},
}

-- Returns the row of a setting, from an argument of the function.
local function row_of(fname, arg)
  local default = arg.default
  if default == nil and not arg.choices then
    default = tonumber(arg.fallback)
    if arg.kind == "bool" then default = arg.fallback == "true" end
  end
  return {KINDS[arg.kind] or arg.kind, arg.name, arg.doc, optional = arg.optional,
          default = default, choices = arg.choices, same = arg.same,
          bounds = BOUNDS[fname .. " " .. arg.name] or BOUNDS[arg.name]}
end

-- Returns the number of parameters of a user's function. For a moth.kernel it counts the inner
-- function's parameters.
local function taken_by(f)
  if type(f) == "table" then f = rawget(f, "fn") end
  local info = type(f) == "function" and debug.getinfo(f, "u")
  return info and not info.isvararg and info.nparams or math.huge
end

-- Calls a user's replacement of the function. It gets the settings up to the last one that differs
-- from its default, so that a replacement that accepts only the tensors works.
local function call_other(f, self, fname, rows, n, ...)
  local settings, last = {}, 0
  for i, row in ipairs(rows) do
    local value, default = self[row[2]], row.default
    if row.same then default = self[row.same] end
    if default == nil and row.choices then default = row.choices[1] end
    settings[i] = value
    if value ~= default then last = i end
  end
  if last > 0 and n + last > taken_by(f) then
    local most = taken_by(f)
    errors.raise(("moth.nn.functional.%s was replaced by a function of %d argument%s, and %s = %s "
      .. "would be argument %d"):format(fname, most, most == 1 and "" or "s", rows[last][2],
      errors.describe(settings[last]), n + last), "E_ARG")
  end
  local args = {...}
  for i = 1, last do args[n + i] = settings[i] end
  return (f(unpack(args, 1, n + last)))
end

-- Generates a function that passes the module's settings. The arguments are unrolled, so that
-- LuaJIT compiles the calls.
local function forward_of(fname, names, rows)
  local given, inputs = {unpack(names)}, table.concat(names, ", ")
  for _, row in ipairs(rows) do given[#given + 1] = "self." .. row[2] end
  local function other(f, self, ...) return call_other(f, self, fname, rows, #names, ...) end
  return assert(lib.loadstring(([[
local functional, built_in, other = ...
return function(self, %s)
  local f = functional.%s
  if f ~= built_in then return (other(f, self, %s)) end
  return (f(%s))
end]]):format(inputs, fname, inputs, table.concat(given, ", ")), "=[moth.nn.layer]"))(functional,
    built_in(fname), other)
end

local function check_order(name, min, max)
  if min <= max then return end
  errors.argument(name, "max_val", ("a number from min_val, %g, on is needed, got %g"):format(min,
    max), "E_DOMAIN")
end

-- Creates the class `name` from a function of n tensors; the class omits the argument `without`.
local function make(name, fname, n, without)
  local Layer = class(name, Module)
  local inputs, rows, names = {}, {}, {}
  for i, arg in ipairs(bind.signature(built_in(fname)).args) do
    if i <= n then
      inputs[i], names[i] = {"tensor", arg.name, arg.doc}, arg.name
    elseif not LEFT_OUT[arg.name] and arg.name ~= without then
      rows[#rows + 1] = row_of(fname, arg)
    end
  end
  Layer._of = fname
  Layer.signature = define.signature(name, rows)
  Layer.forward = forward_of(fname, names, rows)
  named.takes(Layer.forward, inputs)

  function Layer:init(...)
    if fname == "hardtanh" then check_order(name, ...) end
    for i, row in ipairs(rows) do
      local value = (select(i, ...))
      if not row.optional then self[row[2]] = value
      elseif value ~= nil then self:register_buffer(row[2], value) end
    end
  end

  return Layer, rows
end

local function text(v) return type(v) == "string" and "'" .. v .. "'" or window.text(v) end

-- Defines the printed text of a layer: its settings; `inplace` only if it is set.
local function show(Layer, rows)
  function Layer:extra_repr()
    local parts = {}
    for _, row in ipairs(rows) do
      local value = self[row[2]]
      if row[2] ~= "inplace" or value then parts[#parts + 1] = row[2] .. "=" .. text(value) end
    end
    return table.concat(parts, ", ")
  end
end

--- Adds generated classes to a table. A function of one tensor becomes a layer: it prints its
-- settings, and keeps neither its input nor its result.
-- @param space  the table
-- @param rows   name -> function, or {function, its number of tensors, an omitted argument}
-- @return the table
function layer.of(space, rows)
  return (setmetatable(space, {__index = function(_, name)
    local row = rows[name]
    if not row then return nil end
    local fname, n, without = row, 1, nil
    if type(row) == "table" then fname, n, without = row[1], row[2], row[3] end
    local Layer, settings = make(name, fname, n, without)
    if n == 1 then
      show(Layer, settings)
      Module.passing[Layer.forward] = true
    end
    rawset(space, name, Layer)
    return Layer
  end}))
end

return layer
