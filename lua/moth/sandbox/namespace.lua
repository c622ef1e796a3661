--- namespace.lua -- Moth as a sandbox's scripts see it: an allow list.
--
-- Allowed are all ops, and the functions and classes listed here. Not allowed is what reads or
-- writes files, starts threads, generates code, changes settings of the whole Lua state, or uses
-- memory that Moth does not own. Scripts get proxies of namespaces and of Moth's classes: a script
-- may derive its own classes, but does not change Moth's.

local class = require "moth.base.class"
local device = require "moth.tensor.device"
local dtype = require "moth.tensor.dtype"
local errors = require "moth.error"

local namespace = {}

local real_of = setmetatable({}, {__mode = "k"}) -- proxy -> namespace or class

local function refuse(_, key)
  error("a sandbox cannot change Moth's '" .. tostring(key) .. "'", 2)
end

local function proxy(real, index, call)
  local shadow = setmetatable({}, {
    __index = index, __newindex = refuse, __call = call, __metatable = false,
    __tostring = function() return tostring(real) end,
  })
  real_of[shadow] = real
  return shadow
end

-- ---- classes ----

local classes = setmetatable({}, {__mode = "k"}) -- class -> proxy

-- A class as a proxy that creates instances. Its functions are the class's; tables are hidden.
local function class_proxy(real)
  if not classes[real] then
    local function create(_, ...) return real(...) end
    classes[real] = proxy(real, function(_, key)
      local value = real[key]
      if type(value) == "table" then
        local meta = getmetatable(value)
        local call = type(meta) == "table" and meta.__call
        return call and function(...) return value(...) end or nil
      end
      return value
    end, create)
  end
  return classes[real]
end

local function unwrap(value) return real_of[value] or value end

local function new_class(name, base, ...)
  return class(name, type(base) == "table" and unwrap(base) or base, ...)
end

local function isinstance(object, wanted)
  return class.isinstance(object, type(wanted) == "table" and unwrap(wanted) or wanted)
end

-- ---- dtypes and devices ----

-- Objects that compare by identity are shared with the host. Their fields are moved to a table that
-- the metatable reads, so that nobody changes them.
local frozen = setmetatable({}, {__mode = "k"})

local function freeze(object)
  if frozen[object] then return object end
  local meta, fields = getmetatable(object), {}
  for key, value in pairs(object) do fields[key] = value end
  frozen[object] = fields
  for key in pairs(fields) do object[key] = nil end
  meta.__index = function(self, key)
    local own = frozen[self]
    return own and own[key]
  end
  meta.__newindex = function(self, key, value)
    if frozen[self] then error("'" .. tostring(key) .. "' cannot be assigned", 2) end
    rawset(self, key, value)
  end
  return object
end

local function freeze_shared()
  for _, object in pairs(dtype.by_code) do freeze(object) end
  for _, object in pairs(device.by_code) do freeze(object) end
end

-- ---- what is allowed ----

local NAMES = [[
tensor as_tensor asarray max min equal allclose norm arange range randint randperm cross_entropy
logspace tril_indices triu_indices vander diagflat normal binomial nonzero where scatter
index_reduce put slice_scatter select_scatter diagonal_scatter unravel_index narrow_copy atleast_1d
atleast_2d atleast_3d column_stack block_diag cartesian_prod combinations meshgrid
broadcast_tensors broadcast_shapes tensor_split hsplit vsplit dsplit split_with_sizes polygamma
clamp_min clamp_max float_power ldexp frexp mvlgamma isreal rsub median nanmedian quantile
nanquantile mode unique unique_consecutive std var std_mean var_mean cdist pdist renorm trapezoid
trapz cumulative_trapezoid gradient logcumsumexp cov corrcoef histogram finfo iinfo promote_types
result_type can_cast cholesky cholesky_inverse cholesky_solve cross det inverse logdet lu_solve
matrix_exp matrix_power pinverse qr slogdet svd chain_matmul orgqr ormqr lu_unpack svd_lowrank
pca_lowrank searchsorted bucketize fake_quantize_per_tensor_affine
fake_quantize_per_channel_affine interpolate hann_window hamming_window blackman_window
bartlett_window kaiser_window stft istft vmap einsum tensordot scope keep no_grad enable_grad
inference_mode is_grad_enabled is_tensor is_floating_point numel typename Size
get_default_dtype errcode]]

