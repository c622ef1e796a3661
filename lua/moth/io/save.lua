--- save.lua -- moth.save, moth.load and moth.open: tensors, and tables of tensors and other
-- values, in safetensors files. Readers and writers of other formats are chosen by magic.lua.
--
--     moth.save(net:state_dict(), "net.safetensors")             also loads in PyTorch
--     net:load_state_dict(moth.load "net.safetensors")
--     moth.save({epoch = 3, model = net:state_dict()}, "run.safetensors")
--     moth.open("net.safetensors")["fc1.weight"]                 reads one tensor only
--
-- save writes the whole file or nothing. The file is on the disk when save returns
-- (`moth.save{value, path, durable = false}` does not wait for that). Loading runs no code. Broken
-- files and failing disks raise errors; moth.errcode() returns E_FORMAT (the file is broken),
-- E_UNSUPPORTED (valid, but Moth cannot read it), E_IO or E_ARG.
--
-- Loaded tensors share the file's pages (mmap): bytes are read when they are used, and writes to
-- the tensors stay in memory. Replacing the file, as save does, does not change them. Truncating
-- the file in place while they are used ends the process (SIGBUS): load with `mmap = false` if
-- another program may do that.

local ffi = require "ffi"
local bytes = require "moth.io.bytes"
local checkpoint = require "moth.io.checkpoint"
local define = require "moth.binding.define"
local errors = require "moth.error"
local json = require "moth.json"
local lib = require "moth.binding.lib"

local C, ctx, Handle = lib.C, lib.ctx, lib.Handle

local function texts(n) return lib.array("moth_text", n) end

local STRUCTURE = "moth"  -- the metadata that holds a checkpoint's JSON text
local TIED = "moth.tied"  -- ... and the names of tensors that are stored under another name

local saving = {}

-- ---- between Lua strings and C ----

local anchors = setmetatable({}, {__mode = "k"}) -- C array -> the strings it points into

