--- init.lua -- require "moth": the namespace.
--
--     local moth = require "moth"
--     local nn, F, optim = moth.nn, moth.nn.functional, moth.optim
--
-- Everything is found at its first use: a submodule, a function written in Lua, or an op of the
-- engine. Nothing but the table itself is made when Moth is loaded.

if not rawget(_G, "jit") then
  error("Moth needs LuaJIT 2.1 and was loaded by " .. _VERSION .. ": run the program with luajit "
    .. "(Debian and Ubuntu: apt install luajit, macOS: brew install luajit, sources: luajit.org) "
    .. "or with Moth's own ./moth", 0)
end

local registry = debug.getregistry()
if registry.moth and registry.moth.moth then return registry.moth.moth end

local lib = require "moth.lib"
local errors = require "moth.error"
local bind = require "moth.bind"
local dtype = require "moth.dtype"
local lazy = require "moth.lazy"

local ffi = require "ffi"

local anchor = lib.anchor
local version = ffi.string(lib.C.moth_version())
local moth = { none = lib.none, version = version, _VERSION = "Moth " .. version }

-- ---- where modules are found ----

local loadfile = loadfile -- a host may take it away from its scripts

local function keep_loaded()
  for name, module in pairs(package.loaded) do
    if type(name) == "string" and name:sub(1, 5) == "moth." then anchor.loaded[name] = module end
  end
end

-- Modules that the path does not lead to lie beside this file; in a checkout those of moth.nn lie
-- in nn/ beside lua/.
local function find_file(name)
  local path = package.searchpath(name, package.path)
  if path then return path end
  local rest, folder = errors.root and name:match("^moth%.nn%.?(.*)$"), errors.root
  if rest then
    folder, rest = folder .. "nn/", rest == "" and "init" or rest
  else
    folder, rest = errors.folder, name:sub(6)
  end
  return package.searchpath(folder .. rest:gsub("%.", "/"), "?.lua;?/init.lua", "", "")
end

local function search(name)
  if name == "moth" then return function() return moth end end
  if name:sub(1, 5) ~= "moth." then return nil end
  local loaded = anchor.loaded[name]
  if loaded ~= nil then return function() return loaded end end
  local path = find_file(name)
  if not path then return nil end
  local chunk, problem = loadfile(path)
  if not chunk then error(problem, 0) end
  return function(...)
    local module = chunk(...)
    if module == nil then module = true end
    anchor.loaded[name] = module
    return module
  end
end
table.insert(package.loaders, 2, search)

-- ---- what stands in the namespace ----

-- Values written in Lua, by where they stand.
local rows = {
  Size = {"moth.size", "new"},
  device = {"moth.device", "new"},
  inference_mode = {"moth.autograd", "no_grad"},
  trapz = {"moth.pieces", "trapezoid"},
  chain_matmul = {"moth.linalg", "multi_dot"},
  asarray = {"moth.create", "as_tensor"},
  timer = {"moth.benchmark", "Timer"},
}
local function from(module, names) lazy.from(rows, module, names) end
from("moth.*", "nn optim utils ops amp backends cuda data define autograd class progress warn "
  .. "summary distributions func linalg fft onnx profiler special darknet gguf "
  .. "random signal testing strict")
from("moth.create", "tensor as_tensor frombuffer")
from("moth.dispatch", "max min equal allclose norm arange range randint randperm "
  .. "cross_entropy")
from("moth.results", "median unique unique_consecutive nonzero where normal tensor_split "
  .. "meshgrid broadcast_tensors")
from("moth.composed", "polygamma quantile nanmedian cdist logspace tril_indices triu_indices "
  .. "clamp_min clamp_max")
from("moth.types", "finfo iinfo promote_types result_type can_cast get_device")
from("moth.matrices", "cholesky cholesky_inverse cholesky_solve cross det inverse logdet "
  .. "lu_solve matrix_exp matrix_power pinverse qr slogdet svd")
from("moth.factors", "orgqr ormqr lu_unpack")
from("moth.pieces", "atleast_1d atleast_2d atleast_3d column_stack block_diag cartesian_prod "
  .. "combinations vander hsplit vsplit dsplit select_scatter diagonal_scatter trapezoid cov "
  .. "corrcoef logaddexp2 float_power pdist")
from("moth.numbers", "ldexp frexp mvlgamma renorm logcumsumexp cumulative_trapezoid gradient "
  .. "binomial angle isreal rsub")
from("moth.statistics", "mode nanquantile histogram svd_lowrank pca_lowrank std var std_mean "
  .. "var_mean")
from("moth.search", "searchsorted bucketize")
from("moth.reindex", "scatter index_reduce put slice_scatter unravel_index narrow_copy "
  .. "broadcast_shapes split_with_sizes diagflat")
from("moth.quantize", "fake_quantize_per_tensor_affine fake_quantize_per_channel_affine")
from("moth.interpolate", "interpolate")
from("moth.benchmark", "time")
from("moth.window", "hann_window hamming_window blackman_window bartlett_window kaiser_window")
from("moth.stft", "stft istft")
from("moth.vmap", "vmap")
from("moth.deepcopy", "deepcopy")
from("moth.contract", "einsum tensordot")
from("moth.sparse", "sparse_coo_tensor")
from("moth.scope", "scope keep")
from("moth.capture", "capture")
from("moth.kernel", "kernel")
from("moth.memory", "memory set_memory_limit set_memory_floor empty_cache reset_peak_memory "
  .. "collect leaks")
from("moth.autograd", "no_grad enable_grad set_grad_enabled is_grad_enabled")
from("moth.autocast", "autocast is_autocast_enabled")
from("moth.scaler", "GradScaler")
from("moth.generator", "Generator manual_seed seed initial_seed get_rng_state set_rng_state")
from("moth.save", "save load open")
from("moth.print", "set_printoptions")
from("moth.help", "help")
from("moth.index", "newaxis")
from("moth.settings", "get_default_dtype set_default_dtype get_default_device "
  .. "set_default_device get_num_threads set_num_threads errcode "
  .. "is_tensor is_floating_point numel typename context token open_token "
  .. "get_float32_matmul_precision set_float32_matmul_precision use_deterministic_algorithms "
  .. "are_deterministic_algorithms_enabled")

moth.inf, moth.nan, moth.pi, moth.e = math.huge, 0 / 0, math.pi, math.exp(1)
for name, object in pairs(dtype.by_name) do moth[name] = object end
for _, names in ipairs {require("moth.layout").docs, require("moth.layout").kinds} do
  for name in pairs(names) do moth[name] = name end
end

-- Not short and int, which are near to too much.
local function worth_guessing(names, wrong)
  local list = {}
  for _, name in ipairs(names) do
    if not dtype.by_name[name] or wrong:find "%d" then list[#list + 1] = name end
  end
  return list
end

local function find(name)
  if name == "default_generator" then return require("moth.generator").default() end
  return bind.public(name)
end

local also = {"default_generator", unpack(require("moth.alias").names())}

--- All names of the namespace, sorted: for completion and documentation.
moth.names = select(2, lazy.namespace("moth", moth, rows, {
  find = find, names = bind.names, also = also, guesses = worth_guessing,
  found = keep_loaded, hint = lazy.HELP,
}))

getmetatable(moth).__tostring = function() return moth._VERSION end

anchor.moth = moth
function anchor.hint(message) -- for the launcher
  return (require "moth.hint"(message))
end
require "moth.tensor" -- the metatype of handles
keep_loaded()
return moth
