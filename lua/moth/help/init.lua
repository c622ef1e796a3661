--- init.lua -- moth.help: describes a function from the record that also checks its calls.
--
--     moth.help(F.conv2d)      moth.help "conv2d"      moth.help(nn.Conv2d)
--
-- Functions without a record, such as moth.scope, are described by the comment above their source.

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local errors = require "moth.error"
local dtype = require "moth.tensor.dtype"
local fields = require "moth.help.fields"
local layout = require "moth.tensor.layout"
local lib = require "moth.binding.lib"
local places = require "moth.help.places"
local samples = require "moth.help.samples"

local concat = table.concat

local help = {}

-- Joins words into lines; editor.lua uses it too.
local function filled(...) return (require("moth.repl.show").filled(...)) end

local SHIFTED = {dim = true, position = true, dims = true}

--- A default as a Lua user writes it: dimensions and positions count from 1.
function help.default(arg, lua)
  local text = arg.fallback
  if text == "" then return nil end
  if arg.kind == "enum" and arg.optional and arg.default == nil then return "none" end
  if arg.choices and (arg.kind == "enum" or text:find("|", 1, true)) then
    return '"' .. (type(arg.default) == "string" and arg.default or arg.choices[1]) .. '"'
  end
  local n = tonumber(text)
  if n and not lua and n >= 0 and SHIFTED[arg.row.name] then return tostring(n + 1) end
  if text == "cpu" then return '"cpu"' end
  return text
end

local function shown_kind(arg)
  local row = require("moth.binding.kinds").find(arg.kind)
  local sizes = tonumber(row.name:match("^int(%d)$") or row.name:match("^int(%d)%-or%-enum$"))
  local ints = sizes and (sizes == 1 and "int" or "int|{" .. ("int, "):rep(sizes - 1) .. "int}")
  if arg.choices then return (ints and ints .. "|" or "") .. concat(arg.choices, "|") end
  if arg.number then return "tensor|number" end
  if ints then return ints end
  if row.name:match("^int%d%?$") then
    return "int|{int|none" .. (", int|none"):rep(tonumber(row.name:sub(4, 4)) - 1) .. "}"
  end
  if row.name == "floats" then return "number|{number, ...}" end
  if row.name == "dims" then return "dim|{dim, ...}" end
  if row.name == "index" then return "positions" end
  if row.name == "ints" then return "int|{int, ...}" end
  return row.shown or row.name
end

local OUT = {name = "out", kind = "tensor", row = require("moth.binding.kinds").find("tensor"),
             doc = "tensor, or a list of one for each result, that receives the results; by name",
             fallback = "none"}