-- A C array of texts.
local function array_of(list)
  local array = texts(#list + 1)
  anchors[array] = list
  for i = 1, #list do array[i - 1].at, array[i - 1].size = list[i], #list[i] end
  return array
end

local function string_of(text) return ffi.string(text.at, tonumber(text.size)) end

-- ---- saving ----

-- Sorted keys and values of the user's metadata with Moth's own.
local function metadata_of(given, text)
  local all, keys, values = {[STRUCTURE] = text, format = text == nil and "pt" or nil}, {}, {}
  for key, value in pairs(given or {}) do
    if key == "durable" and type(value) == "boolean" then
      errors.argument("save", "metadata", "strings are needed; durable is a separate argument: "
        .. "moth.save{value, path, durable = " .. tostring(value) .. "}", "E_TYPE")
    end
    if type(key) ~= "string" or type(value) ~= "string" then
      errors.argument("save", "metadata", "strings under strings are needed, got "
        .. errors.describe(value) .. " under " .. errors.describe(key), "E_TYPE")
    end
    if key == STRUCTURE or key == TIED then
      errors.argument("save", "metadata", "'" .. key .. "' is reserved for Moth")
    end
    all[key] = value
  end
  for key in pairs(all) do keys[#keys + 1] = key end
  table.sort(keys)
  for i = 1, #keys do values[i] = all[keys[i]] end
  return keys, values
end

--- Writes a value to a safetensors, .npy or .npz file, atomically: a temporary file in the same
-- folder, fsync, rename, fsync of the folder. If any step fails the old file is unchanged.
-- @param value  a tensor; a state_dict; or tables of tensors, numbers, strings, booleans and
-- int64, nested up to 300 deep, without cycles. Any dtype, shape and layout; tensors with the same
-- storage and layout are stored once. PyTorch's safetensors loads a table of names to tensors
-- under those names; other tensors are named by paths (`model/fc1.weight`, lists counted from 0).
-- @param path  the file to write; an existing file keeps its permissions
-- @param metadata  a table of strings for other readers (default: `format = "pt"` for a
-- state_dict, which some readers require)
-- @param durable  wait until the file is on the disk (default true); false takes half the time,
-- but a power failure soon after may lose both the new file and the old file
-- @param compressed  for .npz: compress the arrays by deflate (default false)
-- A path that ends in `.npy` gets NumPy's format of one tensor, `.npz` that of a table of names to
-- tensors; a list has the names arr_0, arr_1, ... as from numpy.savez.
-- Raises E_ARG with the path of a value that cannot be saved (functions, cycles, modules), and
-- E_IO if the disk fails. Format: huggingface/safetensors.
saving.save = define {
  name = "save",
  doc = "Writes tensors, a state_dict or nested tables to a safetensors file, all or nothing; or "
    .. "tensors to a .npy or .npz file, by the ending of the path. "
    .. "Tied weights are stored once, with their other names in the metadata: moth.load and "
    .. "PyTorch's safetensors.torch.load_model return all names, its load_file returns one.",
  examples = "{weight = moth.ones(2, 3), bias = moth.zeros(3)}, os.tmpname()\n"
    .. "moth.ones(2), os.tmpname(), {note = 'made by hand'}\n"
    .. "{moth.ones(2), os.tmpname(), durable = false}",
  args = {
    {"any", "value", "a tensor, a state_dict, or tables of tensors, numbers, strings, booleans"},
    {"string", "path", "the file to write"},
    {"map", "metadata", "strings for other readers of the file", optional = true},
    {"bool", "durable", "wait until the file is on the disk", default = true},
    {"bool", "compressed", "compress the arrays of a .npz file", default = false},
  },
  order = "moth.save(value, path)",
  run = function(value, path, metadata, durable, compressed)
    local writer, refused = require("moth.io.magic").writer(path)
    if refused then
      errors.argument("save", "path", ("%s, got %s"):format(refused, errors.path(path)))
    elseif writer and metadata then
      errors.argument("save", "metadata", "only safetensors files have metadata")
    elseif compressed and writer ~= "moth.io.npz" then
      errors.argument("save", "compressed", "only .npz files are compressed, got "
        .. errors.path(path))
    elseif writer then
      return require(writer).save(value, path, compressed, durable)
    end
    local packed, why = checkpoint.pack(value)
    if not packed then errors.argument("save", "value", why) end
    local names, tensors = packed.names, packed.tensors
    local handles = lib.handles(#tensors + 1)
    for i = 1, #tensors do handles[i - 1] = tensors[i] end
    local keys, values = metadata_of(metadata, packed.text)
    local status = C.moth_safetensors_save(ctx, array_of {path}, array_of(names), handles,
      #names, array_of(keys), array_of(values), #keys, durable and 1 or 0)
    lib.check(status, "save", unpack(tensors, 1, math.min(#tensors, 200)))
  end,
}

-- ---- an open file ----

local File = {}   -- methods
local files = setmetatable({}, {__mode = "k"}) -- object -> {handle, shown, tied, metadata, cache}

local function state_of(self, fname)
  local state = files[self]
  if not state then errors.raise(fname .. ": a file from moth.open is needed", "E_TYPE") end
  if not state.handle then errors.raise(fname .. ": the file is closed", "E_STATE") end
  return state
end

local function broken(state, why)
  errors.argument(state.fname, state.argument, state.shown .. ": " .. why, "E_FORMAT")
end

local function read_metadata(state)
  local result, key, value = {}, ffi.new "moth_text[1]", ffi.new "moth_text[1]"
  local n = C.moth_safetensors_metadata_count(ctx, state.handle)
  for i = 0, tonumber(n) - 1 do
    lib.check(C.moth_safetensors_metadata(ctx, state.handle, i, key, value), state.fname)
    result[string_of(key[0])] = string_of(value[0])
  end
  return result
end

-- name -> position of the tensor in the file, and the names in the file's order.
local function read_names(state)
  local info, index, names = ffi.new("moth_stored"), {}, {}
  for i = 0, tonumber(C.moth_safetensors_count(ctx, state.handle)) - 1 do
    lib.check(C.moth_safetensors_at(ctx, state.handle, i, info), state.fname)
    local name = string_of(info.name)
    names[#names + 1] = name
    index[name] = i
  end
  return index, names
end

-- Names of tensors that are stored under another name.
local function read_tied(state)
  local text = state.metadata[TIED]
  if not text then return end
  local tied, why = json.decode(text)
  if type(tied) ~= "table" or tied == json.null then
    broken(state, ("metadata '%s': %s"):format(TIED, why or "an object is needed"))
  end
  local more = {}
  for name, other in pairs(tied) do
    if type(name) ~= "string" or type(other) ~= "string" or not state.index[other]
      or state.index[name] then
      broken(state, ("metadata '%s' has a wrong entry %s"):format(TIED,
        errors.shown(tostring(name))))
    end
    more[#more + 1] = name
  end
  table.sort(more)
  for i = 1, #more do state.names[#state.names + 1] = more[i] end
  for i = 1, #more do state.tied[more[i]] = tied[more[i]] end
end

local function open(fname, path, mmap, device)
  local handle, memory = Handle(), bytes.is_memory(path)
  lib.check(memory and C.moth_safetensors_open_bytes(ctx, bytes.text_of(path), handle)
    or C.moth_safetensors_open(ctx, bytes.text_of(path), mmap and 1 or 0, handle), fname)
  handle = lib.adopt(handle, 0)
  C.moth_keep_always(ctx, handle)
  local state = {fname = fname, handle = handle, argument = memory and "bytes" or "path",
    shown = memory and path.shown or errors.path(path), device = device, tied = {},
    cache = setmetatable({}, {__mode = "v"})}
  state.metadata = read_metadata(state)
  state.index, state.names = read_names(state)
  read_tied(state)
  return state
end

local function read(state, read_by, i)
  local out = Handle()
  local status = read_by(ctx, state.handle, i, out)
  if lib.recover(status) then status = read_by(ctx, state.handle, i, out) end
  lib.check(status, state.fname)
  return (lib.adopt(out, status))
end

-- A tensor of a dtype that Moth lacks, converted; else nil and the reason.
local function fetch_foreign(state, i)
  local foreign, info = require "moth.io.foreign", ffi.new "moth_stored"
  C.moth_safetensors_at(ctx, state.handle, i, info)
  local format = ffi.string(info.format)
  local x, target = nil, "which Moth has no dtype for"
  if foreign.width(format) then
    x, target = foreign.convert(read(state, C.moth_safetensors_bytes, i), format, lib.sizes(info))
  end
  local text = x and ("a tensor of %s is loaded as %s"):format(format, target)
    or ("a tensor of %s is not loaded, %s"):format(format, target)
  if state.notes then state.notes[text] = (state.notes[text] or 0) + 1 end
  return x, format .. ", " .. target
end

-- The tensor with this name, or nil. The same name returns the same tensor while that tensor is
-- referenced.
-- lenient: a tensor that cannot be read becomes a placeholder with the reason
local function fetch(state, name, lenient)
  name = state.tied[name] or name
  local i = state.index[name]
  if not i then return nil end
  local x = state.cache[name]
  if x and C.moth_alive(ctx, x) == 1 then return x end
  local info = ffi.new "moth_stored"
  C.moth_safetensors_at(ctx, state.handle, i, info)
  if info.dtype < 0 then
    local why
    x, why = fetch_foreign(state, i)
    if not x and lenient then
      return require("moth.io.foreign").unread(("tensor %s of dtype %s"):format(errors.shown(name),
        why))
    end
  end
  x = x or read(state, C.moth_safetensors_tensor, i)
  if state.device then x = x:to(state.device) end
  state.cache[name] = x
  return x
end

local function close(state)
  if state.handle then C.moth_free(ctx, state.handle) end
  state.handle = nil
end

-- ---- loading ----

-- The module that reads a file, by its first bytes; nil for safetensors. Raises for other formats.
local function reader_of(source)
  local file = bytes.open(source, "load")
  local start = file:text(math.min(264, file.size))
  local reader, why = require("moth.io.magic").reader(start, not bytes.is_memory(source)
    and source:find "%.t7$" ~= nil)
  if why then file:refuse(why, "E_FORMAT") end
  file:close()
  return reader
end

local function load_onnx(path, mmap, device)
  if not path then
    errors.argument("load", "bytes", "an ONNX model is read from a file: it may name other files",
      "E_UNSUPPORTED")
  end
  return (require("moth.onnx.load").load(path, mmap):to(device))
end

local function load_all(state)
  local text = state.metadata[STRUCTURE]
  state.notes = {}
  if text then
    local value, why = checkpoint.unpack(text, function(name) return fetch(state, name, true) end)
    if value == nil then broken(state, ("metadata '%s': %s"):format(STRUCTURE, why)) end
    return value
  end
  local result, held = {}, {}
  for i, name in ipairs(state.names) do
    held[i] = fetch(state, name, true)
    result[name] = held[i]
  end
  return result
end

--- Reads a file. A safetensors file of moth.save: returns the saved value; of another program: a
-- table of names to tensors. A `.pth` or `.pt` file of torch.save: dicts, lists, numbers, texts
-- and tensors. A `.t7` file of Torch7: the same; objects are tables of their fields. A GGUF file:
-- the tensors by name (moth.gguf.load returns the rest too). A `.npy` file of NumPy: a tensor, a
-- nested list of strings, or, for records, a table of these; a `.npz` file: a table of names to
-- these. An ONNX file: a module, as from moth.onnx.load. Never runs code.
-- @param path  the file
-- @param device  the device of the tensors (default "cpu")
-- @param mmap  share the file's pages instead of reading it (default true)
-- @param map_location  PyTorch's name for device
-- @param weights_only  accepted as in PyTorch; no code of a file is ever run
-- @param bytes  instead of a path: the file's bytes as a string, an FFI array or a uint8 tensor,
-- for example from an archive, a database or the body of a request; they are copied
-- @return the value. Tensors do not require gradients; tied tensors are one tensor again. Types
-- that Moth lacks are converted with a warning: unsigned integers to wider integers, floats of 8
-- bits to float32, complex numbers to pairs. A value that cannot be converted becomes a
-- placeholder that prints the reason.
-- Raises E_IO, or E_FORMAT with the fault and its position. Format: huggingface/safetensors.
saving.load = define {
  name = "load",
  doc = "Reads a safetensors, .npy, .npz, .pth, .t7, GGUF or ONNX file: a tensor, nested tables of "
    .. "tensors and values, or a module.",
  examples = "(function() local path = os.tmpname(); moth.save(moth.ones(2), path); "
    .. "return path end)(), {device = 'cpu', mmap = false}",
  args = {
    {"string", "path", "the file to read", optional = true},
    {"device", "device", "the device of the tensors", default = "cpu"},
    {"bool", "mmap", "share the file's pages instead of reading it", default = true},
    {"device", "map_location", "PyTorch's name for device", optional = true},
    {"bool", "weights_only", "accepted: nothing in a file is ever run", default = true},
    {"any", "bytes", "a file's bytes, instead of a path: a string, an array, a uint8 tensor",
     optional = true},
  },
  run = function(path, device, mmap, map_location, _, given)
    local source = bytes.source(path, given, "load")
    device = map_location or device
    local reader = reader_of(source)
    if reader == "moth.gguf" then return (require(reader).load(path, nil, device, mmap, given)) end
    if reader == "moth.onnx.load" then return (load_onnx(path, mmap, device)) end
    if reader then return (require(reader).load(source, "load", device, mmap)) end
    local state = open("load", source, mmap, device)
    local fine, value = pcall(load_all, state)
    close(state)
    if not fine then error(value, 0) end
    if next(state.notes) then require("moth.io.foreign").warn(state.shown, state.notes) end
    return value
  end,
}

-- ---- reading one tensor at a time ----

--- The tensor of a name; file[name] is the same unless a method has that name.
-- Raises E_INDEX for an unknown name.
function File.tensor(self, name)
  local state = state_of(self, "tensor")
  local x = type(name) == "string" and fetch(state, name)
  if x then return x end
  errors.argument("tensor", "name", ("%s has no tensor %s%s"):format(state.shown,
    errors.describe(name), errors.nearest(name, state.names)), "E_INDEX")
end

--- Returns true if the file has a tensor of that name.
function File.has(self, name)
  local state = state_of(self, "has")
  return (state.index[name] or state.tied[name]) ~= nil
end

--- The names of all tensors, as a list in the file's order.
function File.names(self)
  local list = {}
  for i, name in ipairs(state_of(self, "names").names) do list[i] = name end
  return list
end

--- The file's metadata, a table of strings.
function File.metadata(self)
  local copy = {}
  for key, value in pairs(state_of(self, "metadata").metadata) do copy[key] = value end
  return copy
end

--- Dtype (in the file's spelling), sizes and bytes of a tensor, without reading it: {dtype =
-- "F32", shape = {2, 3}, nbytes = 24}; nil for an unknown name.
function File.info(self, name)
  local state = state_of(self, "info")
  local i = state.index[state.tied[name] or name]
  if not i then return nil end
  local info = ffi.new "moth_stored"
  lib.check(C.moth_safetensors_at(ctx, state.handle, i, info), "info")
  return {dtype = ffi.string(info.format), shape = lib.sizes(info),
          nbytes = tonumber(info.nbytes)}
end

--- Closes the file; its tensors stay valid. The garbage collector also closes it.
function File.close(self) close(state_of(self, "close")) end

local meta = {
  __index = function(self, name) return File[name] or File.tensor(self, name) end,
  __newindex = function() errors.raise("a file opened by moth.open cannot be written", "E_ARG") end,
  __len = function(self) return #state_of(self, "#").names end,
  __tostring = function(self)
    local state = files[self]
    if not state.handle then return ("safetensors file %s, closed"):format(state.shown) end
    return ("safetensors file %s, %d tensors"):format(state.shown, #state.names)
  end,
}

--- Opens a safetensors file for reading single tensors: `file[name]`, `file:names()`,
-- `file:has(name)`, `file:info(name)`, `file:metadata()`, `file:close()`.
-- @param path  the file
-- @param mmap  share the file's pages instead of reading (default true)
-- @return the file; raises as moth.load does
saving.open = define {
  name = "open",
  doc = "Opens a safetensors file: file[name] reads one tensor.",
  examples = "(function() local path = os.tmpname(); moth.save({a = moth.ones(2)}, path); "
    .. "return path end)(), {mmap = false}",
  args = {
    {"string", "path", "the file to read"},
    {"bool", "mmap", "share the file's pages instead of reading it", default = true},
  },
  run = function(path, mmap)
    local object = setmetatable({}, meta)
    files[object] = open("open", path, mmap)
    return object
  end,
}

return saving
