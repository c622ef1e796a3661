--- summaries.lua -- the values that TensorBoard's plugins read: texts, hyperparameters,
-- precision-recall curves, charts of several scalars, sounds.

local ffi = require "ffi"

local class = require "moth.base.class"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local machine = require "moth.base.machine"
local messages = require "moth.utils.tensorboard.messages"
local scope = require "moth.tensor.scope"

local summaries = {}

local FLOAT, STRING = 1, 7 -- dtypes of TensorFlow

--- Converts a number, a tensor of one element or an int64 to a number.
function summaries.number(value, fname, name)
  if lib.istensor(value) and value:numel() == 1 then value = value:item() end
  local number = type(value) ~= "string" and tonumber(value)
  if not number then
    errors.refuse(fname, name, "a number or a tensor of one element is needed", value, "E_TYPE")
  end
  return number
end

-- A message inside a message, as bytes.
local function packed(message, value) return table.concat(messages.encode(message, value)) end

local function metadata(plugin, content)
  return {plugin_data = {plugin_name = plugin, content = content}}
end

--- A value of the text plugin.
function summaries.text(tag, text)
  return {tag = tag .. "/text_summary", metadata = metadata "text",
          tensor = {dtype = STRING, tensor_shape = {dim = {{size = 1}}}, string_val = {text}}}
end

-- ---- hyperparameters ----

local TYPES = {string = 1, boolean = 2, number = 3}

local function plain(value, fname, name)
  if lib.istensor(value) then return value:item() end
  if TYPES[type(value)] then return value end
  errors.argument(fname, name, ("numbers, strings, booleans and tensors of one element are "
    .. "possible, got %s"):format(errors.describe(value)), "E_TYPE")
end

local function any(value)
  if type(value) == "number" then return {number_value = value} end
  if type(value) == "string" then return {string_value = value} end
  return {bool_value = value and 1 or 0}
end

