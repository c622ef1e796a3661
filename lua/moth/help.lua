--- help.lua -- moth.help: what a function takes and gives, from the record that also runs it.
--
--     moth.help(F.conv2d)      moth.help "conv2d"      moth.help(nn.Conv2d)
--
-- What has no record, such as moth.scope, is shown by the comment that stands above it.

local bind = require "moth.bind"
local class = require "moth.class"
local errors = require "moth.error"
local kinds = require "moth.kinds"

local concat = table.concat

local help = {}

local SHIFTED = { dim = true, position = true, dims = true }

--- A default as a Lua user would write it: dimensions and positions count from 1.
function help.default(arg, lua)
  local text = arg.fallback
  if text == "" then return nil end
  if arg.choices and (arg.kind == "enum" or text:find("|", 1, true)) then
    return '"' .. arg.choices[1] .. '"'
  end
  local n = tonumber(text)
  if n and not lua and n >= 0 and SHIFTED[arg.row.name] then return tostring(n + 1) end
  if text == "cpu" then return '"cpu"' end
  return text
end

local function shown_kind(arg)
  local row = kinds.find(arg.kind)
  if arg.choices then
    return (row.numbers and "int|" or "") .. concat(arg.choices, "|")
  end
  if arg.number then return "tensor|number" end
  if row.name:match("^int%d$") then return row.name == "int1" and "int" or "int|{" ..
    ("int, "):rep(tonumber(row.name:sub(4)) - 1) .. "int}" end
  if row.name == "int2?" then return "int|{int|none, int|none}" end
  if row.name == "floats" then return "number|{number, ...}" end
  if row.name == "dims" then return "dim|{dim, ...}" end
  if row.name == "index" then return "positions" end
  if row.name == "ints" then return "int|{int, ...}" end
  return row.name
end

--- "conv2d(input, weight, bias = none, stride = 1) -> y"
function help.line(sig)
  local parts = {}
  for i, arg in ipairs(sig.args) do
    local default = help.default(arg, sig.lua)
    if arg.required and arg.choices then default = nil end
    parts[i] = default and arg.name .. " = " .. default or arg.name
  end
  local outputs = {}
  for i, output in ipairs(sig.outputs or {}) do
    outputs[i] = output.asked and "(" .. output.name .. ")" or output.name
  end
  local result = #outputs > 0 and " -> " .. concat(outputs, ", ") or ""
  return sig.name .. "(" .. concat(parts, ", ") .. ")" .. result
end

-- The first example as a call.
local function example(sig)
  local line = sig.examples:match("[^\n]+")
  if not line then return nil end
  local name = sig.name == "repeat" and '["repeat"]' or "." .. sig.name -- a word of Lua's
  return "moth" .. name .. "(" .. line:gsub("%s*%-%- domain:.*$", "") .. ")"
end

-- A file's name without the folder of the checkout.
local function shown_file(file)
  local root = errors.root
  if root and #root > 2 and file:sub(1, #root) == root then return file:sub(#root + 1) end
  return file
end