-- The arguments of a function, with `out`, which its signature does not list.
local function args_of(sig)
  if sig.index and sig.index.out or not require("moth.binding.out").takes(sig) then
    return sig.args
  end
  local list = {unpack(sig.args)}
  list[#list + 1] = OUT
  return list
end

-- "(input, weight, bias = none, stride = 1) -> y"
local function arguments(sig)
  local parts = {}
  for i, arg in ipairs(args_of(sig)) do
    local default = help.default(arg, sig.lua)
    if arg.required and arg.choices then default = nil end
    parts[i] = default and arg.name .. " = " .. default or arg.name
  end
  local outputs = {}
  for i, output in ipairs(sig.outputs or {}) do
    outputs[i] = output.asked and "(" .. output.name .. ")" or output.name
  end
  local result = #outputs > 0 and " -> " .. concat(outputs, ", ") or ""
  return "(" .. concat(parts, ", ") .. ")" .. result
end

--- "conv2d(input, weight, bias = none, stride = 1) -> y"
function help.line(sig) return sig.name .. arguments(sig) end

-- The first example as a call of the function at `path`.
local function example(sig, path)
  local line = sig.examples:match("[^\n]+")
  if not line then return nil end
  path = path:gsub("%.repeat$", '["repeat"]') -- a reserved word of Lua
  return path .. "(" .. line:gsub("%s*%-%- domain:.*$", "") .. ")"
end

-- A file's name without the folder of the checkout.
local function shown_file(file)
  local root = errors.root
  if root and #root > 2 and file:sub(1, #root) == root then return file:sub(#root + 1) end
  return file
end

-- Adds a line for each argument.
local function add_arguments(lines, sig)
  local args, width = args_of(sig), 0
  for _, arg in ipairs(args) do width = math.max(width, #arg.name) end
  for _, arg in ipairs(args) do
    lines[#lines + 1] = ("  %-" .. width .. "s  %s (%s)"):format(arg.name, arg.doc, shown_kind(arg))
  end
end

-- Checks that x:name(...) calls the function with this path.
local function is_method(fn, sig, place)
  local found, method = pcall(bind.method, sig.name)
  if not found or not method then return false end
  return method == fn or place ~= nil and place.path == "moth"
end

-- The lines of a file; an empty list if it cannot be read.
local function lines_of(source)
  local lines, file = {}, source:sub(1, 1) == "@" and io.open(source:sub(2))
  if not file then return lines end
  for line in file:lines() do lines[#lines + 1] = line end
  file:close()
  return lines
end

-- The `---` comment above a line, without the comment marks and with each tag in a line of its own,
-- or nil.
local function comment_above(lines, line)
  local text = {}
  local at = line - 1
  while at > 0 and lines[at] and lines[at]:find("^%s*%-%-") do
    table.insert(text, 1, (lines[at]:gsub("^%s*%-%-%-? ?", "")))
    if lines[at]:find("^%s*%-%-%-") then
      return (concat(text, "\n"):gsub("(%S) @return ", "%1\n@return "))
    end
    at = at - 1
  end
end

-- The comment above a function.
local function written_above(fn)
  local info = debug.getinfo(class.written(fn), "S")
  return comment_above(lines_of(info.source), info.linedefined), info
end

-- The comment above a table that is called like a class, such as nn.Parameter.
local function made_comment(object, name)
  local meta = type(object) == "table" and getmetatable(object)
  if type(meta) ~= "table" or type(meta.__call) ~= "function" then return nil end
  local lines = lines_of(debug.getinfo(meta.__call, "S").source)
  for i, line in ipairs(lines) do
    if line:find("%." .. name .. " = setmetatable") or line:find('^[%w_.]+%("' .. name .. '"') then
      return (comment_above(lines, i))
    end
  end
end

-- The names of a function's parameters, without self.
local function parameters(fn, with_self)
  local info, list = debug.getinfo(fn, "u"), {}
  for i = 1, info.nparams do
    local name = debug.getlocal(fn, i)
    if name ~= "self" or with_self then list[#list + 1] = name or "?" end
  end
  if info.isvararg then list[#list + 1] = "..." end
  return "(" .. concat(list, ", ") .. ")"
end

-- Adds an example of one or several lines.
local function add_example(lines, line, text)
  if line then lines[#lines + 1] = "\n  example: " .. line end
  if text then lines[#lines + 1] = "\n  example:\n    " .. text:gsub("\n", "\n    ") end
end

-- The parts of the description of a function with a signature, for help and for the reference.
-- @return a table: path, sig, head, alias, doc, returns, call (an example), method, source
local function record(fn, sig, path)
  local home, place = places.home(fn, sig.name, sig.name:match "[%w_]+$")
  local doc, returns = sig.doc, nil
  if doc == "" then
    doc = type(fn) == "function" and written_above(fn) or made_comment(fn, sig.name)
    returns = doc and ("\n" .. doc .. "\n@"):match "\n@return%s+(.-)\n@"
    doc = doc and ("\n" .. doc):gsub("\n@%l.*$", ""):sub(2) -- listed below
  end
  return {
    path = home, sig = sig, head = (home or path or sig.name) .. arguments(sig), alias = sig.alias,
    doc = doc, returns = returns, call = home and example(sig, home),
    method = is_method(fn, sig, place), source = sig.file and shown_file(sig.file),
  }
end

-- The full help text of a function with a signature.
local function page(fn, sig, path)
  local r = record(fn, sig, path)
  local lines = {r.head}
  if r.alias then lines[#lines + 1] = "(another name of " .. r.alias .. ")" end
  if r.doc and r.doc ~= "" then lines[#lines + 1] = r.doc end
  if #args_of(sig) > 0 then lines[#lines + 1] = "" end
  add_arguments(lines, sig)
  if r.returns then lines[#lines + 1] = "\n  returns: " .. r.returns:gsub("\n", "\n  ") end
  if r.call then add_example(lines, r.call)
  elseif r.path then add_example(lines, samples.known(r.path)) end
  if r.method then
    lines[#lines + 1] = (r.call and "" or "\n") .. "  method:  x:" .. sig.name .. "(...)"
  end
  if r.source then lines[#lines + 1] = "  source:  " .. r.source end
  return concat(lines, "\n")
end

-- The constraint on an argument, in the words of its error: "an integer, at least 1".
local function needed(arg)
  local text = (arg.row.need or ""):gsub(" is needed", ""):gsub(" are needed", "")
  local bounds = arg.bounds
  if arg.choices and arg.kind == "enum" then text = "one of the names" end
  if not bounds then return text end
  if bounds[1] then
    text = text .. (bounds.open and ", above " or ", at least ") .. tostring(bounds[1])
  end
  return bounds[2] and bounds[2] < math.huge and text .. ", at most " .. tostring(bounds[2]) or text
end

--- The parts of the description of a function with a signature; nil for other functions.
-- @return a table: head, doc, alias, returns, call, method, source, and args, a list of
--         {name, kind, doc, default, need}
function help.parts(fn)
  local sig = type(fn) == "function" and bind.signature(class.written(fn))
  if not sig then return nil end
  local r = record(fn, sig)
  r.args = {}
  for i, arg in ipairs(args_of(sig)) do
    r.args[i] = {name = arg.name, kind = shown_kind(arg), doc = arg.doc,
                 default = help.default(arg, sig.lua), need = needed(arg)}
  end
  return r
end

local class_comment, doc_of_function

--- The documentation of a function or a class, without arguments and examples; "" if it has none.
function help.doc(what)
  local sig = bind.signature(type(what) == "function" and class.written(what) or what)
  if type(what) == "table" then
    if not class.isclass(what) then return "" end
    local text = rawget(what, "_doc") or class_comment(what)
    if text then return text end
    local path = places.home(what, class.typename(what))
    return path and path:find "^nn%.[^.]+$" and doc_of_function(what, class.typename(what)) or ""
  end
  return sig and sig.doc ~= "" and sig.doc or type(what) == "function" and written_above(what) or ""
end

-- The doc that a base class has for a method without its own doc: Normal's log_prob has the doc of
-- Distribution.
local function inherited_comment(fn, name)
  for _, row in ipairs(places.methods(name)) do
    local base = class.written(row.value) == class.written(fn) and class.base(row.class)
    while base do
      local method = rawget(base, name)
      local text = type(method) == "function" and written_above(method)
      if text then return text end
      base = class.base(base)
    end
  end
end

-- Formats the tags of a comment: "@param path  of the file" becomes "  path  of the file".
local function untagged(text)
  local lines, tagged = {}, false
  for line in (text .. "\n"):gmatch "(.-)\n" do
    local tag = line:match "^@%a+"
    if tag and not tagged then lines[#lines + 1] = "" end
    tagged = tagged or tag ~= nil
    line = line:gsub("^@param%s+", ""):gsub("^@return%s+", "returns: ")
    lines[#lines + 1] = (tagged and line ~= "" and "  " or "") .. line
  end
  return concat(lines, "\n")
end

-- The help text of a function without a record.
local function of_function(fn, path)
  local text, info = written_above(fn)
  if info.what == "C" then return "a function written in C: Lua's own, or the host's" end
  local head = lines_of(info.source)[info.linedefined] or ""
  if not text then text = inherited_comment(fn, head:match("[:.]([%w_]+)%s*%(") or "") end
  path = path or places.home(fn, head:match("([%w_]+)%s*%(") or "") or places.reach(fn)
  local names = parameters(class.written(fn), not path)
  local lines = {path and path .. names}
  lines[#lines + 1] = text and untagged(text)
  if path then add_example(lines, samples.known(path)) end
  lines[#lines + 1] = (#lines > 0 and "\n" or "") .. ("a function%s, written at %s:%d"):format(
    path and "" or names:gsub("^%(%)$", ""), shown_file(info.source:sub(2)), info.linedefined)
  return concat(lines, "\n")
end

-- The comment above a class's constructor or above the class.
function class_comment(object)
  local init = class.written(object.init)
  local text, info = written_above(init)
  if text and rawget(class.of(object) or object, "init") then return text end
  local seen, sources = {}, {info.source} -- the constructor may be in the file of a base class
  for _, fn in pairs(class.of(object) or object) do
    local at = type(fn) == "function" and debug.getinfo(class.written(fn), "S").source
    if at and not seen[at] then seen[at], sources[#sources + 1] = true, at end
  end
  for _, source in ipairs(sources) do
    local lines = lines_of(source)
    for i, line in ipairs(lines) do
      local call = '[%w_.(]+%("' .. class.typename(object) .. '"'
      local made = line:find("= " .. call) or line:find("^" .. call)
      local comment = made and comment_above(lines, i)
      if comment then return comment end
    end
  end
end

-- ---- classes ----

-- The call of an instance of a module class: a line, and its arguments if they are known.
local function add_call(lines, object)
  local forward = object.forward
  if type(forward) ~= "function" or forward == require("moth.nn.module").forward then return end
  forward = class.written(forward)
  local sig = bind.signature(forward)
  if not sig then
    local own = class.of(object) or object
    lines[#lines + 1] = (class.issubclass(own, require("moth.nn").Module) and "\n  net"
      or "\n  object") .. parameters(forward)
    return
  end
  lines[#lines + 1] = "\n  net" .. arguments(sig)
  add_arguments(lines, sig)
end

-- The names of the public methods; the methods of the class itself come first.
local function add_methods(lines, object)
  local own, inherited = {}, {}
  for _, name in ipairs(class.methods(object)) do
    if name:sub(1, 1) ~= "_" and name ~= "signature" and name ~= "init" then
      local list = rawget(object, name) ~= nil and own or inherited
      list[#list + 1] = name
    end
  end
  if #own > 0 then
    lines[#lines + 1] = "\n  methods:   " .. filled(own, " ", "    ")
  end
  local base = class.base(object)
  if #inherited > 0 and base then
    lines[#lines + 1] = ("%s  from %s:  %s"):format(#own > 0 and "" or "\n",
      class.typename(base), filled(inherited, " ", "    "))
  end
end

-- The doc of the function that a layer wraps: the function named in the class's _of, or the
-- function of the same name, such as F.max_pool2d for MaxPool2d.
function doc_of_function(object, name)
  local snake = name:gsub("ReLU", "Relu"):gsub("([%l%d])(%u)", "%1_%2")
    :gsub("(%u)(%u%l)", "%1_%2"):lower()
  for _, fname in ipairs {object._of or name:lower(), snake, (snake:gsub("%dd$", ""))} do
    local found, fn = pcall(function() return require("moth.nn.functional")[fname] end)
    local sig = found and bind.signature(fn)
    if sig and sig.doc ~= "" then return ("As F.%s: %s"):format(fname, sig.doc) end
  end
end

-- @param reached  the path of the requested object, if it is not the class itself
local function of_class(object, reached)
  local name = class.typename(object)
  local signature = object.signature and bind.signature(object.signature)
  local path = places.home(object, signature and signature.name or name, name)
  local lines = {}
  local text = rawget(class.of(object) or object, "_doc") or class_comment(object)
  if text and signature then text = ("\n" .. text):gsub("\n@param.*$", ""):sub(2) end
  if not text and path and path:find("^nn%.[^.]+$") then text = doc_of_function(object, name) end
  local head = signature and help.line(signature)
    or name .. parameters(class.written(object.init))
  lines[1] = (path and path:match("^(.*%.)") or "") .. head
  if text and text ~= "" then lines[2] = untagged(text) end
  if signature and #signature.args > 0 then
    lines[#lines + 1] = ""
    add_arguments(lines, signature)
  end
  add_call(lines, object)
  if path or reached then add_example(lines, samples.of(path or reached, signature)) end
  add_methods(lines, object)
  return concat(lines, "\n")
end

-- ---- namespaces and names ----

local function of_place(place)
  local path = place.path
  local short = place.short ~= path and (" (%s in scripts)"):format(place.short) or ""
  local names = places.names(place)
  return ("%s%s: %s.\n\n  %s\n\n  moth.help \"%s.%s\" says more of one."):format(path, short,
    place.doc, filled(names, " ", "  "), place.short, names[1])
end

local function overview()
  local is_op = {}
  for _, name in ipairs(bind.names()) do is_op[name] = true end
  local text = {'moth.help(F.conv2d), moth.help "conv2d", moth.help(nn.Conv2d), moth.help "optim":'
    .. "\narguments and results of a function, methods of a class, names of a namespace.",
    "\nOps, as moth.<op>, F.<op> and mostly x:<op>():\n  " .. filled(bind.names(), " ", "  ")}
  for _, place in ipairs(places.list) do
    local rest = {}
    for _, name in ipairs(places.names(place)) do
      local listed = place.path == "moth" or place.short == "F"
      if not (listed and is_op[name]) then rest[#rest + 1] = name end
    end
    if #rest > 0 then
      text[#text + 1] = ("\nIn %s, %s:\n  %s"):format(place.path, place.doc,
        filled(rest, " ", "  "))
    end
  end
  return concat(text, "\n")
end

-- The text of a value that is neither a function nor a class.
local function of_value(value)
  if dtype.codes[value] then
    local aliases = {}
    for name, object in pairs(dtype.by_name) do
      if object == value and name ~= value.name then aliases[#aliases + 1] = "moth." .. name end
    end
    return ("moth.%s: an element type, %d byte%s each%s. moth.ones(3, {dtype = moth.%s}), "
      .. "x:to(moth.%s)"):format(value.name, value.itemsize, value.itemsize == 1 and "" or "s",
      #aliases > 0 and ", also " .. concat(aliases, ", ") or "", value.name, value.name)
  elseif layout.docs[value] then
    return ("moth.%s: a memory format, %s."):format(value, layout.docs[value])
  elseif layout.kinds[value] then
    return ("moth.%s: a layout, %s."):format(value, layout.kinds[value])
  elseif value == lib.none then
    return "moth.none: PyTorch's None where an argument is given: "
      .. "x:sum(moth.none, {keepdim = true})"
  elseif value == class then
    return 'nn.class("Net", nn.Module): creates a class. function Net:init(...) is its'
      .. "\nconstructor, Net(...) creates an object; Base.init(self, ...) is a super call. The "
      .. "base may be\nany class of Moth or of your own, or none; tables behind it are mixed in."
  elseif value == require("moth.backends").cudnn then
    return "moth.backends.cudnn: how cuDNN, NVIDIA's library for convolutions and attention, is "
      .. "used.\n\n"
      .. "  enabled        false: only Moth's kernels are used. Default: true\n"
      .. "  allow_tf32     true: factors of float32 convolutions have 11 bits, which is several\n"
      .. "                 times faster. Default: false, unlike PyTorch's\n"
      .. "  benchmark      true: for convolutions of a new shape several of cuDNN's plans are run\n"
      .. "                 and the fastest is kept, instead of the one that its heuristics name.\n"
      .. "                 It may differ from run to run, and with it the last bits of results:\n"
      .. "                 use_deterministic_algorithms turns this off. Attention of a shape is\n"
      .. "                 given to cuDNN at once, not only when it has come often enough to be\n"
      .. "                 worth compiling for. Default: false\n"
      .. "  deterministic  always true; setting it changes nothing: no other plans are taken for\n"
      .. "                 convolutions. Gradients of attention repeat their last bits only with\n"
      .. "                 use_deterministic_algorithms, or enable_cudnn_sdp(false) of\n"
      .. "                 moth.backends.cuda, which leave it to Moth's own kernels\n"
      .. "  is_available() whether cuDNN was found; version() its number, or nil"
      .. "\n\n  example: moth.backends.cudnn.benchmark = true"
  elseif value == require("moth.profiler").ProfilerActivity then
    return 'moth.profiler.ProfilerActivity: CPU is "cpu", CUDA is "cuda"; the argument '
      .. "`activities` of a\nprofile takes either."
      .. "\n\n  example: moth.profiler.profile{f, activities = {"
      .. "moth.profiler.ProfilerActivity.CPU}}"
  elseif value == require("moth").newaxis then
    return "moth.newaxis: in an index, a new dimension of size 1: x[{moth.newaxis, 1}]"
  end
end

-- The paths of names that contain a given text: at most eight.
local function containing(piece)
  local list = {}
  for _, place in ipairs(#piece > 2 and places.list or {}) do
    for _, name in ipairs(places.names(place)) do
      if #list < 8 and name:lower():find(piece:lower(), 1, true) then
        list[#list + 1] = place.short .. "." .. name
      end
    end
  end
  return #list > 0 and "; there are " .. concat(list, ", ") or ""
end

local COMMANDS = " test run bench doctor docs jupyter version "

-- For an unknown name: a list of entries whose documentation has that word; raises if there are
-- none.
local function refuse(name)
  local short = name:match("([%w_]+)$") or name
  local known = places.all()
  for method in pairs(require("moth.tensor").written()) do known[#known + 1] = method end
  for _, method in ipairs(bind.method_names()) do known[#known + 1] = method end
  for _, method in ipairs(class.methods(require("moth.nn").Module)) do
    known[#known + 1] = method
  end
  for _, field in ipairs(fields.names()) do known[#known + 1] = field end
  local command = COMMANDS:find(" " .. name .. " ", 1, true)
  local hint = command and ("; ./moth %s is a command, and ./moth help lists them"):format(name)
    or errors.nearest(short, known)
  if hint == "" then hint = containing(short) end
  if hint == "" then
    local found = require("moth.help.lookup").text(name)
    if found then return found end
  end
  errors.argument("help", "what", "there is no '" .. name .. "'" .. hint)
end

-- A tensor method that is not also a function of a namespace.
local function tensor_method(name)
  local method = require("moth.tensor").written()[name]
  if method then return method end
  local found, fn = pcall(bind.method, name)
  return found and fn or nil
end

-- Checks that a base of a class has a method of that name.
local function inherits(object, name)
  local base = class.base(object)
  return base ~= nil and type(base[name]) == "function"
end

-- All values with the name, the best match first: {path =, value =}.
local function candidates(short, before)
  local list = {}
  local place = before and places.of(before)
  for _, row in ipairs(places.find(short)) do
    local at = place and row.path == place.short .. "." .. short and 1 or #list + 1
    table.insert(list, at, row)
  end
  local method = tensor_method(short)
  local same = false
  for _, row in ipairs(list) do
    same = same or row.value == method or row.path == "moth." .. short
  end
  if method and not same then -- a name usually means a function written in Lua
    local first = not place and require("moth.tensor").written()[short] == method
    table.insert(list, first and 1 or #list + 1, {path = "x:" .. short, value = method})
  end
  if #list > 0 and not before then return list end
  for _, row in ipairs(places.methods(short)) do
    if before and row.path:match("([%w_]+):") == before:match("([%w_]+)$") then return {row} end
    if not inherits(row.class, short) then list[#list + 1] = row end
  end
  return list
end

-- The help text of a name, and a list of the other values with that name.
local function of_name(name)
  if name:find "%s" then
    local found = require("moth.help.lookup").text(name)
    if found then return found end
  end
  local place = places.of(name)
  if place then return of_place(place) end
  local before, short = name:match("^(.-)[.:]?([%w_]+)$")
  if not short then refuse(name) end
  if name == "ctx" then return help.text(require("moth.autograd").FunctionCtx) end
  local list = candidates(short, before ~= "" and before or nil)
  local known, others = fields.find(short, before), {}
  local is_field = known[1] and (#list == 0 or known[1].path == name)
  if is_field then
    table.insert(list, 1, table.remove(known, 1))
  elseif #list == 0 then
    return refuse(name)
  end
  for i = 2, #list do others[#others + 1] = list[i].path end
  for _, field in ipairs(known) do others[#others + 1] = field.path end
  local first = list[1]
  local text = is_field and first.text or help.text(first.value, first.path)
  if #others == 0 then return text end
  return text .. "\n\n  also of that name: " .. filled(others, " ", "    ")
end

--- Checks that help describes a table by more than its type.
function help.knows(value)
  return class.typename(value) ~= nil or places.of(value) ~= nil or of_value(value) ~= nil
end

--- The text that help prints.
-- @param what  a function, a class, an instance, a namespace, or a name
-- @param path  the path of a method, because a method does not know its class: "nn.Module:train"
function help.text(what, path)
  if what == nil then return overview() end
  if layout.docs[what] or layout.kinds[what] then return of_value(what) end
  if type(what) == "string" then return of_name(what) end
  local value = type(what) == "table" and of_value(what)
  if value then return value end
  local place = type(what) == "table" and places.of(what)
  if place then return of_place(place) end
  if class.typename(what) then return of_class(class.of(what) or what, path) end
  local fn = what
  local sig = bind.signature(type(what) == "function" and class.written(what) or what)
  if not sig and type(what) == "table" then
    sig = bind.signature(rawget(what, "signature"))
  end
  if sig then return page(fn, sig, path) end
  if type(what) == "function" then return of_function(what, path) end
  return errors.describe(what)
end

--- Prints help.text(what).
function help.help(what) io.write(help.text(what), "\n") end

return setmetatable(help, {__call = function(_, what) return help.help(what) end})
