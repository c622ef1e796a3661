--- The rows of `moth bench op` that are generated from records: one or two for each public
-- function of the namespaces below, an op of the registry or a function written in Lua.
--
-- A row's call is the first example of the record. All sizes are multiplied by one factor, so that
-- the largest tensor has about `elements` elements. The growth of inputs and results with that
-- factor is measured by calls with the example's sizes and with twice those sizes. If that fails,
-- record_inputs.lua has a handwritten call, or the reason why there is no row.
--
-- Both sides get the call as JSON and draw the inputs from the same descriptions (values.lua); for
-- PyTorch dimensions and positions count from 0.

local bind = require "moth.binding.bind"
local inputs = require "record_inputs"
local json = require "moth.json"
local lib = require "moth.binding.lib"
local moth = require "moth"
local places = require "moth.help.places"
local recorded = require "recorded"
local registry = require "spec.support.registry"
local values = require "values"

local records = {}

local PLACES = {"moth", "moth.nn.functional", "moth.linalg", "moth.special", "moth.fft",
  "moth.signal.windows"}
local METHODS = "Tensor" -- the functions that moth itself does not have
local RUNS = 6 -- runs of an example, to find the bounds of its inputs

-- ---- the functions ----

-- name -> true for an in-place form, add_ of add
local function in_place_forms()
  local forms = {}
  for _, op in ipairs(registry.ops()) do forms[op.name] = op.derived or nil end
  return forms
end