local function sorted_keys(map, fname, name)
  local keys = {}
  for key in pairs(map) do
    if type(key) ~= "string" then
      errors.argument(fname, name, "names are needed, got " .. errors.describe(key), "E_TYPE")
    end
    keys[#keys + 1] = key
  end
  table.sort(keys)
  return keys
end
summaries.sorted_keys = sorted_keys

--- The names of hyperparameters, sorted, and their values as numbers, strings and booleans.
function summaries.plain_map(map, fname, name)
  local keys, values = sorted_keys(map, fname, name), {}
  for _, key in ipairs(keys) do values[key] = plain(map[key], fname, name) end
  return keys, values
end

local function hparams_value(tag, message)
  return {tag = "_hparams_/" .. tag, metadata = metadata("hparams", packed("HParams", message))}
end

--- The three values of the hparams plugin.
-- @param hparams   name -> number, string or boolean
-- @param metrics   name -> value; the names count
-- @param discrete  name -> list of the values that it may have; nil: not known
function summaries.hparams(hparams, metrics, discrete)
  local names, values = summaries.plain_map(hparams, "add_hparams", "hparam_dict")
  local infos, start, metric_infos = {}, {}, {}
  for _, name in ipairs(names) do
    local value, domain = values[name], discrete and discrete[name]
    local info = {name = name, type = TYPES[type(value)]}
    if domain then
      info.domain_discrete = {values = {}}
      for i, v in ipairs(domain) do info.domain_discrete.values[i] = any(v) end
    end
    infos[#infos + 1] = info
    start[#start + 1] = {key = name, value = any(value)}
  end
  for i, name in ipairs(sorted_keys(metrics, "add_hparams", "metric_dict")) do
    metric_infos[i] = {name = {tag = name}}
  end
  return {hparams_value("experiment", {experiment = {hparam_infos = infos,
            metric_infos = metric_infos}}),
          hparams_value("session_start_info", {session_start_info = {hparams = start}}),
          hparams_value("session_end_info", {session_end_info = {status = 1}})} -- success
end

-- ---- precision-recall curves ----

local MOST_THRESHOLDS = 127 -- PyTorch raises above it

--- The value of six vectors of equal length: tp, fp, tn, fn, precision, recall.
function summaries.pr_curve_raw(tag, vectors, thresholds)
  local moth = require "moth"
  local data = moth.stack(vectors):to(moth.float32):cpu():contiguous()
  local content = packed("PrCurve", {num_thresholds = math.min(thresholds, MOST_THRESHOLDS)})
  local bytes = ffi.string(lib.data(data, "SummaryWriter"), data:numel() * 4)
  return {tag = tag, metadata = metadata("pr_curves", content),
          tensor = {dtype = FLOAT, float_val = bytes,
                    tensor_shape = {dim = {{size = data:size(1)}, {size = data:size(2)}}}}}
end

local function reverse_cumsum(x) return x:flip(1):cumsum(1):flip(1) end

--- The value of a curve at `thresholds` equal steps from 0 to 1.
-- @param labels       0 and 1, or false and true
-- @param predictions  probabilities
-- @param weights      of the elements; nil: 1
summaries.pr_curve = scope.inside(function(tag, labels, predictions, thresholds, weights)
  local moth = require "moth"
  thresholds = math.min(thresholds, MOST_THRESHOLDS)
  local function vector(x, dtype) return moth.as_tensor(x):detach():cpu():flatten():to(dtype) end
  local y, p = vector(labels, moth.float64), vector(predictions, moth.float64)
  local w = weights and vector(weights, moth.float64) or moth.ones_like(y)
  if y:numel() ~= p:numel() or w:numel() ~= y:numel() then
    errors.argument("add_pr_curve", "predictions", ("%d predictions for %d labels"):format(
      p:numel(), y:numel()), "E_SHAPE")
  end
  local bucket = (p * (thresholds - 1)):floor():clamp(0, thresholds - 1):to(moth.int64)
  local function counts(of)
    return moth.zeros(thresholds, {dtype = moth.float64}):scatter_add(1, bucket + 1, of)
  end
  local tp, fp = reverse_cumsum(counts(y * w)), reverse_cumsum(counts((1 - y) * w))
  local tn, fn = fp:select(1, 1) - fp, tp:select(1, 1) - tp
  local function share(of) return tp / of:clamp(1e-7) end
  return summaries.pr_curve_raw(tag, {tp, fp, tn, fn, share(tp + fp), share(tp + fn)}, thresholds)
end)

-- ---- charts of several scalars ----

--- The value of a layout: category -> chart -> {"Multiline" or "Margin", {tags}}.
function summaries.custom_scalars(layout)
  local categories = {}
  for _, title in ipairs(sorted_keys(layout, "add_custom_scalars", "layout")) do
    local charts = {}
    for _, name in ipairs(sorted_keys(layout[title], "add_custom_scalars", "layout")) do
      local kind, tags = unpack(layout[title][name])
      if type(tags) ~= "table" or kind == "Margin" and #tags ~= 3 then
        errors.argument("add_custom_scalars", "layout", ("chart '%s' needs {\"Multiline\", {tags}} "
          .. "or {\"Margin\", {value, lower, upper}}"):format(name), "E_TYPE")
      end
      charts[#charts + 1] = kind == "Margin"
        and {title = name, margin = {series = {{value = tags[1], lower = tags[2],
                                                upper = tags[3]}}}}
        or {title = name, multiline = {tag = tags}}
    end
    categories[#categories + 1] = {title = title, chart = charts}
  end
  return {tag = "custom_scalars__config__", metadata = metadata "custom_scalars",
          tensor = {dtype = STRING, tensor_shape = {},
                    string_val = {packed("Layout", {category = categories})}}}
end

-- ---- graphs ----

local function shapes_attribute(shape)
  local dims = {}
  for i, n in ipairs(shape or {}) do dims[i] = {size = n} end
  return {{key = "_output_shapes", value = {list = {shape = {{dim = dims}}}}}}
end

--- A net's graph as bytes: a node for each call and each parameter, named by the paths of modules.
-- @param model   a module
-- @param inputs  a list of tensors
function summaries.graph(model, inputs)
  local root = class.typename(model)
  local nodes, names, taken, parameters = {}, {}, {}, {}
  local function unique(name)
    local n = taken[name] or 0
    taken[name] = n + 1
    return n > 0 and ("%s_%d"):format(name, n) or name
  end
  local function scoped(path) return root .. "/" .. path:gsub("%.", "/") end
  local states = {}
  for name, x in model:named_parameters() do states[name] = x end
  for name, x in model:named_buffers() do states[name] = x end
  for i, node in ipairs(require("moth.utils.net_graph").of(model, inputs)) do
    local io = node.op == "input" or node.op == "output"
    names[i] = unique(io and node.op or scoped(node.path == "" and node.op
      or node.path .. "." .. node.op))
    local from = {}
    for k, at in ipairs(node.inputs) do from[k] = names[at] end
    for _, name in ipairs(node.parameters) do
      if not parameters[name] then
        parameters[name] = unique(scoped(name))
        nodes[#nodes + 1] = {name = parameters[name], op = "Parameter",
                             attr = shapes_attribute(states[name] and states[name].shape)}
      end
      from[#from + 1] = parameters[name]
    end
    nodes[#nodes + 1] = {name = names[i], op = io and "IO Node" or node.op, input = from,
                         attr = shapes_attribute(node.shape)}
  end
  return packed("Graph", {node = nodes, versions = {producer = 22}})
end

-- ---- sounds ----

local function little(n, bytes)
  local out = {}
  for i = 1, bytes do
    out[i] = string.char(n % 256)
    n = math.floor(n / 256)
  end
  return table.concat(out)
end

--- The message of a sound: a WAV file of 16 bits.
-- @param x     samples from -1 to 1, (L) or (1, L)
-- @param rate  samples per second
summaries.audio = scope.inside(function(x, rate)
  local moth = require "moth"
  x = x:detach():cpu():squeeze()
  if x:dim() ~= 1 then
    errors.argument("add_audio", "snd_tensor", "samples (L) or (1, L) are needed, got "
      .. errors.describe(x), "E_SHAPE")
  end
  local samples = (moth.nan_to_num(x:float()):clamp(-1, 1) * 32767):to(moth.int16):contiguous()
  local size = 2 * samples:numel()
  local wav = "RIFF" .. little(36 + size, 4) .. "WAVEfmt " .. little(16, 4) .. little(1, 2)
    .. little(1, 2) .. little(rate, 4) .. little(2 * rate, 4) .. little(2, 2) .. little(16, 2)
    .. "data" .. little(size, 4) .. ffi.string(lib.data(samples, "SummaryWriter"), size)
  return {sample_rate = rate, num_channels = 1, length_frames = samples:numel(),
          encoded_audio_string = wav, content_type = "audio/wav"}
end)

--- The time now, for names of runs.
function summaries.now() return ("%.6f"):format(machine.time()) end

return summaries
