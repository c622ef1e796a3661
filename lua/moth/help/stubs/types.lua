--- types.lua -- the types of arguments, results and fields, for annotation files (stubs). The
-- types of arguments are read from the signatures that also check the calls. The types of results
-- and fields are found by running the examples of the documentation.

local class = require "moth.base.class"
local dtype = require "moth.tensor.dtype"
local lib = require "moth.binding.lib"
local samples = require "moth.help.samples"

local concat, format = table.concat, string.format

local types = {}

local INTS = "moth.int|moth.int[]|moth.Size"
local TYPES = { -- by kind of argument
  tensor = "moth.Tensor", number = "moth.Tensor|number|boolean", mask = "moth.Tensor",
  index = "moth.Tensor|integer|table", tensors = "moth.Tensor[]", indices = "table",
  generator = "moth.Generator", scalar = "number|boolean|moth.Tensor", int = "moth.int",
  dim = "moth.int", position = "moth.int", ignored = "moth.int", float = "number", ints = INTS,
  shape = INTS, dims = INTS, floats = "number|number[]", bool = "boolean", dtype = "moth.dtype",
  device = "moth.device|string", string = "string", map = "table", modules = "moth.nn.Module[]",
  params = "moth.Tensor[]|table|function", ["function"] = "function|table",
}

--- Results of methods that have no example with a result.
types.methods = {
  train = "self", eval = "self", to = "self", cpu = "self", cuda = "self", apply = "self",
  half = "self", float = "self", double = "self", bfloat16 = "self", type = "self",
  requires_grad_ = "self", deepcopy = "self", add_module = "self", append = "self",
  extend = "self", insert = "self", parameters = "moth.Tensor[]", buffers = "moth.Tensor[]",
  modules = "any[]", children = "any[]", state_dict = "table",
  get_parameter = "moth.Tensor", get_buffer = "moth.Tensor", get_submodule = "any",
  len = "integer", iter = "function", get_last_lr = "number[]", get_lr = "number[]",
  sample = "moth.Tensor", rsample = "moth.Tensor", log_prob = "moth.Tensor", cdf = "moth.Tensor",
  icdf = "moth.Tensor", entropy = "moth.Tensor", enumerate_support = "moth.Tensor",
  perplexity = "moth.Tensor", log_abs_det_jacobian = "moth.Tensor", expand = "self",
  check = "moth.Tensor", extra_repr = "string", is_enabled = "boolean", get_scale = "number",
}

--- Results of functions without a signature.
types.functions = {
  Size = "moth.Size", device = "moth.device", get_default_dtype = "moth.dtype", time = "number",
  are_deterministic_algorithms_enabled = "boolean", get_num_threads = "integer",
  numel = "integer", device_count = "integer", get_rng_state = "moth.Tensor",
  get_default_device = "moth.device", typename = "string", initial_seed = "any",
}

--- Results of methods of tensors without a signature.
types.tensor_methods = {
  size = "any", stride = "any", item = "any", tolist = "any", type = "any", shape = "moth.Size",
  dim = "integer", ndimension = "integer", numel = "integer", nelement = "integer",
  storage_offset = "integer", element_size = "integer", data_ptr = "integer",
  values = "moth.Tensor", is_contiguous = "boolean", is_floating_point = "boolean",
  is_signed = "boolean", is_set_to = "boolean", is_pinned = "boolean", record_stream = "",
  backward = "", retain_grad = "", free = "", register_hook = "table",
  register_post_accumulate_grad_hook = "table",
}

--- Fields of tensors whose values are not tensors.
types.fields = {
  shape = "moth.Size", ndim = "integer", dtype = "moth.dtype", device = "moth.device",
  is_cuda = "boolean", is_sparse = "boolean", layout = "string", itemsize = "integer",
  nbytes = "integer", requires_grad = "boolean", is_leaf = "boolean", retains_grad = "boolean",
  grad_fn = "any", _version = "integer",
}

--- Class -> the name of its type.
types.paths = {}