-- The functions of one namespace that no earlier one has: {path, function, signature}.
local function functions_of(path, names, get, seen, forms)
  local list = {}
  for _, name in ipairs(names) do
    local fn = get(name)
    local sig = bind.signature(fn)
    if sig and rawget(sig, "alias") then sig = nil end
    local key = sig and (rawget(sig, "op_name") or fn)
    local known = (path:find "functional$" or path == METHODS) and seen[name]
      or path == METHODS and seen[name:match "^(.*)_$"]
    if inputs.calls[path .. "." .. name] then known = false end
    if sig and not seen[key] and not known and not forms[rawget(sig, "op_name") or name] then
      list[#list + 1] = {path = path .. "." .. name, fn = fn, sig = sig}
    end
    if sig then seen[key] = true end
  end
  if path == "moth" or path:find "functional$" then
    for _, name in ipairs(names) do seen[name] = true end
  end
  return list
end

local found -- the result of functions()

-- All functions with a row or a reason, each under its first name.
local function functions()
  if found then return found end
  local seen, space, forms = {}, {}, in_place_forms()
  found = {}
  local function add(list)
    for _, entry in ipairs(list) do found[#found + 1] = entry end
  end
  for _, place in ipairs(places.list) do space[place.path] = place end
  for _, path in ipairs(PLACES) do
    local place = space[path]
    local functions_there = places.space(place)
    add(functions_of(path, places.names(place), function(name) return functions_there[name] end,
      seen, forms))
  end
  local methods = {}
  for _, name in ipairs(bind.method_names()) do methods[#methods + 1] = name end
  table.sort(methods)
  add(functions_of(METHODS, methods, bind.method, seen, forms))
  return found
end

-- ---- calls ----

-- Names of arguments whose numbers are dimensions, or whose integers are positions.
local DIMS, POSITIONS = {}, {}
for name in ("dim dims dim0 dim1 dim2 axis axis0 axis1 source destination start_dim end_dim "
  .. "dimension"):gmatch "%S+" do DIMS[name] = true end
for name in ("index indices target targets"):gmatch "%S+" do POSITIONS[name] = true end

local function kind_of(arg) return arg and tostring(arg.kind):gsub("%?$", "") or "any" end

local function is_dim(arg)
  local kind = kind_of(arg)
  return kind == "dim" or kind == "dims"
    or arg and DIMS[arg.name] and (kind == "any" or kind == "int") or false
end

local function takes_ids(arg)
  local kind = kind_of(arg)
  return kind == "index" or kind == "indices" or arg and POSITIONS[arg.name] or false
end

-- The record of each argument of a call: by position, and by name in a last table of names.
local function each_argument(arguments, args, fn)
  local by_name = {}
  for _, arg in ipairs(args) do by_name[arg.name] = arg end
  local copy = {n = arguments.n}
  for i = 1, arguments.n do
    local v = arguments[i]
    if i == arguments.n and type(v) == "table" and getmetatable(v) == nil
      and type(next(v)) == "string" then
      copy[i] = {}
      for name, part in pairs(v) do copy[i][name] = fn(part, by_name[name]) end
    else
      copy[i] = fn(v, args[i])
    end
  end
  return copy
end

-- An example's arguments with tensors replaced by descriptions.
local function described(path, sig, example)
  local runs = {}
  for run = 1, RUNS do
    moth.manual_seed(run)
    runs[run] = registry.tensors(example.arguments())
  end
  moth.manual_seed(1)
  local arguments = example.arguments()
  local at = {}
  for i, x in ipairs(registry.tensors(arguments)) do at[x] = i end
  local complex = path:find "^moth%.fft%."
  return each_argument(arguments, sig.args, function(value, arg)
    local function walk(v)
      if lib.istensor(v) then
        local list = {}
        for run = 1, RUNS do list[run] = runs[run][at[v]] end
        return values.describe(list, example.domain, takes_ids(arg), complex)
      elseif type(v) == "table" and getmetatable(v) == nil then
        local copy = {}
        for k, part in pairs(v) do copy[k] = walk(part) end
        return copy
      end
      return v
    end
    return walk(value)
  end)
end

local function by_hand(code)
  local chunk = assert(loadstring("return " .. code, "=" .. code))
  setfenv(chunk, setmetatable({none = lib.none, moth = moth}, {__index = values.words}))
  return {n = select("#", chunk()), chunk()}
end

-- Marks the descriptions of targets: they require no gradient.
local function without_targets(arguments, args)
  return each_argument(arguments, args, function(value, arg)
    return values.map(value, function(v)
      v.fixed = arg ~= nil and arg.name == "target" or nil
      return v
    end)
  end)
end

-- ---- sizes ----

local function times(list, factor)
  local copy = {}
  for i, size in ipairs(list) do
    copy[i] = type(size) == "number" and size > 1 and size * factor or size
  end
  return copy
end

local COUNTS = {} -- arguments that are sizes, in functions without tensors
for name in ("n m N M row col steps window_length"):gmatch "%S+" do COUNTS[name] = true end
local KEPT = {repeats = true, dims = true, kernel_size = true, output_size = true}
local SIZES = {normalized_shape = true, size = true}

local function has_tensor(arguments)
  local any = false
  values.map(arguments, function(v) any = true return v end)
  return any
end

-- The arguments with all sizes multiplied.
local function enlarged(arguments, args, factor)
  local fresh = not has_tensor(arguments)
  return each_argument(arguments, args, function(value, arg)
    local kind = kind_of(arg)
    if type(value) == "number" then
      return fresh and arg and COUNTS[arg.name] and value * factor or value
    elseif type(value) == "table" and not values.is(value) and type(value[1]) == "number"
      and (kind == "shape" and not KEPT[arg.name] or arg and SIZES[arg.name]) then
      return times(value, factor)
    end
    return values.map(value, function(v)
      local copy = {}
      for key, field in pairs(v) do copy[key] = field end
      copy.shape = times(v.shape, factor)
      if v.draw == "pairs" then copy.shape[#copy.shape] = 2 end
      if v.draw == "ids" then copy.high = v.high * factor end
      return values.new(copy)
    end)
  end)
end

local function draw_all(arguments)
  local copy = {n = arguments.n}
  for i = 1, arguments.n do copy[i] = values.map(arguments[i], values.draw) end
  return copy
end

-- The number of elements of each tensor of a call, with the results.
local function counts(fn, arguments)
  local given = draw_all(arguments)
  local results = {n = 0}
  local function keep(...) results = {n = select("#", ...), ...} end
  keep(fn(unpack(given, 1, given.n)))
  local list = {}
  for _, group in ipairs{registry.tensors(given), recorded.tensors(results)} do
    for _, x in ipairs(group) do list[#list + 1] = x:numel() end
  end
  return list
end

-- The factor of the sizes.
local function factor_of(fn, arguments, args, elements)
  local small, double = counts(fn, arguments), counts(fn, enlarged(arguments, args, 2))
  local factor = math.huge
  for i, n in ipairs(small) do
    local power = math.log((double[i] or n) / n) / math.log(2)
    if n > 0 and power > 0.4 then factor = math.min(factor, (elements / n) ^ (1 / power)) end
  end
  return factor < math.huge and math.max(1, math.floor(factor)) or 1
end

-- ---- gradients ----

-- Marks the descriptions of tensors with a gradient. @return true if there are any
local function mark(fn, arguments)
  local of, leaves = {}, {}
  local given = {n = arguments.n}
  for i = 1, arguments.n do
    given[i] = values.map(arguments[i], function(v)
      local x = values.draw(v)
      if v.dtype == "float32" and not v.fixed then
        x:requires_grad_()
        of[x], leaves[#leaves + 1] = v, x
      end
      return x
    end)
  end
  local ok, results = pcall(function()
    local list = recorded.tensors{fn(unpack(given, 1, given.n))}
    local wanted = {}
    for _, y in ipairs(list) do
      if y.requires_grad then wanted[#wanted + 1] = y end
    end
    for _, y in ipairs(wanted) do y:backward(moth.ones_like(y), {retain_graph = true}) end
    return wanted
  end)
  local any = false
  for _, x in ipairs(ok and results[1] and leaves or {}) do
    of[x].grad = x.grad ~= nil
    any = any or of[x].grad
  end
  return any
end

-- ---- rows ----

local function short_of(path) return (path:gsub("^moth%.", "")) end

local ELEMENTS = 4e5
local BY_PLACE = {["moth.linalg"] = 1e4, ["moth.special"] = 1e5}
local BY_FAMILY = {matmul = 6e4, product = 6e4, solve = 1e4, factor = 1e4}

local families -- op's name -> its family

local function family_of(name)
  if not families then
    families = {}
    for _, op in ipairs(registry.ops()) do families[op.name] = op.family end
  end
  return families[name]
end

local function elements_of(path, sig)
  local name = path:match "[^.]+$"
  return inputs.elements[name] or BY_PLACE[path:match "^(.*)%."]
    or BY_FAMILY[family_of(sig.name) or ""] or ELEMENTS
end

-- The call of a function, at its example's sizes or enlarged; nil and the reason if it has none.
local function call_of(path, fn, sig, small)
  local short = short_of(path)
  local reason = inputs.reasons[short]
  if reason then return nil, reason end
  local code = inputs.calls[short]
  if code then return without_targets(by_hand(code), sig.args) end
  local line = type(sig.examples) == "table" and sig.examples[1]
    or tostring(sig.examples or ""):match "^[^\n]+"
  if type(line) == "table" then line = line.code end
  if not line then return nil, "its record has no example" end
  local arguments = described(path, sig, registry.examples(line)[1])
  arguments = without_targets(arguments, sig.args)
  if small then return arguments end
  return enlarged(arguments, sig.args, factor_of(fn, arguments, sig.args, elements_of(path, sig)))
end

local function row_of(path, fn, sig, backward)
  local short, direction = short_of(path), backward and "fwdbwd" or "fwd"
  return {
    kind = "record", group = "op", mean = "op, records", fn = path, call = fn, sig = sig,
    name = ("op/%s/record/%s"):format(short, direction),
    backward = backward, text = "its first example, enlarged", inputs = {}, variants = {""},
    options = {rounds = 3, seconds = 0.03},
    peerless = inputs.peerless[short] or inputs.peerless[short .. "/" .. direction],
  }
end

--- All rows, and the functions without a row: {path -> reason}.
function records.read()
  local rows, without = {}, {}
  for _, entry in ipairs(functions()) do
    local path, fn, sig = entry.path, entry.fn, entry.sig
    local arguments, reason = call_of(path, fn, sig, true)
    if not arguments then
      without[path] = reason
    else
      rows[#rows + 1] = row_of(path, fn, sig, false)
      local writes = path:sub(-1) == "_"
      if not writes and mark(fn, arguments) then rows[#rows + 1] = row_of(path, fn, sig, true) end
    end
  end
  return rows, without
end

--- The row of each op of the registry: {name, row = its path} or {name, reason}.
function records.ops()
  local of_op, list = {}, {}
  for _, entry in ipairs(functions()) do
    of_op[rawget(entry.sig, "op_name") or entry.path:match "[^.]+$"] = entry.path
  end
  for _, op in ipairs(registry.ops()) do
    local reason = op.derived and "in place: the kernel of " .. op.name:sub(1, -2)
      or op.hidden and "called by other functions, in whose rows it is timed" or nil
    list[#list + 1] = {name = op.name, row = of_op[op.name],
      reason = not of_op[op.name] and reason or nil}
  end
  return list
end

--- A row by its name.
function records.find(name)
  local short, direction = name:match "^op/(.+)/record/(%w+)$"
  if not short then return nil end
  for _, entry in ipairs(functions()) do
    if short_of(entry.path) == short then
      return row_of(entry.path, entry.fn, entry.sig, direction == "fwdbwd")
    end
  end
end

--- The arguments of a row's call: descriptions instead of tensors.
-- @param small  at the example's sizes
function records.arguments(row, small)
  local arguments = assert(call_of(row.fn, row.call, row.sig, small))
  if row.backward then
    local marked = call_of(row.fn, row.call, row.sig, true)
    mark(row.call, marked)
    local grads = {}
    local function collect(list)
      for i = 1, list.n do
        values.map(list[i], function(v) grads[#grads + 1] = v return v end)
      end
    end
    collect(marked)
    local k = 0
    for i = 1, arguments.n do
      values.map(arguments[i], function(v)
        k = k + 1
        v.grad = grads[k].grad
        return v
      end)
    end
  end
  return arguments
end

-- ---- calls as JSON ----

local function encode(v)
  if v == lib.none or v == nil then return "null" end
  if type(v) == "number" then
    if v == math.huge then return '{"number":"inf"}' end
    if v == -math.huge then return '{"number":"-inf"}' end
    return json.number(v)
  end
  if type(v) == "string" then return json.string(v) end
  if type(v) == "boolean" then return tostring(v) end
  if values.is(v) then
    local shape = table.concat(v.shape, ",")
    return ('{"draw":"%s","shape":[%s],"low":%s,"high":%s,"dtype":"%s","grad":%s}'):format(v.draw,
      shape, json.number(v.low or 0), json.number(v.high or 0), v.dtype, tostring(v.grad == true))
  end
  if type(v) == "table" and getmetatable(v) == nil then
    local parts = {}
    for i, part in ipairs(v) do parts[i] = encode(part) end
    return "[" .. table.concat(parts, ",") .. "]"
  end
  local name = type(v) == "table" and v.name or tostring(v)
  if moth[name] == v then return ('{"constant":%s}'):format(json.string(name)) end
  error("no JSON for " .. tostring(v), 0)
end

-- Numbers that count from 1 in Moth and from 0 in PyTorch.
local function shifted(v, arg)
  local kind = kind_of(arg)
  if not (is_dim(arg) or kind == "position") then return v end
  if type(v) == "number" then return v > 0 and v - 1 or v end
  if type(v) ~= "table" or getmetatable(v) ~= nil then return v end
  local copy = {}
  for i, part in ipairs(v) do copy[i] = shifted(part, arg) end
  return copy
end

local function text_of(name, arguments, row)
  local args, named = {}, {}
  for i = 1, arguments.n do
    local v = arguments[i]
    if type(v) == "table" and getmetatable(v) == nil and type(next(v)) == "string" then
      for key, part in pairs(v) do
        named[#named + 1] = json.string(key) .. ":" .. encode(part)
      end
    else
      args[#args + 1] = encode(v)
    end
  end
  return ('{"fn":%s,"args":[%s],"named":{%s},"backward":%s}'):format(json.string(name),
    table.concat(args, ","), table.concat(named, ","), tostring(row.backward))
end

--- A row's call as a line of JSON, for recorded.lua. @param small  at the example's sizes
function records.call(row, small)
  return text_of(short_of(row.fn), records.arguments(row, small), row)
end

--- The peer's line of JSON for a row.
function records.peer_call(row)
  local short = short_of(row.fn)
  local arguments = each_argument(records.arguments(row), row.sig.args, shifted)
  return text_of(inputs.names[short] or short, arguments, row)
end

return records