local allowed = {}
for name in NAMES:gmatch "%S+" do allowed[name] = true end

-- Namespaces whose functions and classes are all allowed, except the names listed.
local INNER = {
  ["moth.nn"] = "register_module_ class",
  ["moth.nn.functional"] = "",
  ["moth.nn.init"] = "",
  ["moth.nn.utils"] = "",
  ["moth.nn.utils.rnn"] = "",
  ["moth.optim"] = "",
  ["moth.optim.lr_scheduler"] = "",
  ["moth.linalg"] = "",
  ["moth.fft"] = "",
  ["moth.special"] = "",
  ["moth.func"] = "",
  ["moth.signal"] = "",
  ["moth.signal.windows"] = "",
}
-- Namespaces of which only these names are allowed.
local SOME = {
  ["moth.autograd"] = {grad = true, backward = true, no_grad = true, enable_grad = true,
                       Function = true},
}
local PLAIN = {number = true, string = true, boolean = true}

local inner -- the proxy of a namespace

local function value_of(path, name, value)
  local kind = type(value)
  if kind == "function" or PLAIN[kind] then return value end
  if kind ~= "table" then return nil end
  if class.isclass(value) then return class_proxy(value) end
  local below = path .. "." .. name
  if INNER[below] or SOME[below] then return inner(below, value) end
  return nil
end

local OWN = {["moth.nn"] = {class = new_class, isinstance = isinstance}}

function inner(path, space)
  local without, only, own = INNER[path], SOME[path], OWN[path]
  local cached = {}
  return proxy(space, function(_, name)
    if type(name) ~= "string" then return nil end
    if cached[name] ~= nil then return cached[name] end
    local value = own and own[name]
    if value == nil then
      if only and not only[name] or without and without ~= ""
          and (name:find("^register_module_") or name == "class") then
        errors.raise(path .. "." .. name .. " is not available in a sandbox", "E_UNSUPPORTED")
      end
      value = value_of(path, name, space[name])
    end
    cached[name] = value
    return value
  end)
end

-- moth.save and moth.load by names in one folder.
local function files(moth, folder)
  local function path_of(fname, name)
    if type(name) ~= "string" or not name:find "^[%w_][%w_%-%.]*$" or #name > 200 then
      errors.refuse(fname, "path", "a file name of letters, digits, '_', '-' and '.' is needed",
        name)
    end
    return folder .. "/" .. name
  end
  return {
    save = function(value, name) return moth.save(value, path_of("save", name)) end,
    load = function(name)
      local value = moth.load(path_of("load", name))
      if class.of(value) then
        errors.raise("load: a model of ONNX is not available in a sandbox", "E_UNSUPPORTED")
      end
      return value
    end,
  }
end

--- The namespace for one sandbox.
-- @param moth    the real one
-- @param folder  where scripts may save and load; nil: nowhere
function namespace.new(moth, folder)
  local bind = require "moth.binding.bind"
  freeze_shared()
  local own = folder and files(moth, folder) or {}
  own.class, own.none, own.newaxis = new_class, moth.none, freeze(moth.newaxis)
  own.device = function(...) return freeze(moth.device(...)) end
  for name, object in pairs(dtype.by_name) do own[name] = object end
  local layout = require "moth.tensor.layout"
  for _, names in ipairs {layout.docs, layout.kinds} do
    for name in pairs(names) do own[name] = name end
  end
  local cached = {}
  return (proxy(moth, function(_, name)
    if type(name) ~= "string" then return nil end
    local value = own[name]
    if value == nil then value = cached[name] end
    if value ~= nil then return value end
    local path = "moth." .. name
    if INNER[path] or SOME[path] then
      value = inner(path, moth[name])
    elseif allowed[name] or PLAIN[type(rawget(moth, name))] then
      value = value_of("moth", name, moth[name])
    elseif bind.public(name) then
      value = bind.public(name)
    else
      errors.raise(path .. " is not available in a sandbox", "E_UNSUPPORTED")
    end
    cached[name] = value
    return value
  end))
end

return namespace
