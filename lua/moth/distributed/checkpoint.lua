--- checkpoint.lua -- moth.distributed.checkpoint: a state in a folder, to which each process writes
-- a part, and which any number of processes read.
--
--     checkpoint.save({model = net, optimizer = optimizer, epoch = 3}, "run/latest")
--     checkpoint.load(state, "run/latest")             -- into the tensors and objects of state
--
-- The folder has a safetensors file of each process, and index.json: the values that are no
-- tensors, and for each tensor, or part of a tensor, its file. A file of a new save has a new name,
-- and the index is replaced last: a process that is killed leaves the last complete state. The
-- files of earlier saves are removed after that.
--
-- The path of a value is the keys of the tables around it, "model/fc.weight". A number as a key is
-- written "#1".

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local groups = require "moth.distributed.group"
local lib = require "moth.binding.lib"
local machine = require "moth.base.machine"
local text = require "moth.io.checkpoint"

local moth = lib.anchor.moth
local dist = moth.distributed

local FORMAT = "moth.distributed.checkpoint"

local checkpoint = {}

-- ---- parts of tensors ----

local Slice = class "Slice"
checkpoint.Slice = Slice
Slice.signature = define.signature("Slice", {
  {"tensor", "tensor", "the part that this process has"},
  {"any", "shape", "of the whole tensor"},
  {"any", "offset", "the position of the part's first element in each dimension, from 1"},
})

--- A part of a tensor whose other parts are in other processes: checkpoint.save and load take it in
-- the place of a tensor. A state that was saved in parts is also loaded into whole tensors, and
-- into other parts.
function Slice:init(tensor, shape, offset)
  local n = tensor:dim()
  for name, list in pairs {shape = shape, offset = offset} do
    if type(list) ~= "table" or #list ~= n then
      errors.refuse("Slice", name, ("a list of %d numbers is needed"):format(n), list, "E_SHAPE")
    end
  end
  self.tensor, self.shape, self.offset = tensor, {unpack(shape)}, {unpack(offset)}
  for d = 1, n do
    if offset[d] < 1 or offset[d] + tensor:size(d) - 1 > shape[d] then
      errors.argument("Slice", "offset", ("dimension %d: elements %d to %d of %d"):format(d,
        offset[d], offset[d] + tensor:size(d) - 1, shape[d]), "E_SHAPE")
    end
  end
end

local function ones(n)
  local list = {}
  for d = 1, n do list[d] = 1 end
  return list
end

local function key_of(list) return table.concat(list, ",") end

-- The region in which two parts overlap: its first element and sizes, or nil.
local function overlap(a, a_shape, b, b_shape)
  local from, sizes = {}, {}
  for d = 1, #a do
    from[d] = math.max(a[d], b[d])
    sizes[d] = math.min(a[d] + a_shape[d], b[d] + b_shape[d]) - from[d]
    if sizes[d] <= 0 then return nil end
  end
  return from, sizes
end

-- The region of a part as a view.
local function view_of(x, offset, from, sizes)
  for d = 1, #from do x = x:narrow(d, from[d] - offset[d] + 1, sizes[d]) end
  return x
end

-- ---- paths ----

local function component(key, path)
  if type(key) == "number" then return ("#%.17g"):format(key) end
  if type(key) ~= "string" then
    errors.argument("save", "state_dict", ("%s has a key that is %s; keys are strings and numbers")
      :format(path == "" and "it" or path, errors.describe(key)), "E_TYPE")
  end
  local written = key:gsub("[%%/]", function(c) return ("%%%02X"):format(c:byte()) end)
  return (written:gsub("^#", "%%23"))
end

local function key_from(part)
  local number = part:match "^#(.*)$"
  if number then return tonumber(number) end
  return (part:gsub("%%(%x%x)", function(digits) return string.char(tonumber(digits, 16)) end))
end

local function joined(path, key)
  local part = component(key, path)
  return path == "" and part or path .. "/" .. part
end

local function is_table(value)
  return lib.is_plain(value) or class.typename(value) == "StateDict"
end

-- The state of an object that has one; else nil.
local function state_of(value)
  if type(value) ~= "table" or is_table(value) or value == lib.none then return nil end
  local partial, whole = value.sharded_state_dict, value.state_dict
  if type(partial) == "function" then return value:sharded_state_dict() end
  return type(whole) == "function" and value:state_dict() or nil
end

-- Calls f(path, value, table, key) for each tensor, part and plain value in a table.
local function each_leaf(t, path, f)
  local keys = {}
  for key in pairs(t) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b) return component(a, path) < component(b, path) end)
  for _, key in ipairs(keys) do
    local value, at = t[key], joined(path, key)
    if is_table(value) and next(value) ~= nil then each_leaf(value, at, f)
    else f(at, value, t, key) end
  end
end

