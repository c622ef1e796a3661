--- docs.lua -- `moth docs`: writes the reference as Markdown, from the records that help reads,
-- and builds a site of the guide and the reference.
--
--     moth docs FOLDER           writes a page for each namespace, and an index
--     moth docs --site FOLDER    builds a site of docs/ and the reference, by MkDocs
--     moth docs --stubs FOLDER   writes annotation files for editors (stubs)

local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local errors = require "moth.error"
local fields = require "moth.help.fields"
local help = require "moth.help"
local lib = require "moth.binding.lib"
local places = require "moth.help.places"
local registry = require "moth.binding.registry"
local types = require "moth.help.stubs.types"

local docs = {}

local function write(path, text)
  local file, problem = io.open(path, "wb")
  if not file then error(problem, 0) end
  file:write(text)
  file:close()
end

-- Escapes the characters of a text that Markdown would read as marks. Code is left as it is.
local function plain(text) return (text:gsub("[\\`*_<>|%[%]]", "\\%0")) end

local function read(path)
  local file = io.open(path, "rb")
  local text = file and file:read "*a"
  if file then file:close() end
  return text
end

-- The folder of the checkout, without a slash at its end; nil outside a checkout.
local function checkout()
  return errors.root and (errors.root == "" and "." or (errors.root:gsub("[/\\]$", "")))
end

local kernels -- name of an op -> the file of its GPU kernel

local function read_kernels(lfs, root, folder)
  for name in lfs.dir(root .. folder) do
    local path = folder .. "/" .. name
    if name:find "%.cuh?$" then
      for op in read(root .. path):gmatch "MOTH_CUDA%(([%w_]+)%)" do kernels[op] = path end
    elseif not name:find "%." and lfs.attributes(root .. path, "mode") == "directory" then
      read_kernels(lfs, root, path)
    end
  end
end

-- Read from the sources of the plugin; it does not have to be built.
local function gpu_kernels()
  if kernels then return kernels end
  kernels = {}
  local found, lfs = pcall(require, "lfs")
  local root = found and checkout() and checkout() .. "/"
  if root and lfs.attributes(root .. "cuda") then read_kernels(lfs, root, "cuda") end
  return kernels
end

