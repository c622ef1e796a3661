--- builder.lua -- the functions of moth.models that make a model: their common arguments, and
-- loading weights.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local init = require "moth.nn.initialization"
local lib = require "moth.binding.lib"
local named = require "moth.nn.module.named"

local builder = {}

-- ---- reading weights ----

-- Keys under which training programs store a state dict.
local INSIDE = {"state_dict", "model_state_dict", "model"}

-- Returns a table of names to tensors without the prefix of DataParallel.
local function stripped(dict)
  local plain, all = {}, true
  for name, value in pairs(dict) do
    local rest = type(name) == "string" and name:match "^module%.(.*)$"
    all = all and rest
    plain[rest or name] = value
  end
  return all and plain or dict
end

-- Returns the tensors by name, and a text for their source in messages.
local function read(fname, weights)
  local dict, shown = weights, "the state dict"
  if type(weights) == "string" then
    if weights:find "^[%u%d_]+$" then -- DEFAULT, IMAGENET1K_V1
      errors.argument(fname, "weights", ("'%s' names a file that torchvision downloads; Moth "
        .. "downloads nothing: pass the path of the file"):format(weights))
    end
    dict, shown = require("moth").load(weights), errors.path(weights)
  end
  for _, key in ipairs(INSIDE) do
    if type(dict) == "table" and type(rawget(dict, key)) == "table" then dict = dict[key] end
  end
  if type(dict) ~= "table" then
    errors.refuse(fname, "weights", "a file or a state dict is needed", dict, "E_TYPE")
  end
  return stripped(dict), shown
end

-- Renames the tensors of a file. rename(name) returns the model's name, or nil for a tensor that
-- the model does not use.
local function renamed(dict, rename)
  local out = {}
  for name, value in pairs(dict) do
    local own = type(name) == "string" and rename(name, dict)
    if own then out[own] = value end
  end
  return out
end

-- ---- comparing ----

local MOST_LISTED = 8

local function listed(title, names, into)
  if #names == 0 then return end
  local parts = {}
  for i = 1, math.min(#names, MOST_LISTED) do parts[i] = errors.bare(names[i], 160) end
  if #names > MOST_LISTED then parts[#parts + 1] = ("and %d more"):format(#names - MOST_LISTED) end
  into[#into + 1] = title .. table.concat(parts, ", ")
end

-- Compares a file's tensors with a model's.
-- @return names and tensors that fit; a text that lists the others, or nil; the names of the
-- model's tensors that the file lacks
local function compare(own, dict)
  local fit, left, count = {}, {}, 0
  local shapes, missing, unexpected, others = {}, {}, {}, {}
  for name, x in own:items() do
    local value = dict[name]
    if value == nil then
      -- files of old versions of PyTorch lack this counter
      if not name:find "%.?num_batches_tracked$" then missing[#missing + 1] = name end
    elseif not lib.istensor(value) then
      others[#others + 1] = ("%s is %s"):format(name, errors.describe(value))
    elseif value.shape ~= x.shape then
      shapes[#shapes + 1] = ("%s is %s and the model's is %s"):format(name, tostring(value.shape),
        tostring(x.shape))
      left[#left + 1] = name
    else
      fit[name], count = value, count + 1
    end
  end
  for name in pairs(dict) do
    if own[name] == nil then unexpected[#unexpected + 1] = tostring(name) end
  end
  table.sort(unexpected)
  local lines = {}
  listed("", shapes, lines)
  listed("", others, lines)
  listed("missing: ", missing, lines)
  listed("unexpected: ", unexpected, lines)
  for _, name in ipairs(missing) do left[#left + 1] = name end
  return fit, #lines > 0 and table.concat(lines, "; ") or nil, left, count
end

-- Raises or warns if weights do not fit.
local function check(row, shown, strict, text, left, count)
  if count == 0 then
    errors.argument(row.name, "weights", ("%s has no parameter of this model; %s"):format(shown,
      text or "it is empty"), "E_ARG")
  elseif text and strict then
    errors.argument(row.name, "weights", ("%s does not fit this model: %s; strict = false loads "
      .. "what fits, and the other parameters of the model get initial values"):format(shown,
      text), "E_ARG")
  end
  local odd = {}
  for _, name in ipairs(left) do
    if name:match "^(.*)%.[^.]*$" ~= row.head then odd[#odd + 1] = name end
  end
  if #odd > 0 then
    local lines = {}
    listed("", odd, lines)
    require("moth").warn(("%s: %s has no values that fit %s, which have initial values"):format(
      row.name, shown, lines[1]))
  end
end

-- True if all tensors may become the model's own, without a copy.
local function alike(own, fit)
  for name, value in pairs(fit) do
    local x = own[name]
    if value.dtype ~= x.dtype or value.device ~= x.device or not value:is_contiguous() then
      return false
    end
  end
  return true
end

local function load(row, weights, strict, options)
  local dict, shown = read(row.name, weights)
  if row.rename then dict = renamed(dict, row.rename) end
  if row.sizes then row.sizes(dict, options) end
  local net = strict and init.skip(row.make, options) or row.make(options)
  local own = net:state_dict()
  if row.adapt then row.adapt(dict, own) end
  local fit, text, left, count = compare(own, dict)
  check(row, shown, strict, text, left, count)
  net:load_state_dict(fit, {strict = false,
    assign = type(weights) == "string" and alike(own, fit)})
  if row.after then row.after(net) end
  return net
end

-- ---- builders ----

local WEIGHTS = {"any", "weights", "a safetensors or .pth file, or a state dict; default: initial "
  .. "values", optional = true}
local STRICT = {"bool", "strict", "must all weights fit? false: those that fit are loaded",
  default = true}

--- Defines a function that makes a model.
-- @param row  a table of:
--   name     "models.resnet18"
--   doc      one sentence
--   args     rows as in define, after `weights` and `strict`
--   make     function(options) -> the net; options are the arguments by name
--   head     the name of the last layer, "fc", whose size may differ from the weights'; optional
--   rename   function(name, dict) -> the model's name for a name in the file; optional
--   sizes    function(dict, options): sets absent arguments from the weights; optional
--   adapt    function(dict, own): changes tensors of the file to fit the model's; optional
--   after    function(net), called after the weights have been loaded; optional
--   examples optional
-- @return the function
function builder.define(row)
  local args = {WEIGHTS, STRICT}
  for _, arg in ipairs(row.args) do args[#args + 1] = arg end
  return (define {
    name = row.name, doc = row.doc, outputs = "net", args = args, file = row.file,
    examples = row.examples or "",
    run = function(weights, strict, ...)
      local options = {}
      for i, arg in ipairs(row.args) do options[arg[2]] = (select(i, ...)) end
      if weights == nil then return (row.make(options)) end
      return (load(row, weights, strict, options))
    end,
  })
end

--- The argument num_classes, whose default is 1000, or the number in the weights.
builder.NUM_CLASSES = {"int", "num_classes", "size of the result; default: 1000, or that of the "
  .. "weights", optional = true, first = 1000, bounds = {1}}

--- Row.sizes of a classifier whose last layer has this name.
function builder.classes(head)
  return function(dict, options)
    local weight = dict[head .. ".weight"]
    if options.num_classes == nil and lib.istensor(weight) and weight:dim() > 0 then
      options.num_classes = weight:size(1)
    end
  end
end

--- Lets the public classes of a file accept arguments by name, and check calls with '.'.
-- @param space  name -> class or function; returned
function builder.guarded(space)
  for _, value in pairs(space) do
    if class.isclass(value) then class.guard(value, "net", named.guard) end
  end
  return space
end

return builder