-- ---- saving ----

-- What this process has: path -> {tensor, offset, shape}; path -> plain value.
local function collect(state)
  local tensors, values = {}, {}
  local function add(path, value)
    local inner = not class.isinstance(value, Slice) and state_of(value)
    if inner then
      each_leaf(inner, path, add)
    elseif class.isinstance(value, Slice) then
      tensors[path] = {value.tensor:detach(), value.offset, value.shape}
    elseif lib.istensor(value) then
      tensors[path] = {value:detach(), ones(value:dim()), {unpack(value.shape)}}
    else
      values[path] = value
    end
  end
  each_leaf(state, "", add)
  return tensors, values
end

-- What the other processes learn: a text, since values have kinds that messages lack.
local function described(tensors, values, last)
  local list = {}
  for path, row in pairs(tensors) do
    local x = row[1]
    list[path] = {dtype = x.dtype.name, size = x.nbytes, sizes = {unpack(x.shape)}, offset = row[2],
                  shape = row[3]}
  end
  local packed, why = text.pack {tensors = list, values = values, last = last}
  if not packed then errors.argument("save", "state_dict", why) end
  return packed.text
end

-- Divides the tensors among the processes that have them. A tensor of several processes is written
-- by the one with the fewest bytes. Returns the tensors of the index, and their bytes by process.
local function assign(all)
  local paths, seen, load, tensors = {}, {}, {}, {}
  for r, row in ipairs(all) do
    load[r] = 0
    for path in pairs(row.tensors) do
      if not seen[path] then paths[#paths + 1], seen[path] = path, true end
    end
  end
  table.sort(paths)
  for _, path in ipairs(paths) do
    local parts, where, first = {}, {}, nil
    for r, row in ipairs(all) do
      local x = row.tensors[path]
      first = first or x
      if x and (x.dtype ~= first.dtype or key_of(x.shape) ~= key_of(first.shape)) then
        errors.argument("save", "state_dict", ("%s is a tensor %s (%s) in one process, and %s (%s) "
          .. "in another"):format(path, first.dtype, key_of(first.shape), x.dtype, key_of(x.shape)),
          "E_SHAPE")
      end
      local key = x and key_of(x.offset) .. ":" .. key_of(x.sizes)
      local part = x and where[key]
      if x and not part then
        part = {rank = r - 1, offset = x.offset, shape = x.sizes, size = x.size}
        where[key], parts[#parts + 1] = part, part
      elseif x and load[r] < load[part.rank + 1] then
        part.rank = r - 1
      end
    end
    for _, part in ipairs(parts) do load[part.rank + 1] = load[part.rank + 1] + part.size end
    tensors[path] = {dtype = first.dtype, shape = first.shape, parts = parts}
  end
  return tensors
end

-- The values of all processes; the same path has the same value.
local function joined_values(all)
  local values, from = {}, {}
  for r, row in ipairs(all) do
    for path, value in pairs(row.values) do
      local written = text.pack({value}).text
      if from[path] and from[path] ~= written then
        errors.argument("save", "state_dict", ("%s differs between processes; put their ranks in "
          .. "its path"):format(path), "E_ARG")
      end
      values[path], from[path] = value, written
      if all[1].tensors[path] or all[r].tensors[path] then
        errors.argument("save", "state_dict", path .. " is a tensor in one process only", "E_TYPE")
      end
    end
  end
  return values
end

local function file_name(save, rank) return ("save_%d_rank_%d.safetensors"):format(save, rank) end

-- Writes the tensors of this process.
local function write_own(folder, index, tensors, rank)
  local own = {}
  for path, row in pairs(index.tensors) do
    for _, part in ipairs(row.parts) do
      local mine = part.rank == rank and tensors[path]
      part.file = file_name(index.save, part.rank)
      part.name = #row.parts > 1 and path .. "@" .. key_of(part.offset) or path
      if mine then own[part.name] = mine[1] end
    end
  end
  if next(own) ~= nil then moth.save(own, folder .. "/" .. file_name(index.save, rank)) end
end

-- Replaces the index, and removes files that it does not name.
local function write_index(folder, index)
  local packed = text.pack(index)
  require("moth.io.bytes").save(folder .. "/index.json", {packed.text, "\n"}, "save")
  local named = {}
  for _, row in pairs(index.tensors) do
    for _, part in ipairs(row.parts) do named[part.file] = true end
  end
  for _, entry in ipairs(machine.entries(folder, 1e6)) do
    if entry.name:find "^save_%d+_rank_%d+%.safetensors$" and not named[entry.name] then
      os.remove(folder .. "/" .. entry.name)
    end
  end
end

local function read_index(folder, fname)
  local file = io.open(folder .. "/index.json", "rb")
  if not file then
    errors.argument(fname, "checkpoint_id", ("%s has no index.json: it is no folder of "
      .. "moth.distributed.checkpoint.save"):format(errors.path(folder)), "E_IO")
  end
  local content = file:read "*a"
  file:close()
  local index, why = text.unpack(content, function() return nil end)
  if type(index) ~= "table" or index.format ~= FORMAT or type(index.tensors) ~= "table"
      or type(index.values) ~= "table" then
    errors.argument(fname, "checkpoint_id", ("%s/index.json is broken%s"):format(
      errors.path(folder), why and ": " .. why or ""), "E_FORMAT")
  end
  return index
end

-- The number of the last save in a folder.
local function last_save(folder)
  local fine, index = pcall(read_index, folder, "save")
  return fine and tonumber(index.save) or 0
end

-- Calls f in this process. Raises in all processes if it has failed in one.
local function together(group, f, ...)
  local fine, problem = pcall(f, ...)
  if not group then
    if not fine then error(problem, 0) end
    return
  end
  local all = {}
  dist.all_gather_object(all, not fine and tostring(problem) or false, group)
  if not fine then error(problem, 0) end
  for r, other in ipairs(all) do
    if other then errors.raise(("save: rank %d: %s"):format(group.ranks[r], other), "E_IO") end
  end
end

local GROUP = {"any", "process_group", "processes that take part; default: all", optional = true}

local function group_of(fname, group)
  local state = groups.get()
  if group == nil and (not state or state.size == 1) then return nil end
  return groups.of(fname, group, "process_group")
end

--- moth.distributed.checkpoint.save(state_dict, checkpoint_id): writes a state to a folder.
checkpoint.save = define {
  name = "save",
  doc = "Writes a state to a folder, each process its part; all processes call it. The state is a "
    .. "table of tensors, Slices, numbers, strings, booleans, tables of them, and objects with a "
    .. "state_dict: nets, optimizers, ZeroRedundancyOptimizers, whose parts are not gathered. A "
    .. "path that several processes have is one value, which one of them writes; what differs "
    .. "between processes, such as the state of a generator, needs the rank in its path. A kill "
    .. "leaves the last complete state. Without a process group one process writes all.",
  examples = "{weight = moth.ones(3), epoch = 1}, os.tmpname() .. '.d'", outputs = "none",
  args = {{"map", "state_dict", "the state"}, {"string", "checkpoint_id", "the folder"}, GROUP},
  run = function(state, folder, group)
    group = group_of("save", group)
    local rank = group and group.place[groups.get().rank] or 0
    local tensors, texts, all = nil, {}, {}
    together(group, function()
      local found, values = collect(state)
      if rank == 0 then machine.make_folders(folder) end
      tensors, texts[1] = found, described(found, values, rank == 0 and last_save(folder) or nil)
    end)
    if group then dist.all_gather_object(texts, texts[1], group) end
    for r, one in ipairs(texts) do all[r] = text.unpack(one, function() return nil end) end
    local index = {format = FORMAT, version = 1, save = all[1].last + 1, world_size = #all,
                   tensors = assign(all), values = joined_values(all)}
    together(group, write_own, folder, index, tensors, rank)
    together(group, function()
      if rank == 0 then write_index(folder, index) end
    end)
  end,
}

-- ---- loading ----

local Reader = class "Reader"

function Reader:init(folder)
  self.folder, self.index, self.files = folder, read_index(folder, "load"), {}
end

function Reader:refuse(why)
  errors.argument("load", "checkpoint_id", ("%s: %s"):format(errors.path(self.folder), why),
    "E_FORMAT")
end

function Reader:part(part)
  local file = self.files[part.file] or moth.open(self.folder .. "/" .. part.file)
  self.files[part.file] = file
  local x = file:tensor(part.name)
  if key_of(x.shape) ~= key_of(part.shape) then
    self:refuse(("%s has another shape than in the index"):format(part.name))
  end
  return x
end

-- Copies a region of a stored tensor to y.
function Reader:copy(path, y, offset)
  local row, sizes, filled = self.index.tensors[path], {unpack(y.shape)}, 0
  for _, part in ipairs(row.parts) do
    local from, common = overlap(offset, sizes, part.offset, part.shape)
    if from then
      local to = view_of(y, offset, from, common)
      to:copy_(view_of(self:part(part), part.offset, from, common))
      filled = filled + to:numel()
    end
  end
  if filled < y:numel() then self:refuse(path .. " is incomplete: a part was not saved") end
end

-- A stored tensor as a whole.
function Reader:whole(path)
  local row = self.index.tensors[path]
  if #row.parts == 1 and key_of(row.parts[1].shape) == key_of(row.shape) then
    return self:part(row.parts[1])
  end
  local x = moth.empty(row.shape, {dtype = moth[row.dtype]})
  self:copy(path, x, ones(#row.shape))
  return x
end

-- A table of all values below a path; nil if there are none.
-- @param wanted  function(first key, second key): is a value needed?
function Reader:tree(path, wanted)
  local root, start, found = {}, path == "" and "" or path .. "/", false
  local function put(at, get)
    if at:sub(1, #start) ~= start then return end
    local keys, t = {}, root
    for part in (at:sub(#start + 1) .. "/"):gmatch "([^/]*)/" do
      keys[#keys + 1] = key_from(part)
    end
    if wanted and not wanted(keys[1], keys[2]) then return end
    found = true
    for i = 1, #keys - 1 do
      if type(t[keys[i]]) ~= "table" then t[keys[i]] = {} end
      t = t[keys[i]]
    end
    local value, last = get(), keys[#keys]
    if lib.is_plain(value) then t[last] = t[last] or {} -- an empty table
    else t[last] = value end
  end
  for at, value in pairs(self.index.values) do put(at, function() return value end) end
  for at in pairs(self.index.tensors) do put(at, function() return self:whole(at) end) end
  return found and root or nil
end

-- The saved name that is nearest to one that is missing; else the names of the saved state.
local function what_it_has(index, path)
  local first, names, seen = {}, {}, {}
  for _, rows in ipairs {index.values, index.tensors} do
    for at in pairs(rows) do
      local top = at:match "^[^/]*"
      if not seen[top] then seen[top], first[#first + 1] = true, tostring(key_from(top)) end
      names[#names + 1] = at
    end
  end
  local hint = errors.nearest(path, path:find("/", 1, true) and names or first)
  table.sort(first)
  return hint ~= "" and hint or "; it has " .. table.concat(first, ", ", 1, math.min(#first, 8))
end

local function need(found, reader, path)
  if found == nil then
    errors.argument("load", "state_dict", ("%s has no '%s'%s"):format(errors.path(reader.folder),
      path, what_it_has(reader.index, path)), "E_STATE")
  end
  return found
end

local function load_tensor(reader, path, x, shape, offset)
  local row = need(reader.index.tensors[path], reader, path)
  if key_of(row.shape) ~= key_of(shape) then
    errors.argument("load", "state_dict", ("%s has the shape (%s), saved is (%s)"):format(path,
      key_of(shape), key_of(row.shape)), "E_SHAPE")
  end
  reader:copy(path, x:detach(), offset)
end

-- Loads one value of the state.
local function load_leaf(reader, path, value, t, key)
  if class.isinstance(value, Slice) then
    load_tensor(reader, path, value.tensor, value.shape, value.offset)
  elseif lib.istensor(value) then
    load_tensor(reader, path, value, {unpack(value.shape)}, ones(value:dim()))
  elseif type(value) == "table" and type(value.load_sharded_state_dict) == "function" then
    value:load_sharded_state_dict(need(reader:tree(path, function(first, second)
      return value:needs_state(first, second)
    end), reader, path))
  elseif type(value) == "table" and not is_table(value) and value ~= lib.none
      and type(value.load_state_dict) == "function" then
    value:load_state_dict(need(reader:tree(path), reader, path))
  elseif reader.index.values[path] ~= nil then
    t[key] = reader.index.values[path]
  elseif reader.index.tensors[path] then
    t[key] = reader:whole(path)
  else
    t[key] = need(reader:tree(path), reader, path)
  end
end

--- moth.distributed.checkpoint.load(state_dict, checkpoint_id): reads a state from a folder.
checkpoint.load = define {
  name = "load",
  doc = "Reads a state that checkpoint.save has written, by any number of processes. Tensors and "
    .. "Slices of state_dict are overwritten, objects get load_state_dict, other values are "
    .. "replaced; a path that is not in the folder is an error. Each process reads only what it "
    .. "needs, and needs no other process. Returns the state; load(checkpoint_id) returns the "
    .. "whole state as a new table.",
  examples = "(function() local folder = os.tmpname() .. '.d'; moth.distributed.checkpoint.save({w "
    .. "= moth.ones(3)}, folder); return folder end)()", outputs = "state",
  args = {{"any", "state_dict", "the state, or the folder"},
          {"string", "checkpoint_id", "the folder", optional = true}, GROUP},
  run = function(state, folder)
    if type(state) == "string" and folder == nil then
      return Reader(state):tree("") or {}
    end
    if not lib.is_plain(state) then
      errors.refuse("load", "state_dict", "a table is needed", state, "E_TYPE")
    elseif folder == nil then
      errors.refuse("load", "checkpoint_id", "a folder is needed", folder, "E_TYPE")
    end
    local reader = Reader(folder)
    moth.no_grad(each_leaf, state, "", function(...) load_leaf(reader, ...) end)
    return state
  end,
}

return (require("moth.base.lazy").namespace("moth.distributed.checkpoint", checkpoint, {}))