-- The names of the dtypes in a set of an op record.
local function names_of(dtypes)
  local list = {}
  for code, dtype in pairs(require("moth.tensor.dtype").by_code) do
    if bit.band(dtypes, bit.lshift(1, code)) ~= 0 then list[#list + 1] = {code, dtype.name} end
  end
  table.sort(list, function(a, b) return a[1] < b[1] end)
  for i, row in ipairs(list) do list[i] = row[2] end
  return table.concat(list, ", ")
end

local function add_arguments(out, args)
  if #args == 0 then return end
  out[#out + 1] = "\n| argument | kind | default | | must be |\n|---|---|---|---|---|"
  for _, arg in ipairs(args) do
    out[#out + 1] = ("| `%s` | %s | %s | %s | %s |"):format(arg.name, plain(arg.kind),
      arg.default and "`" .. arg.default:gsub("|", "\\|") .. "`" or "", plain(arg.doc),
      plain(arg.need))
  end
end

-- The results of the first example: shapes and dtypes, or types.
local function add_results(out, fn, sig)
  local values = types.example(sig, fn)
  local list = {}
  for i = 1, values.n do
    local value = values[i]
    local output = sig.outputs and sig.outputs[i]
    local name = output and output.name:match "^[%a_][%w_]*$" or "result"
    if lib.istensor(value) then
      list[#list + 1] = ("`%s` %s %s"):format(name, plain(tostring(value.shape)),
        tostring(value.dtype):gsub("^moth%.", ""))
    elseif value ~= nil then
      list[#list + 1] = ("`%s` %s"):format(name, (types.of(value):gsub("^any$", type(value))))
    end
  end
  if #list > 0 then out[#out + 1] = "\nResult: " .. table.concat(list, ", ") end
end

local function add_function(out, fn)
  local r = help.parts(fn)
  out[#out + 1] = "\n```lua\n" .. r.head .. "\n```"
  if r.alias then out[#out + 1] = "\nAnother name of `" .. r.alias .. "`." end
  if r.doc and r.doc ~= "" then out[#out + 1] = "\n" .. plain(r.doc) end
  add_arguments(out, r.args)
  if r.returns then out[#out + 1] = "\nReturns " .. plain(r.returns) end
  if r.call then out[#out + 1] = "\n```lua\n" .. r.call .. "\n```" end
  add_results(out, fn, r.sig)
  local facts = {}
  if r.method then facts[#facts + 1] = "method `x:" .. r.sig.name .. "(...)`" end
  local of = registry.describe(r.sig.name)
  if of then
    facts[#facts + 1] = of.differentiable and "differentiable" or "no gradient"
    facts[#facts + 1] = "dtypes " .. names_of(of.dtypes)
    local kernel = gpu_kernels()[of.name] or gpu_kernels()[of.name:gsub("_$", "")]
    facts[#facts + 1] = "CPU and GPU" .. (kernel and ", `" .. kernel .. "`" or "")
  end
  local source = r.source or of and of.file
  if source then facts[#facts + 1] = "`" .. source .. "`" end
  if #facts > 0 then out[#out + 1] = "\n" .. table.concat(facts, "; ") end
end

-- The source file of a class's forward, or of its constructor if it has no forward of its own or
-- a generated one.
local function add_source(out, object)
  local function source(fn)
    return fn and debug.getinfo(class.written(fn), "S").source:match "^@(.*)"
  end
  local file = source(rawget(object, "forward")) or source(object.init)
  local root = errors.root
  if root and file:sub(1, #root) == root then file = file:sub(#root + 1) end
  out[#out + 1] = "\n`" .. file .. "`"
end

-- The methods that a class defines itself.
local function add_methods(out, path, object)
  local base = class.base(object)
  for _, name in ipairs(class.methods(object)) do
    local fn = object[name]
    if name:find "^%a" and name ~= "init" and name ~= "forward" and name ~= "signature"
       and name ~= "extra_repr" and not (base and rawequal(base[name], fn)) then
      local fine, text = pcall(help.text, fn, path .. ":" .. name)
      out[#out + 1] = "\n### " .. path .. ":" .. name
      if fine then out[#out + 1] = "\n```text\n" .. text .. "\n```" end
    end
  end
end

-- The page of tensors: fields, and methods that are not functions of a namespace, such as x:to.
local function tensor_page()
  local out = {"# Tensors", "\nFields and methods of a tensor `x`. Each op that takes a tensor "
    .. "first is a method as well: `x:sum(1)` is `moth.sum(x, 1)`. Ops are described in "
    .. "[moth](moth.md).", "\n| field | |", "|---|---|"}
  local known = fields.of "x"
  for _, name in ipairs(known.names) do
    out[#out + 1] = ("| `x.%s` | %s |"):format(name, plain((known.docs[name]:gsub("\n", " "))))
  end
  local written, names = require("moth.tensor").written(), {}
  for name in pairs(written) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local fine, text = pcall(help.text, written[name], "x:" .. name)
    if fine and not bind.is_op(name) then
      out[#out + 1] = ("\n## x:%s\n\n```text\n%s\n```"):format(name, text)
    end
  end
  return table.concat(out, "\n") .. "\n"
end

local function add_name(out, place, name, value)
  out[#out + 1] = "\n## " .. place.short .. "." .. name
  if type(value) == "function" and help.parts(value) then return add_function(out, value) end
  local fine, text = pcall(help.text, value, place.short .. "." .. name)
  if class.isclass(value) then text = text:gsub("\n*  methods:   .*$", "") end
  if fine then out[#out + 1] = "\n```text\n" .. text .. "\n```" end
  if not class.isclass(value) then return end
  local base = class.base(value)
  if base and base ~= class.Object then
    local path = places.home(base, class.typename(base))
    out[#out + 1] = ("\nIt inherits from `%s`."):format(path or class.typename(base))
  end
  add_source(out, value)
  add_methods(out, place.short .. "." .. name, value)
end

-- The page of a namespace. A name that another page describes is a link to that page.
local function page_of(place, described)
  local out = {"# " .. place.path, "\n" .. plain(place.doc) .. "."}
  local space = places.space(place)
  for _, name in ipairs(places.names(place)) do
    local value = space[name]
    local kind = type(value)
    local key = kind == "table" and class.isclass(value) and class.of(value)
      or (kind == "table" or kind == "function") and value or place.path .. "." .. name
    if value ~= nil and not described[key] then
      described[key] = place.path .. "." .. name
      add_name(out, place, name, value)
    elseif value ~= nil then
      out[#out + 1] = ("\n## %s.%s\n\nThe same as `%s`."):format(place.short, name, described[key])
    end
  end
  return table.concat(out, "\n") .. "\n"
end

local sets = {} -- place -> its names

local function sets_of(place)
  if not sets[place] then
    sets[place] = {}
    for _, name in ipairs(places.names(place)) do sets[place][name] = true end
  end
  return sets[place]
end

local function anchor(place, name)
  return place.path .. ".md#" .. (place.short .. name):lower():gsub("[^%w_]", "")
end

-- All names in one list, with links to their descriptions.
local function index_of()
  local rows, out = {}, {"# Index", "\nAll public names. They are PyTorch's where it has them.\n"}
  for _, place in ipairs(places.list) do
    for _, name in ipairs(places.names(place)) do
      rows[#rows + 1] = {name:lower(), name, ("[%s](%s)"):format(plain(place.short),
        anchor(place, name))}
    end
  end
  table.sort(rows, function(a, b)
    if a[1] ~= b[1] then return a[1] < b[1] end
    return a[3] < b[3]
  end)
  for i, row in ipairs(rows) do
    if i > 1 and rows[i - 1][2] == row[2] then
      out[#out] = out[#out] .. ", " .. row[3]
    else
      out[#out + 1] = ("- `%s`: %s"):format(row[2], row[3])
    end
  end
  return table.concat(out, "\n") .. "\n"
end

-- A link to the description of a PyTorch name; else nil and a hint for a replacement, if one is
-- known.
local function counterpart(path, name)
  local place = places.of(path)
  if path == "tensor" then
    local method = require("moth.tensor").written()[name]
    if method and not bind.is_op(name) then
      return ("[x:%s](tensor.md#x%s)"):format(plain(name), name:lower())
    end
    local found, fn = pcall(bind.method, name)
    local is_op = found and fn and sets_of(places.of "moth")[name]
    if is_op then return ("[x:%s](%s)"):format(plain(name), anchor(places.of "moth", name)) end
    if fields.of("x").docs[name] then return ("[x.%s](tensor.md)"):format(plain(name)) end
  elseif place and sets_of(place)[name] then
    return ("[%s.%s](%s)"):format(plain(place.short), plain(name), anchor(place, name))
  end
  local hint = require("moth.error.instead").find(path, name)
  return nil, hint and plain(hint)
end

-- The index by PyTorch's names; nil outside a checkout, because the list of names is stored there.
local function pytorch_index()
  local text = checkout() and read(checkout() .. "/spec/names/names.txt")
  if not text then return nil end
  local list = text:match "^# ([^\n]-), by namespace"
  local out = {"# Index by PyTorch's names", "\n" .. list .. ": where each name is described, or "
    .. "what to write instead."}
  for path, names in text:gmatch "\n([%w_.]+): ?([^\n]*)" do
    local ours = path == "torch.Tensor" and "tensor"
      or path:gsub("^torch%.utils%.data", "moth.data"):gsub("^torchvision", "moth")
        :gsub("^torch", "moth")
    local rows, others, hints = {}, {}, {} -- names of the same hint share a row of `others`
    for name in names:gmatch "%S+" do
      local where, hint = counterpart(ours, name)
      if where then
        rows[#rows + 1] = ("- `%s.%s`: %s"):format(path, name, where)
      elseif hint and hints[hint] then
        local at = hints[hint]
        others[at] = others[at]:gsub("`: ", ("`, `%s`: "):format(name), 1)
      elseif hint then
        others[#others + 1] = ("- `%s.%s`: %s"):format(path, name, hint)
        hints[hint] = #others
      end
    end
    if #rows > 0 and #others > 0 then rows[#rows + 1] = "\nNot in Moth:\n" end
    for _, row in ipairs(others) do rows[#rows + 1] = row end
    if #rows > 0 then
      out[#out + 1] = "\n## " .. path .. "\n\n" .. table.concat(rows, "\n")
    end
  end
  return table.concat(out, "\n") .. "\n"
end

--- Writes the reference: README.md, index.md and a page for each namespace.
-- @param folder  exists; files with these names are replaced
function docs.reference(folder)
  local described = {}
  local out = {"# Reference", "\nMade by `moth docs` from the records that also check the calls.\n",
    "[Index of all names](index.md)\n", "| namespace | |", "|---|---|",
    "| [tensors](tensor.md) | fields and methods of tensors |"}
  -- moth.nn.functional holds the same ops; they are described in moth.
  for _, place in ipairs(places.list) do
    write(folder .. "/" .. place.path .. ".md", page_of(place, described))
    out[#out + 1] = ("| [%s](%s.md) | %s |"):format(place.path, place.path, plain(place.doc))
  end
  write(folder .. "/tensor.md", tensor_page())
  write(folder .. "/index.md", index_of())
  local index = pytorch_index()
  if index then
    write(folder .. "/pytorch.md", index)
    table.insert(out, 4, "[Index by PyTorch's names](pytorch.md)\n")
  end
  write(folder .. "/README.md", table.concat(out, "\n") .. "\n")
end

-- ---- the site ----

local CONFIG = [[
site_name: Moth
docs_dir: pages
site_dir: %s
theme:
  name: mkdocs
  highlightjs: false
plugins:
  - search:
      separator: '[\s\-.:,;()\[\]{}="]+'
use_directory_urls: false
nav:
%s
]]

-- A line of the navigation for each page of a folder that its README links to.
local function navigation(title, folder, text)
  local out = {("  - %s:"):format(title), ("    - Overview: %s/README.md"):format(folder)}
  for label, link in text:gmatch "%[([^%]]+)%]%(([%w_.]+%.md)%)" do
    out[#out + 1] = ('    - "%s": %s/%s'):format(label, folder, link)
  end
  return table.concat(out, "\n")
end

local function shell(...)
  local words = {}
  for i, word in ipairs {...} do words[i] = "'" .. word:gsub("'", "'\\''") .. "'" end
  return os.execute(table.concat(words, " ")) == 0
end

--- Builds a site of the README, docs/ and the reference with MkDocs, without network.
-- @param root    the checkout
-- @param folder  the folder for the site; an absolute path
function docs.site(root, folder)
  if not shell("sh", "-c", "command -v mkdocs >/dev/null") then
    error("MkDocs is needed (Debian: apt-get install mkdocs)", 0)
  end
  local work = os.tmpname()
  os.remove(work)
  local pages = work .. "/pages"
  assert(shell("mkdir", "-p", pages .. "/reference"), "cannot make " .. pages)
  assert(shell("cp", "-r", root .. "/docs/guide", root .. "/docs/dev", pages))
  local readme = assert(read(root .. "/README.md")):gsub("%]%(docs/", "](")
  write(pages .. "/index.md", readme)
  docs.reference(pages .. "/reference")
  local nav = {"  - Moth: index.md"}
  for _, part in ipairs {{"Guide", "guide"}, {"Reference", "reference"}, {"Developers", "dev"}} do
    nav[#nav + 1] = navigation(part[1], part[2], read(pages .. "/" .. part[2] .. "/README.md"))
  end
  write(work .. "/mkdocs.yml", CONFIG:format(folder, table.concat(nav, "\n")))
  local fine = shell("mkdocs", "build", "--quiet", "--clean", "-f", work .. "/mkdocs.yml")
  shell("rm", "-r", work)
  if not fine then error("mkdocs build failed", 0) end
end

return docs
