--- stubs -- `moth docs --stubs`: annotation files of all public names for lua-language-server
-- and other editors' servers that read its annotations.
--
--     moth docs --stubs FOLDER    writes a file for each namespace, and one for tensors
--
-- The files are Lua code that no program loads. Their types are defined in types.lua.

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local fields = require "moth.help.fields"
local help = require "moth.help"
local lib = require "moth.binding.lib"
local places = require "moth.help.places"
local types = require "moth.help.stubs.types"

local concat, format = table.concat, string.format

local stubs = {}

local OPERATORS = {"add", "sub", "mul", "div", "mod", "pow"}

local paths, type_of, type_of_arg = types.paths, types.of, types.of_argument

-- ---- functions ----

local RESERVED = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat
    return then true until while]]):gmatch "%S+" do
  RESERVED[word] = true
end

local function parameter(name) return RESERVED[name] and name .. "_" or name end

-- The first sentence of a documentation, in one line; "" where there is none.
local function sentence(text)
  text = (text or ""):gsub("\n@.*$", ""):gsub("%s+", " "):gsub("^ ", "")
  return text:match "^(.-%.) " or text
end

local function doc_lines(out, text)
  if text ~= "" then out[#out + 1] = "---" .. text end
end

local tables -- lines of a separate file: language servers skip files above 500 KB

-- The class of the table of named arguments of a function.
local function add_names(sig, args, name)
  if #args == 0 then return end
  local out = tables
  out[#out + 1] = "\n---@class " .. name
  for _, arg in ipairs(args) do
    local field = RESERVED[arg.name] and format("[%q]", arg.name) or arg.name
    out[#out + 1] = format("---@field %s? %s %s", field, type_of_arg(arg), sentence(arg.doc))
  end
  if sig.index and not sig.index.out and require("moth.binding.out").takes(sig) then
    out[#out + 1] = "---@field out? moth.Tensor|moth.Tensor[] receives the results"
  end
  out[#out + 1] = "---@field [integer] any"
end

-- The position of the last required argument.
local function last_required(args)
  for i = #args, 1, -1 do if args[i].required then return i end end
  return 0
end

-- The types of an argument; with the table of named arguments, if that may take its place.
local function type_with(args, i, table_type)
  local known = type_of_arg(args[i])
  if table_type and i > last_required(args) + 1 and known ~= "any" then
    known = known .. "|" .. table_type
  end
  return known
end

-- "input: moth.Tensor, dim?: moth.int": the arguments from `first` to `last`.
local function listed(args, first, last, table_type)
  local list = {}
  for i = first, last do
    list[#list + 1] = parameter(args[i].name) .. (args[i].required and ": " or "?: ")
      .. type_with(args, i, table_type)
  end
  return list
end

-- The other forms of a call: all arguments in a table, the last ones in a table, sizes as a list.
-- @param first  the first argument to list: 2 for a method, whose self is in `own`
local function overloads(sig, first, table_type, own, result)
  local out, args = {}, sig.args
  local function add(list)
    if own then table.insert(list, 1, own) end
    out[#out + 1] = format("---@overload fun(%s)%s", concat(list, ", "), result)
  end
  for last = first - 1, math.min(last_required(args), #args - 1) do
    local list = listed(args, first, last)
    list[#list + 1] = (last == 0 and "args" or "names") .. ": " .. table_type
    add(list)
  end
  if sig.row then
    local list = listed(args, first, sig.row - 1)
    list[#list + 1] = "...: moth.int|" .. table_type .. "|nil"
    add(list)
  end
  local row = #args == 1 and args[1].row.name
  if first == 1 and (row == "modules" or row == "tensors") then
    add {"...: " .. (row == "modules" and "moth.nn.Module" or "moth.Tensor") .. "|" .. table_type}
  end
  return out
end

-- The results of a call without optional results such as those of `return_indices`.
local function unasked(sig, results)
  local list = {}
  for i, known in ipairs(results) do
    local output = sig.outputs and sig.outputs[i]
    local more = output and output.asked or i > 1 and known == "any"
    if not more then list[#list + 1] = known end
  end
  return list
end

-- Adds the annotations of a function with a signature. Returns the names of its parameters.
local function add_signature(out, sig, first, table_type, own, results)
  local result = #results > 0 and ": " .. concat(results, ", ") or ""
  results = unasked(sig, results)
  local names = {}
  for i = first, #sig.args do
    local arg = sig.args[i]
    names[#names + 1] = parameter(arg.name)
    out[#out + 1] = format("---@param %s%s %s %s", parameter(arg.name),
      arg.required and "" or "?", type_with(sig.args, i, table_type), sentence(arg.doc))
  end
  for i, known in ipairs(results) do
    local output = sig.outputs and sig.outputs[i]
    local name = output and output.name:match "^[%a_][%w_]*$"
    out[#out + 1] = "---@return " .. known .. (name and " " .. parameter(name) or "")
  end
  for _, line in ipairs(overloads(sig, first, table_type, own, result)) do
    out[#out + 1] = line
  end
  return names
end

-- The parameters of a function without a signature.
local function add_plain(out, fn, method, results)
  local names, info = {}, debug.getinfo(fn, "u")
  for i = method and 2 or 1, info.nparams do
    local name = parameter(debug.getlocal(fn, i) or "arg" .. i)
    names[#names + 1] = name
    out[#out + 1] = "---@param " .. name .. "? any"
  end
  if info.isvararg then
    names[#names + 1] = "..."
    out[#out + 1] = "---@param ... any"
  end
  for _, known in ipairs(results) do out[#out + 1] = "---@return " .. known end
  return names
end

-- "function space.name(a, b) end"; the name may be a reserved word of Lua.
local function add_function(out, space, name, names, method)
  if not RESERVED[name] then
    out[#out + 1] = format("function %s%s%s(%s) end", space, method and ":" or ".", name,
      concat(names, ", "))
    return
  end
  if method then table.insert(names, 1, "self") end
  out[#out + 1] = format("%s[%q] = function(%s) end", space, name, concat(names, ", "))
end

local table_types = {} -- function -> the class of its table of named arguments

-- A function of a namespace.
local function add_call(out, space, path, name, fn)
  local sig = bind.signature(class.written(fn))
  if sig and not table_types[fn] then
    table_types[fn] = path .. "." .. name .. ".Args"
    add_names(sig, sig.args, table_types[fn])
  end
  out[#out + 1] = ""
  doc_lines(out, sentence(help.doc(fn)))
  local names
  if sig then
    names = add_signature(out, sig, 1, table_types[fn], nil, types.results(sig, fn))
  else
    names = add_plain(out, class.written(fn), false,
      {types.functions[name] or name:find "^is_" and "boolean" or "any"})
  end
  add_function(out, space, name, names)
end

-- ---- classes ----

-- The public methods of a class that its public base does not have, sorted: {name, function}.
local function methods_of(object)
  local list, base = {}, class.base(object)
  while base and not paths[base] do base = class.base(base) end
  for _, name in ipairs(class.methods(object)) do
    local fn = object[name]
    if name:find "^%a" and name ~= "signature" and name ~= "init"
       and not (base and rawequal(base[name], fn)) then
      list[#list + 1] = {name, fn}
    end
  end
  return list, base
end

local DISTRIBUTION = {mean = "moth.Tensor", stddev = "moth.Tensor", variance = "moth.Tensor",
  mode = "moth.Tensor", support = "moth.distributions.constraints.Constraint"}

-- The fields of an instance: a list of {name, type}.
local function fields_of(object, instance, sig)
  local known, list = {}, {}
  local function add(name, value, arg)
    if type(name) == "string" and name:find "^%a[%w_]*$" and value ~= nil
       and type(value) ~= "function" then
      known[name] = type_of(value)
      local vague = known[name] == "any" or known[name] == "number"
      if vague and arg then known[name] = type_of_arg(arg) end
    end
  end
  if paths[object] == "moth.distributions.Distribution" then known = DISTRIBUTION end
  if paths[object] == "moth.nn.Module" then
    known.training = "boolean"
    list[1], list[2] = {"[integer]", "any"}, {"[table]", "any"}
  elseif not instance then
    list[1] = {"[string]", "any"}
  end
  for name, value in pairs(instance or {}) do add(name, value) end
  for _, arg in ipairs(instance and sig and sig.args or {}) do
    local fine, value = pcall(function() return instance[arg.name] end)
    if fine then add(arg.name, value, arg) end
  end
  if instance and class.isinstance(instance, require "moth.nn.module") then
    for _, row in ipairs(instance:_members()) do add(row[1], row[2]) end
    for _, row in ipairs(instance:_children()) do add(row[1], row[2]) end
  end
  for name, of in pairs(known) do list[#list + 1] = {name, of} end
  table.sort(list, function(a, b) return a[1] < b[1] end)
  return list
end

-- The call of an instance: the forward of a module, a step of a loop, ...
local function call_of(object, taken, results)
  local forward = object.forward
  if type(forward) ~= "function" or forward == require("moth.nn.module").forward then
    return "---@overload fun(...: any): any"
  end
  local sig, list = bind.signature(class.written(forward)), {}
  local info = debug.getinfo(class.written(forward), "u")
  for i = 1, sig and #sig.args or info.nparams - 1 do
    local arg = sig and sig.args[i]
    local name = parameter(arg and arg.name or debug.getlocal(class.written(forward), i + 1))
    local of = taken and taken[i] or "any"
    list[i] = arg and listed(sig.args, i, i)[1] or of == "any" and name .. "?: any"
      or name .. ": " .. of
  end
  list[#list + 1] = "...: any"
  return format("---@overload fun(%s): %s", concat(list, ", "),
    results and #results > 0 and concat(results, ", ") or "any")
end

-- A method of instances; its class is called `own` in the file.
local function add_method(out, name, fn)
  local sig = bind.signature(class.written(fn))
  local results = {types.methods[name] or "any"}
  out[#out + 1] = ""
  doc_lines(out, sentence(help.doc(fn)))
  local names
  if sig and type(fn) == "function" and sig.args[1] and name ~= "forward" then
    names = add_signature(out, sig, 1, "table", "self: self", results)
  else
    names = add_plain(out, class.written(fn), true, results)
  end
  add_function(out, "object", name, names, true)
end

-- A class: the type of its instances, and the type of the class table, which can be called and
-- inherited.
local function add_class(out, space, short, name, object)
  local path = paths[object]
  local sig = object.signature and bind.signature(object.signature)
  local instance, taken, results = types.observed(object, short .. "." .. name, sig)
  local methods, base = methods_of(object)
  local doc = sentence(help.doc(object))
  out[#out + 1] = ""
  doc_lines(out, doc)
  out[#out + 1] = "---@class " .. path .. (base and ": " .. paths[base] or "")
  for _, field in ipairs(fields_of(object, instance, sig)) do
    out[#out + 1] = format("---@field %s %s", field[1], field[2])
  end
  local meta = instance and getmetatable(instance)
  if object.forward or meta and rawget(meta, "__call") then
    out[#out + 1] = call_of(object, taken, results)
  end
  out[#out + 1] = "do\nlocal object = {}"
  for _, row in ipairs(methods) do add_method(out, row[1], row[2]) end
  out[#out + 1] = "end"
  if sig then add_names(sig, sig.args, path .. ".Args") end
  out[#out + 1] = ""
  doc_lines(out, doc)
  out[#out + 1] = "---@class " .. path .. ".Class: moth.Class"
  if sig and #sig.args > 0 then
    out[#out + 1] = format("---@overload fun(%s): %s",
      concat(listed(sig.args, 1, #sig.args, path .. ".Args"), ", "), path)
    for _, line in ipairs(overloads(sig, 1, path .. ".Args", nil, ": " .. path)) do
      out[#out + 1] = line
    end
  else
    out[#out + 1] = format("---@overload fun(...: any): %s", path)
  end
  out[#out + 1] = format("%s.%s = {}", space, name)
end

-- ---- files ----

-- A value that is neither a function nor a class.
local function add_value(out, space, path, name, value)
  local of = type_of(value)
  if value == lib.none or value == class then of = "any" end
  for _, place in ipairs(places.list) do
    if rawequal(places.space(place), value) then of = place.path end
  end
  local meta = type(value) == "table" and getmetatable(value)
  if of == "any" and type(meta) == "table" and rawget(meta, "__call") then
    of = path .. "." .. name -- such as nn.Parameter
    out[#out + 1] = format("\n---@class %s\n---@overload fun(...: any): %s", of,
      path == "moth.nn" and name ~= "class" and "moth.Tensor" or "any")
  else
    out[#out + 1] = "\n---@type " .. of
  end
  out[#out + 1] = format("%s.%s = %s", space, name, type(value) == "table" and "{}"
    or type(value) == "string" and format("%q", value) or tostring(tonumber(value) or 0)
      :gsub("^%-?n?[ai]n[nf]?$", "0/0"))
end

local described = {} -- class -> true, once its type is written

-- The file of a namespace.
local function page_of(place)
  local space, path = places.space(place), place.path
  local name_of_space = parameter(path:match "[%w_]+$")
  local out = {"---@meta " .. path, "-- Made by `moth docs --stubs`: " .. place.doc .. ".", "",
    "---@class " .. path, format("local %s = {}", name_of_space)}
  for _, name in ipairs(places.names(place)) do
    local value = space[name]
    if class.isclass(value) and not described[value] then
      described[value] = true
      add_class(out, name_of_space, place.short, name, value)
    elseif class.isclass(value) then
      out[#out + 1] = format("\n---@type %s.Class\n%s.%s = {}", paths[value], name_of_space, name)
    elseif type(value) == "function" then
      add_call(out, name_of_space, path, name, value)
    elseif value ~= nil then
      add_value(out, name_of_space, path, name, value)
    end
  end
  out[#out + 1] = "\nreturn " .. name_of_space
  return concat(out, "\n") .. "\n"
end

local COMMON = [[
---@alias moth.int integer|number

---@class moth.Class
---@field [string] any

---@class moth.Size
---@field [integer] integer

---@class moth.dtype
---@field name string
---@field itemsize integer

---@class moth.device
---@field type string
---@field index integer
]]

-- The file of tensors: fields, operators, methods.
local function tensor_page()
  local out = {"---@meta moth.Tensor", "-- Made by `moth docs --stubs`: tensors.", "", COMMON,
    "---@class moth.Tensor"}
  local known = fields.of "x"
  for _, name in ipairs(known.names) do
    out[#out + 1] = format("---@field %s %s %s", name, types.fields[name] or "moth.Tensor",
      (known.docs[name]:gsub("%s+", " ")))
  end
  for _, key in ipairs {"integer", "table", "moth.Tensor"} do
    out[#out + 1] = format("---@field [%s] moth.Tensor", key)
  end
  for _, name in ipairs(OPERATORS) do
    out[#out + 1] = "---@operator " .. name .. "(any): moth.Tensor"
  end
  out[#out + 1] = "---@operator unm: moth.Tensor\n---@operator len: integer\nlocal Tensor = {}"
  local written = require("moth.tensor").written()
  local names, seen = {}, {}
  for _, name in ipairs(require("moth.tensor").names(true)) do
    if not seen[name] and name:find "^%a" then names[#names + 1], seen[name] = name, true end
  end
  for _, name in ipairs {"int", "short"} do
    if not seen[name] then names[#names + 1] = name end
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local found, method = pcall(bind.method, name)
    local fn = written[name] or found and method
    local sig = fn and bind.signature(class.written(fn))
    out[#out + 1] = ""
    doc_lines(out, sentence(help.doc(fn)))
    if sig and sig.args[1] then
      local table_type = table_types[fn] or "table"
      add_function(out, "Tensor", name,
        add_signature(out, sig, 2, table_type, "self: self", types.results(sig, fn)), true)
    else
      local result = types.tensor_methods[name] or "moth.Tensor"
      add_function(out, "Tensor", name,
        add_plain(out, fn, true, result ~= "" and {result} or {}), true)
    end
  end
  out[#out + 1] = "\nreturn Tensor"
  return concat(out, "\n") .. "\n"
end

local MOST = 400000 -- bytes of a file

-- Adds the tables of named arguments to the files, as moth.Args, moth.Args2 and so on.
local function add_tables(pages)
  local out, size, count = nil, MOST, 0
  for _, text in ipairs(tables) do
    if size >= MOST and text:find("^\n%-%-%-@class") or not out then
      count, size = count + 1, 0
      local name = "moth.Args" .. (count > 1 and count or "")
      out = {"---@meta " .. name, "-- Made by `moth docs --stubs`: tables of named arguments."}
      pages[name .. ".lua"] = out
    end
    out[#out + 1], size = text, size + #text + 1
  end
  for i = 1, count do
    local name = "moth.Args" .. (i > 1 and i or "") .. ".lua"
    pages[name] = concat(pages[name], "\n") .. "\n"
  end
end

--- The annotation files: a table of name -> text.
function stubs.pages()
  table_types, described = {}, {}
  tables = {}
  for _, row in ipairs(places.classes()) do
    local place = row.path:gsub("^moth%.", "")
    paths[row.value] = "moth." .. place
  end
  local pages = {}
  for _, place in ipairs(places.list) do pages[place.path .. ".lua"] = page_of(place) end
  pages["moth.Tensor.lua"] = tensor_page()
  add_tables(pages)
  return pages
end

--- Writes the annotation files.
-- @param folder  exists; files in it of these names are replaced
function stubs.write(folder)
  for name, text in pairs(stubs.pages()) do
    local file, problem = io.open(folder .. "/" .. name, "wb")
    if not file then error(problem, 0) end
    file:write(text)
    file:close()
  end
end

return stubs
