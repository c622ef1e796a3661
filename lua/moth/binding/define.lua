--- define.lua -- functions written in Lua with the calls, checks, help and errors of an op.
--
--     local linear = define {
--       name = "linear", doc = "...", examples = "...",
--       args = { {"tensor", "input", "doc"}, {"bool", "bias", "doc", default = true} },
--       run = function(input, bias) ... end,
--     }
--
-- A row of args is {kind, name, doc} with, where they apply:
--   default   the value when the argument is not given
--   same      the name of an earlier argument whose value is the default
--   first     for help: the value, perhaps a list, that the function uses if the argument is absent
--   optional  may be absent (also written as a `?` after the kind): nil then, and for moth.none
--   numbers   a tensor argument also takes numbers
--   hint      the end of the message when the argument is missing
--   single    a number that also comes as a 0-d tensor
--   map       a table with names in its position is its value
--   bounds    {least, most} of a number, or of each number in a list; with open = true it is above
--             the least
--   choices   of an enum: list of names, the first being the default unless `required`

local bind = require "moth.binding.bind"
local calls = require "moth.binding.calls"
local device = require "moth.tensor.device"
local dtype = require "moth.tensor.dtype"
local lib = require "moth.binding.lib"
local scope = require "moth.tensor.scope"

local ffi = require "ffi"
local concat, format = table.concat, string.format
local loadstring = lib.loadstring

local define = {}

local T = setmetatable({}, {__index = calls})
T.Handle, T.istype, T.int64, T.none = lib.Handle, ffi.istype, lib.int64, lib.none
T.dtypes, T.devices, T.scratch = dtype.codes, device.codes, lib.int64s(calls.USUAL)

local function shown(value)
  if type(value) == "string" then return format("%q", value) end
  return type(value) == "table" and "{" .. concat(value, ", ") .. "}" or tostring(value)
end

-- A default that the function computes: of {moth.none, 1e-3}, "{none, 0.001}".
local function first_shown(value)
  local parts = {}
  for i, v in ipairs(type(value) == "table" and value or {value}) do
    parts[i] = v == lib.none and "none" or shown(v)
  end
  return type(value) == "table" and "{" .. concat(parts, ", ") .. "}" or parts[1]
end

local function read_choices(arg, row)
  arg.choices, arg.choice = row.choices, {}
  for k, name in ipairs(row.choices) do arg.choice[name] = k - 1 end
  if row.default == nil and not arg.optional and not row.required and arg.kind == "enum" then
    arg.default = row.choices[1]
  end
end

local function read_arg(name, row)
  local kind, kinds = row[1], require "moth.binding.kinds"
  local found, optional = kinds.find(kind)
  if not found then error(format("define: '%s' has an argument of kind '%s'", name, kind), 0) end
  if row.numbers then found = kinds.find("number") end
  local arg = {name = row[2], kind = kind, row = found, doc = row[3] or "",
               optional = optional or row.optional or false, default = row.default,
               hint = row.hint, same = row.same, bounds = row.bounds,
               single = row.single, map = row.map}
  if row.choices then read_choices(arg, row) end
  arg.required = not arg.optional and arg.default == nil and not arg.same
  if arg.choices and arg.kind == "enum" then arg.fallback = concat(arg.choices, "|")
  elseif arg.required then arg.fallback = ""
  elseif arg.same then arg.fallback = arg.same
  elseif arg.default == nil then
    arg.fallback = row.first ~= nil and row.first ~= lib.none and first_shown(row.first) or "none"
  else arg.fallback = shown(arg.default) end
  return arg
end

local HEAD = [[
local sig, T, body, defaults = ...
local type, Handle, istype, int64, none = type, T.Handle, T.istype, T.int64, T.none
local fill_ints, fill_dims, fill_floats = T.fill_ints, T.fill_dims, T.fill_floats
local is_list, scratch, results = T.is_list, T.scratch, T.results]]

