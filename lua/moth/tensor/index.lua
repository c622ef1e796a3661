--- index.lua -- indexing, to read and to write: x[i], x[{...}], x[mask].
--
--   x[2]                      the second row, a view
--   x[{2, {1, 3}}]            columns 1 to 3 of row 2
--   x[{{1, -1, 2}, {}}]       every second row, all columns
--   x[{"...", 1}]             the first of the last dimension
--   x[{moth.newaxis, {}}]     a new dimension of size 1 in front
--   x[mask]  x[{idx, idx2}]   the elements where a mask is true; at the positions in tensors
--   x[{...}] = v              writes a number, a tensor, a table of numbers
--
-- Items apply from left to right, each to the next dimension: a position (drops the dimension;
-- negative counts from the end), a range {first, last[, step]} with both ends, {} for the whole
-- dimension, "..." for all remaining dimensions, newaxis, a mask (applies to as many dimensions as
-- it has), and positions in an integer tensor or in a list within a list, {{4, 1, 1}}. Positions
-- and ranges return views. A read by a mask or by positions in tensors returns a copy.

local ffi = require "ffi"
local bind = require "moth.binding.bind"
local calls = require "moth.binding.calls"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local C, ctx, ops = lib.C, lib.ctx, bind.ops
local istensor = lib.istensor

local indexing = {}

--- A new dimension of size 1 in an index table.
indexing.newaxis = setmetatable({}, {__tostring = function() return "moth.newaxis" end})
local newaxis = indexing.newaxis

local info = ffi.new "moth_tensor_info"

local function ndim_of(x)
  lib.check(C.moth_inspect(ctx, x, info), "index", x)
  return tonumber(info.ndim)
end

-- ---- items ----

local function is_positions(item)
  return type(item[1]) == "table"
end

-- The number of the tensor's dimensions to which an item applies.
local function uses(item)
  if item == "..." or item == newaxis then return 0 end
  if istensor(item) then
    local view = ffi.new "moth_tensor_info"
    lib.check(C.moth_inspect(ctx, item, view), "index", item)
    if view.dtype == C.MOTH_BOOL then return view.ndim end
  end
  return 1
end

local function bad_range(item, size, of, why)
  local text = {}
  for i = 1, #item do text[i] = tostring(item[i]) end
  errors.raise("range {" .. table.concat(text, ", ") .. "} " .. why .. " "
    .. (type(of) == "number" and "dim " .. of or of) .. " of size " .. size)
end

-- A range of the user's positions over a dimension of this size, as 0-based half-open start and
-- stop. `of` is the dimension's number, or a name, for messages.
local function bounds(item, size, of)
  local first, last, step = item[1], item[2], item[3] or 1
  if type(first) ~= "number" or type(last) ~= "number" or type(step) ~= "number"
    or first % 1 ~= 0 or last % 1 ~= 0 or step % 1 ~= 0 then
    bad_range(item, size, of, "must hold integers, for")
  end
  if step < 1 then bad_range(item, size, of, "needs a positive step (use flip), for") end
  local from = first < 0 and first + size + 1 or first
  local to = last < 0 and last + size + 1 or last
  if from < 1 or to > size or to < 0 or from > to + 1 or (to == 0 and last < 0) then
    if from >= 1 and to >= 1 and from <= size and to <= size then
      bad_range(item, size, of, "runs backwards (use flip) in")
    end
    bad_range(item, size, of, "leaves")
  end
  return from - 1, to, step
end
indexing.bounds = bounds

local function bad_item(item, i)
  if lib.is_plain(item) then
    errors.raise("index " .. i .. " is a list of " .. #item .. " numbers, which is no range "
      .. "{first, last[, step]}; write positions as an integer tensor or as {{...}}")
  end
  errors.raise("index " .. i .. " is " .. errors.describe(item)
    .. "; a position, a range {first, last[, step]}, {}, \"...\", moth.newaxis, a mask or an "
    .. "integer tensor is needed")
end

local function too_many(x, count, ndim)
  errors.raise("too many indices: " .. count .. " for " .. errors.describe(x) .. " with " .. ndim
    .. (ndim == 1 and " dimension" or " dimensions"))
end

-- The number of dimensions of "...", which is item i.
local function left_over(items, i, n, ndim)
  local used = 0
  for k = 1, n do
    local item = items[k]
    if item == "..." and k ~= i then errors.raise "an index has room for one \"...\" only" end
    used = used + uses(item)
  end
  return ndim - used
end

-- Positions in a list within a list, {{4, 1, 1}}.
local function positions(list)
  local create = require "moth.tensor.create"
  return (create.integers(list))
end

-- If items with positions are separated by a range or another item, their dimensions come first in
-- the result. A position in a 0-d tensor then acts as a number, as in PyTorch: its value is read.
local function numbers_apart(items)
  local seen, gap, apart = false, false, false
  for _, item in ipairs(items) do
    if istensor(item) or (lib.is_plain(item) and is_positions(item)) then
      apart = apart or (seen and gap)
      seen, gap = true, false
    elseif type(item) ~= "number" then
      gap = true
    end
  end
  if not apart then return items end
  local list = {}
  for i, item in ipairs(items) do
    local single = istensor(item) and item:dim() == 0 and uses(item) == 1
    list[i] = single and not item:is_floating_point() and item:item() or item
  end
  return list
end

-- Checks a position. The message has the dimension of x; `select` would name the dimension of a
-- view.
local function within(x, position, dim)
  ndim_of(x)
  local size = tonumber(info.shape[dim - 1])
  local far = math.abs(position)
  if far > size and far <= 2 ^ 53 and far % 1 == 0 then
    errors.argument("select", "index", ("position %d is out of range for dim %d of %s, which has "
      .. "size %d"):format(position, dim, errors.describe(x), size), "E_INDEX")
  end