--- The whole text about a signature.
function help.page(sig)
  local lines = { help.line(sig) }
  if sig.alias then lines[#lines + 1] = "(another name of " .. sig.alias .. ")" end
  if sig.doc ~= "" then lines[#lines + 1] = sig.doc end
  local width = 0
  for _, arg in ipairs(sig.args) do width = math.max(width, #arg.name) end
  if #sig.args > 0 then lines[#lines + 1] = "" end
  for _, arg in ipairs(sig.args) do
    lines[#lines + 1] = ("  %-" .. width .. "s  %s (%s)"):format(arg.name, arg.doc, shown_kind(arg))
  end
  local call = example(sig)
  if call then lines[#lines + 1] = "\n  example: " .. call end
  if sig.method then
    lines[#lines + 1] = (call and "" or "\n") .. "  method:  x:" .. sig.name .. "(...)"
  end
  if sig.file then lines[#lines + 1] = "  source:  " .. shown_file(sig.file) end
  return concat(lines, "\n")
end

-- The lines of a file, or none where it cannot be read.
local function lines_of(source)
  local lines, file = {}, source:sub(1, 1) == "@" and io.open(source:sub(2))
  if not file then return lines end
  for line in file:lines() do lines[#lines + 1] = line end
  file:close()
  return lines
end

-- The `---` comment above a line, without its marks, or nil.
local function comment_above(lines, line)
  local text = {}
  local at = line - 1
  while at > 0 and lines[at] and lines[at]:find("^%s*%-%-") do
    table.insert(text, 1, (lines[at]:gsub("^%s*%-%-%-? ?", "")))
    if lines[at]:find("^%s*%-%-%-") then return concat(text, "\n") end
    at = at - 1
  end
end

-- What is written above a function.
local function written_above(fn)
  local info = debug.getinfo(class.written(fn), "S")
  return comment_above(lines_of(info.source), info.linedefined), info
end

-- What is written above a class's constructor or above the class.
local function class_comment(object)
  local init = class.written(object.init)
  local text, info = written_above(init)
  if text and rawget(class.of(object) or object, "init") then return text end
  local lines = lines_of(info.source)
  for i, line in ipairs(lines) do
    if line:find('class%("' .. class.typename(object) .. '"') then
      return (comment_above(lines, i))
    end
  end
end

local function of_class(object)
  local name = class.typename(object)
  local signature = object.signature and bind.signature(object.signature)
  local lines = { signature and help.page(signature) or name .. "(...)" }
  local text = class_comment(object)
  if text and signature then text = ("\n" .. text):gsub("\n@param.*$", ""):sub(2) end
  if text and text ~= "" then table.insert(lines, 1, text .. "\n") end
  local methods = {}
  for _, method in ipairs(class.methods(object)) do
    if method:sub(1, 1) ~= "_" and method ~= "signature" then methods[#methods + 1] = method end
  end
  if #methods > 0 then lines[#lines + 1] = "\n  methods: " .. concat(methods, ", ") end
  return concat(lines, "\n")
end

local namespaces = { "moth.nn", "moth.optim", "moth.data", "moth.nn.functional",
                     "moth.autograd" }

local function known_names()
  local list = {}
  for _, names in ipairs { require("moth").names(), require("moth.nn").names(),
                           bind.method_names() } do
    for _, name in ipairs(names) do list[#list + 1] = name end
  end
  for name in pairs(require("moth.tensor").methods) do list[#list + 1] = name end
  return list
end

local function overview()
  local op, rest = {}, {}
  for _, name in ipairs(bind.names()) do op[name] = true end
  for _, name in ipairs(require("moth").names()) do
    if not op[name] then rest[#rest + 1] = name end
  end
  return 'moth.help(F.conv2d), moth.help "conv2d", moth.help(nn.Conv2d): what a function takes and '
    .. "gives.\n\nOps, as moth.<op>, F.<op> and mostly x:<op>(): " .. concat(bind.names(), " ")
    .. "\n\nIn moth: " .. concat(rest, " ")
    .. "\n\nIn moth.nn: " .. concat(require("moth.nn").names(), " ")
end

local function named(name)
  local moth = require "moth"
  local short = name:match("([%w_]+)$") or name
  local ok, value = pcall(function() return moth[short] end)
  if ok and bind.signature(value) then return value end
  local method = require("moth.tensor").methods[short]
  if method and not (ok and value) then return method end
  for _, module in ipairs(namespaces) do
    local found, t = pcall(require, module)
    local there, object = pcall(function() return found and t[short] end)
    if there and object ~= nil and object ~= false then return object end
  end
  if ok and type(value) == "function" then return value end
  errors.argument("help", "what", "there is no '" .. name .. "'"
    .. errors.nearest(short, known_names()))
end

--- The text of help.
-- @param what  a function, a class, an instance, or a name
function help.text(what)
  if what == nil then return overview() end
  if type(what) == "string" then what = named(what) end
  if class.typename(what) then return of_class(class.of(what) or what) end
  local sig = bind.signature(what)
  if not sig and type(what) == "table" then
    sig = bind.signature(rawget(what, "signature"))
  end
  if sig then return help.page(sig) end
  if type(what) == "function" then
    local text, info = written_above(what)
    if info.what == "C" then return "a function written in C: Lua's own, or the host's" end
    return (text and text .. "\n\n" or "")
      .. ("a function, written at %s:%d"):format(info.short_src, info.linedefined)
  end
  return errors.describe(what)
end

--- Prints help.text(what).
function help.help(what) io.write(help.text(what), "\n") end

return setmetatable(help, { __call = function(_, what) return help.help(what) end })