local function write(sig)
  local forms = require "moth.binding.forms"
  local head, lines, names = {HEAD}, {}, {}
  local function out(...) lines[#lines + 1] = format(...) end
  for i, arg in ipairs(sig.args) do
    names[i] = "a" .. i
    if arg.choice then
      head[#head + 1] = format("local choices%d = sig.args[%d].choice", i, i)
    end
    if arg.default ~= nil then
      head[#head + 1] = format("local default%d = defaults[%d]", i, i)
    end
  end
  for i, arg in ipairs(sig.args) do
    local check = forms.fill(arg.row.check, i, "a" .. i, 0, 0)
    if arg.bounds then check = format("%s T.within(sig, %d, a%d)", check, i, i) end
    if arg.required then
      out("  %s", check)
    else
      local default = arg.default ~= nil and "default" .. i
        or arg.same and "a" .. sig.index[arg.same] or "nil"
      out('  if type(a%d) == "nil" then a%d = %s', i, i, default)
      if arg.optional then out("  elseif a%d == none then a%d = nil", i, i) end
      out("  else %s end", check)
    end
  end
  out("  return results(body(%s))", concat(names, ", ")) -- no tail call: see stack.lua
  return forms.source(sig, concat(head, "\n"), concat(lines, "\n"))
end

local TENSORS = {tensor = true, number = true, index = true, mask = true}

local function read(name, rows)
  local args, defaults = {}, {}
  for i, row in ipairs(rows) do
    args[i] = read_arg(name, row)
    defaults[i] = args[i].default
  end
  local method = args[1] ~= nil and TENSORS[args[1].row.name] or false
  local sig = require("moth.binding.forms").signature(name, args, method)
  sig.method, sig.defaults = method, defaults
  return sig
end

-- The known fields of a written function's signature. The others are read at first use.
local shortened = {
  __index = function(sig, key)
    return (bind.read(sig.record)[key])
  end,
}

local function compile(record, sig, body)
  local chunk, problem = loadstring(write(sig), "=[moth.op." .. sig.name .. "]")
  if not chunk then error(problem, 0) end
  local short = setmetatable({name = sig.name, record = record}, shortened)
  return chunk(short, T, body, sig.defaults)
end

-- A function whose only argument is a list also takes the elements as separate arguments:
-- nn.Sequential(a, b) as nn.Sequential{a, b}.
local function in_row(fn, sig)
  local row = #sig.args == 1 and sig.args[1].row
  if not row or (row.name ~= "modules" and row.name ~= "tensors") then return fn end
  return function(first, second, ...)
    local plain = lib.is_plain(first)
    if first == nil or plain or rawequal(first, lib.none) then return fn(first, second, ...) end
    local list = {first, second, ...}
    local last = list[#list]
    if not lib.is_plain(last) or type(next(last)) ~= "string" then return fn(list) end
    list[#list] = nil
    return fn(list, last)
  end
end

-- Most functions are never called in a program, and only their record is needed. Their signature is
-- read and the function is generated at first use; the record stores both.

-- record.read of a function that checks its arguments.
local function read_record(record)
  local sig = read(record.name, record.args)
  local run = record.run
  sig.lua = true
  sig.doc, sig.examples, sig.outputs = record.doc or "", record.examples or "", {}
  if run then
    sig.outputs[1] = {name = record.outputs or "y"}
    sig.file = record.file or debug.getinfo(run, "S").source:gsub("^@", "")
  else
    sig.method = false
  end
  return sig
end

local function pass_on(...) return ... end


-- The generated function of a record.
local function compiled(record)
  local sig = bind.read(record)
  local run = record.run or pass_on
  if record.scoped then run = scope.inside(run) end
  record.call = in_row(compile(record, sig, run), sig)
  return record.call
end

--- Creates a function.
-- @param record  table of name, doc, examples (one call a line), args, run, and optionally outputs
-- ("y"), file (its source), scoped (true: tensors that `run` creates and does not return are freed
-- when it returns; it must not keep them, nor call the user's functions), order (the call with its
-- arguments, for messages: for arguments that are easily swapped)
-- @return the function
local function late(record)
  if type(record) ~= "table" or type(record.name) ~= "string" or type(record.args) ~= "table" then
    require("moth.binding.misused").record(record)
  end
  record.read = read_record
  local fn = function(...) return (record.call or compiled(record))(...) end
  bind.register(fn, record)
  return fn
end

--- Creates a parser of arguments, for constructors: parse(...) -> values by position, checked, with
-- defaults filled in.
-- @param name  the function's name in messages
-- @param args  rows as in define
function define.signature(name, args) return late {name = name, args = args} end

-- record.read of a function that does not check its arguments.
local function read_taken(record)
  local sig = {name = "forward", args = {}, doc = "", examples = "", outputs = {}, lua = true}
  if type(record.args) == "function" then
    local parsed = bind.signature(record.args)
    sig.name, sig.args = parsed.name:match("[%w_]+$"), parsed.args
  else
    for i, row in ipairs(record.args) do sig.args[i] = read_arg("forward", row) end
  end
  for name in (record.outputs or ""):gmatch("[^,%s][^,]*") do
    sig.outputs[#sig.outputs + 1] = {name = name}
  end
  return sig
end

--- Registers for help the arguments of a function that is called often or reads its arguments
-- itself, such as the forward of a layer. Nothing is checked.
-- @param fn       the function
-- @param args     what define.signature returned, or rows as in define
-- @param outputs  names of its results, "output, h"; optional
function define.takes(fn, args, outputs)
  bind.register(fn, {args = args, outputs = outputs, read = read_taken})
end

return setmetatable(define, {__call = function(_, record) return late(record) end})