end

local COVERED = {} -- a dimension to which the mask before it applies

-- "value 2 of an index is nil"
local function gap_in(list, what)
  return (calls.gap(list):gsub("^value %d+", "%0 of " .. what))
end

-- Applies all items that return views. Returns the view. If there are other items, also returns
-- the list of tensors for the op `index`, one per leading dimension of the view.
local function walk(x, items)
  local ndim = ndim_of(x)
  local y, dim, source, advanced = x, 1, 1, nil
  local n = #items
  if calls.has_hole(items, n) then errors.raise(gap_in(items, "an index"), "E_TYPE") end
  if n > 2 then items = numbers_apart(items) end
  for i = 1, n do
    local item = items[i]
    if type(item) == "number" then
      if source > ndim then too_many(x, n, ndim) end
      if i > 1 then within(x, item, source) end
      y = ops.select(y, dim, item)
      source = source + 1
    elseif lib.is_plain(item) and not is_positions(item) then
      if source > ndim then too_many(x, n, ndim) end
      local count = #item
      if calls.has_hole(item, count) then
        errors.raise(gap_in(item, "index " .. i), "E_TYPE")
      end
      if count == 2 or count == 3 then
        ndim_of(x) -- again: a finalizer may have indexed another tensor meanwhile
        local start, stop, step = bounds(item, tonumber(info.shape[source - 1]), source)
        y = ops.slice(y, dim, start, stop, step)
      elseif count ~= 0 then
        bad_item(item, i)
      end
      dim, source = dim + 1, source + 1
    elseif item == "..." then
      local skip = left_over(items, i, n, ndim)
      if skip < 0 then too_many(x, n - 1, ndim) end
      dim, source = dim + skip, source + skip
    elseif item == newaxis then
      y = ops.unsqueeze(y, dim)
      dim = dim + 1
    elseif istensor(item) or lib.is_plain(item) then
      if not istensor(item) then item = positions(item[1]) end
      local used = uses(item)
      if source + used - 1 > ndim then too_many(x, source + used - 1, ndim) end
      if not advanced then advanced = {} end
      if used == 0 then -- a 0-d mask: a dimension of size 0 or 1
        y = ops.unsqueeze(y, dim)
        item = ops.reshape(item, {1})
        used, source = 1, source - 1
      end
      advanced[dim] = item
      for k = 1, used - 1 do advanced[dim + k] = COVERED end -- covered by the mask
      dim, source = dim + used, source + used
    else
      bad_item(item, i)
    end
  end
  return y, advanced, dim - 1
end

-- The list for the op `index`: `false` for a whole dimension; no entry for a dimension of a mask.
local function list_of(advanced, last)
  local list, top = {}, 0
  for d = 1, last do
    if advanced[d] and advanced[d] ~= COVERED then top = d end
  end
  for d = 1, top do
    local item = advanced[d]
    if item ~= COVERED then list[#list + 1] = item or false end
  end
  return list
end

-- ---- reading and writing ----

--- x[key] where key is a table.
function indexing.get(x, key)
  if getmetatable(key) ~= nil then
    if key ~= newaxis then bad_item(key, 1) end
    return ops.unsqueeze(x, 1)
  end
  local y, advanced, last = walk(x, key)
  if advanced then return ops.index(y, list_of(advanced, last)) end
  if y == x then y = ops.view_as(x, x) end
  return y
end

--- x[key] where key is a tensor: a mask or positions in the first dimension.
function indexing.get_tensor(x, key)
  if uses(key) == 0 then return indexing.get(x, {key}) end
  return ops.index(x, {key})
end

-- v without leading dimensions of size 1, down to `most` dimensions: an assigned tensor may have
-- more of these dimensions than the target, as in PyTorch and NumPy.
local function without_ones(v, most)
  while v.ndim > most and v:size(1) == 1 do v = ops.select(v, 1, 1) end
  return v
end

-- Writes v into the view y of x.
local function assign(y, v)
  if istensor(v) then
    ops.copy_(y, v.ndim > y.ndim and without_ones(v, y.ndim) or v)
  elseif type(v) == "number" or type(v) == "boolean" or ffi.istype("int64_t", v) then
    ops.fill_(y, v)
  elseif type(v) == "table" then
    local create = require "moth.tensor.create"
    ops.copy_(y, create.like(v, y))
  else
    errors.raise("a tensor takes numbers, booleans, tensors and tables of them, got "
      .. errors.describe(v))
  end
end

local function put(y, list, v)
  if not istensor(v) then
    local create = require "moth.tensor.create"
    if type(v) == "string" or v == nil or type(v) == "function" then
      errors.raise("a tensor takes numbers, booleans, tensors and tables of them, got "
        .. errors.describe(v))
    end
    v = create.like(v, y)
    if v.ndim > 0 then v = v:to(y.device) end
  end
  ops.index_put_(y, list, without_ones(v, 0))
end

--- x[i] = v where i is a number.
function indexing.set_position(x, i, v) assign(ops.select(x, 1, i), v) end

--- x[key] = v where key is a table.
function indexing.set(x, key, v)
  if getmetatable(key) ~= nil then
    if key ~= newaxis then bad_item(key, 1) end
    return assign(x, v)
  end
  local y, advanced, last = walk(x, key)
  if advanced then put(y, list_of(advanced, last), v) else assign(y, v) end
end

--- x[key] = v where key is a tensor.
function indexing.set_tensor(x, key, v)
  if uses(key) == 0 then return indexing.set(x, {key}, v) end
  put(x, {key}, v)
end

return indexing
