--- objects.lua -- Lua values between processes: numbers, strings, booleans, tensors, and tables of
-- them. A value travels as bytes; reading them runs no code.

local define = require "moth.binding.define"
local errors = require "moth.error"
local ffi = require "ffi"
local groups = require "moth.distributed.group"
local lib = require "moth.binding.lib"
local pack = require "moth.data.pack"

local ops = lib.anchor.moth
local dist = ops.distributed

local objects = {}

local function bytes_of(x)
  local flat = x:cpu():contiguous()
  return (ffi.string(ffi.cast("const char *", flat:data_ptr()), flat.nbytes))
end

-- A value as a string: a text, the dtypes and shapes of its tensors, and their bytes.
local function encode(value)
  local text, tensors = pack.write(1, value)
  local layouts, parts = {}, {}
  for i, x in ipairs(tensors) do
    layouts[i], parts[i] = {x.dtype, x.shape}, bytes_of(x:detach())
  end
  local head = pack.write(2, text, layouts)
  return ("%d:%s%s"):format(#head, head, table.concat(parts))
end

local function decode(bytes)
  local size, at = bytes:match "^(%d+):()"
  local text, layouts = pack.read(bytes:sub(at, at + size - 1), nil, 0)
  at = at + tonumber(size) - 1
  local tensors = {}
  for i, layout in ipairs(layouts) do
    local x = ops.empty(layout[2], {dtype = layout[1]})
    if at + x.nbytes > #bytes then
      errors.raise("moth.distributed: a value arrived incomplete", "E_STATE")
    end
    ffi.copy(ffi.cast("char *", x:data_ptr()), ffi.cast("const char *", bytes) + at, x.nbytes)
    tensors[i], at = x, at + x.nbytes
  end
  return (pack.read(text, nil, 0, tensors))
end

local function tensor_of(bytes)
  return ops.frombuffer(bytes, {dtype = ops.uint8}):clone():to(groups.device())
end

local function length_of(n)
  return ops.tensor({n}, {dtype = ops.int64, device = groups.device()})
end

-- The strings of all processes, by rank of the group.
local function gather_strings(group, bytes)
  local n, lengths = #group.ranks, {}
  for i = 1, n do lengths[i] = length_of(0) end
  dist.all_gather(lengths, length_of(#bytes), group)
  local most = 1
  for i = 1, n do lengths[i] = tonumber(lengths[i]:item()) most = math.max(most, lengths[i]) end
  local all = ops.empty({n, most}, {dtype = ops.uint8, device = groups.device()})
  dist.all_gather_into_tensor(all, tensor_of(bytes .. ("\0"):rep(most - #bytes)), group)
  local list = {}
  for i = 1, n do list[i] = bytes_of(all[i]):sub(1, lengths[i]) end
  return list
end

local LIST = {"any", "object_list", "list of values"}
local GROUP = {"any", "group", "processes that take part; default: all", optional = true}

local function list_of(fname, argname, list, n)
  if not lib.is_plain(list) or (n and #list ~= n) then
    errors.refuse(fname, argname, n and ("a list of %d values is needed"):format(n)
      or "a list of values is needed", list, "E_TYPE")
  end
  return list
end

local function broadcast_string(bytes, src, group)
  local length = length_of(bytes and #bytes or 0)
  dist.broadcast(length, src, group)
  local x = bytes and tensor_of(bytes)
    or ops.empty({tonumber(length:item())}, {dtype = ops.uint8, device = groups.device()})
  dist.broadcast(x, src, group)
  return bytes or bytes_of(x)
end

objects.broadcast_object_list = define {
  name = "broadcast_object_list",
  doc = "Replaces the values of the list by those of the process src: numbers, strings, booleans, "
    .. "tensors (on the CPU) and tables of them.",
  examples = "{{epoch = 3}}", outputs = "none",
  args = {LIST, {"int", "src", "rank of the sender", default = 0}, GROUP},
  run = function(list, src, group)
    local fname = "broadcast_object_list"
    group = groups.of(fname, group)
    groups.place(fname, "src", group, src)
    list_of(fname, "object_list", list)
    local mine = groups.get().rank == src
    local bytes = mine and encode {n = #list, v = list} or nil
    local values = decode(broadcast_string(bytes, src, group))
    if mine then return end
    for i = 1, math.max(values.n, #list) do list[i] = values.v[i] end
  end,
}

-- These two are plain functions: a value that is a table is not a table of named arguments.

--- all_gather_object(object_list, obj, group): fills the list with the values of all processes, by
-- rank.
function objects.all_gather_object(list, value, group)
  group = groups.of("all_gather_object", group)
  list_of("all_gather_object", "object_list", list)
  for i, bytes in ipairs(gather_strings(group, encode {v = value})) do list[i] = decode(bytes).v end
end

--- gather_object(obj, object_gather_list, dst, group): fills the list of the process dst (default:
-- 0) with the values of all processes, by rank.
function objects.gather_object(value, list, dst, group)
  local fname = "gather_object"
  group, dst = groups.of(fname, group), dst or 0
  groups.place(fname, "dst", group, dst)
  local mine = groups.get().rank == dst
  if mine then list_of(fname, "object_gather_list", list) end
  local all = gather_strings(group, encode {v = value})
  for i = 1, mine and #all or 0 do list[i] = decode(all[i]).v end
end

objects.scatter_object_list = define {
  name = "scatter_object_list", doc = "Gives each process one value of the list of src.",
  examples = "{}, {1, 2}", outputs = "none",
  args = {{"any", "scatter_object_output_list", "its first element becomes the value"},
          {"any", "scatter_object_input_list", "in src: one value for each process",
            optional = true},
          {"int", "src", "rank of the sender", default = 0}, GROUP},
  run = function(output, list, src, group)
    local fname = "scatter_object_list"
    group = groups.of(fname, group)
    groups.place(fname, "src", group, src)
    list_of(fname, "scatter_object_output_list", output)
    local mine = groups.get().rank == src
    if mine then list_of(fname, "scatter_object_input_list", list, #group.ranks) end
    local all = decode(broadcast_string(mine and encode {v = list} or nil, src, group)).v
    output[1] = all[group.place[groups.get().rank] + 1]
  end,
}

return objects