--- The type of a value that an example returned.
function types.of(value)
  local kind = type(value)
  if lib.istensor(value) then return "moth.Tensor" end
  if kind == "cdata" then return "integer" end
  if kind ~= "table" then return kind ~= "nil" and kind or "any" end
  if dtype.codes[value] then return "moth.dtype" end
  local of = class.of(value)
  while of and not types.paths[of] do of = class.base(of) end
  if of then return types.paths[of] end
  if getmetatable(value) == nil and lib.istensor(value[1]) then return "moth.Tensor[]" end
  return "any"
end

--- The type of an argument of a signature.
function types.of_argument(arg)
  local name, known = arg.row.name, nil
  local sizes = name:match "^int%d"
  if arg.choices then
    local list = {sizes and INTS}
    for _, choice in ipairs(arg.choices) do list[#list + 1] = format("%q", choice) end
    known = concat(list, "|")
  elseif sizes then
    known = name:find "%?" and "moth.int|table" or name == "int1" and "moth.int" or INTS
  end
  return known or TYPES[name] or "any"
end

-- ---- running the examples ----

-- The names that examples use. Their output is dropped.
local function environment()
  local moth = require "moth"
  local known = {moth = moth, nn = moth.nn, F = moth.nn.functional, optim = moth.optim,
                 data = moth.data, print = function() end}
  return setmetatable(known, {__index = _G})
end

local function run(code, fn)
  local chunk, names = loadstring(code, "=example"), environment()
  if not chunk then return {n = 0} end
  names.fn = fn
  local function packed(fine, ...) return {n = fine and select("#", ...) or 0, ...} end
  -- without drawing the initial values of layers: the models of moth.models have many
  return packed(pcall(require("moth.nn.initialization").skip, setfenv(chunk, names)))
end

local function types_of(values)
  local list = {}
  for i = 1, values.n do list[i] = types.of(values[i]) end
  return list
end

-- Calls that change Moth's settings are not run.
local SETTINGS = {"^load", "^progress$", "^set_", "^use_", "^manual_seed", "^save", "^seed$",
  "_memory$", "^reset_"}

--- Runs the first example of a function. Returns the results and `n`, their number; 0 if there is
-- no example, or only examples that change Moth's settings.
function types.example(sig, fn)
  for _, pattern in ipairs(sig.lua and SETTINGS or {}) do
    if sig.name:match("[%w_]+$"):find(pattern) then return {n = 0} end
  end
  if (sig.file or ""):find("moth/distributed/", 1, true) then return {n = 0} end -- opens MPI
  local first = (sig.examples or ""):match "[^\n]+"
  if not first then return {n = 0} end
  return run("return fn(" .. first:gsub("%s*%-%- domain:.*$", "") .. ")", fn)
end

--- The results of a function: a list of types.
function types.results(sig, fn)
  local list = {}
  if not sig.lua then
    for i in ipairs(sig.outputs) do list[i] = "moth.Tensor" end
    return list
  end
  list = types_of(types.example(sig, fn))
  for i = #list + 1, #sig.outputs do list[i] = "any" end
  return #list > 0 and list or {"any"}
end

--- Runs the example of a class.
-- @return the first instance that the example created, or nil; the types of the arguments of its
-- forward; the types of the results
function types.observed(object, path, sig)
  local line, text = samples.of(path, sig)
  local code, name = line or text, path:match "[%w_]+$"
  if not code or path == "moth.progress" then return nil end
  local instance, taken, results
  local function seen(made)
    if instance or class.of(made) ~= object then return made end
    instance = made
    if class.isinstance(made, require "moth.nn.module") and type(made.forward) == "function" then
      local forward = made.forward
      made.forward = function(...)
        local given, found = {n = select("#", ...), ...}, nil
        local function keep(...) found = {n = select("#", ...), ...} return ... end
        local function ran(...) taken, results = types_of(given), types_of(found) return ... end
        return ran(keep(forward(...)))
      end
    end
    return made
  end
  code = code:gsub("([%w_.]*%f[%w_]" .. name .. ")(%b())", "seen(%1%2)")
    :gsub("([%w_.]*%f[%w_]" .. name .. ")(%b{})", "seen(%1%2)")
  local chunk = loadstring(code, "=example") or loadstring("return " .. code, "=example")
  local names = environment()
  names.seen = seen
  if chunk then pcall(setfenv(chunk, names)) end
  if taken then table.remove(taken, 1) end
  return instance, taken, results
end

return types
