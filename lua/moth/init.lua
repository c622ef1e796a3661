--- init.lua -- require "moth": the namespace.
--
--     local moth = require "moth"
--     local nn, F, optim = moth.nn, moth.nn.functional, moth.optim
--
-- Everything is loaded at its first use: a submodule, a function written in Lua, or an op of the
-- core. Loading Moth creates only the table.

if not rawget(_G, "jit") then
  error("Moth needs LuaJIT 2.1 and was loaded by " .. _VERSION .. ": run the program with luajit "
    .. "(Debian and Ubuntu: apt install luajit, macOS: brew install luajit, sources: luajit.org) "
    .. "or with Moth's own ./moth", 0)
end

-- LuaJIT's `require` has marked this module, and its mark would make each later call fail if this
-- one ends with an error (memory, stack or a debug hook).
package.loaded.moth = nil

local registry = debug.getregistry()
local anchor = registry.moth or {}
if anchor.moth then return anchor.moth end

-- ---- how modules are loaded ----
-- LuaJIT's `require` marks a module before it runs its code. An error in the code leaves the mark,
-- and each later `require` of that module fails. So Moth's modules use another `require`, which
-- stores a module after its code has run: after an error the next call loads the module again.

local folder = debug.getinfo(1, "S").source:match "^@(.*[/\\])" or "./" -- of this file
local host_require, load, open = require, load, io.open -- a host may remove these functions later

-- Modules that are kept when package.loaded is cleared: the metatype of tensors can be set only
-- once.
anchor.loaded = anchor.loaded or {}
registry.moth = anchor

-- Modules outside package.path are next to this file; in a checkout the modules of moth.nn are in
-- nn/ next to lua/.
local function find_file(name)
  local path = package.searchpath(name, package.path)
  if path then return path end
  local errors, rest = anchor.loaded["moth.error"], name:sub(6)
  local at = errors and errors.folder or folder
  if errors and errors.root and name:find "^moth%.nn%f[.%z]" then
    at, rest = errors.root .. "nn/", name == "moth.nn" and "init" or name:sub(9)
  end
  return package.searchpath(at .. rest:gsub("%.", "/"), "?.lua;?/init.lua", "", "")
end

local function need(name)
  local module = package.loaded[name]
  local kind = type(module)
  if kind == "table" or kind == "function" or module == true then return module end -- no mark
  if name == "moth" then return anchor.moth end
  if name:sub(1, 5) ~= "moth." then return host_require(name) end
  module = anchor.loaded[name]
  if module == nil then
    local path = find_file(name)
    if not path then return host_require(name) end -- its message lists the searched paths
    local file = open(path, "rb")
    local text = file:read "*a"
    file:close()
    local piece = text:byte() == 27 and 1 or 0 -- 27: compiled code, which calls the global one
    local chunk, problem = load(function()
      piece = piece + 1
      return piece == 1 and "local require = ... " or piece == 2 and text or nil
    end, "@" .. path)
    if not chunk then error(problem, 0) end
    module = chunk(anchor.need)
    if module == nil then module = true end
    anchor.loaded[name] = module
  end
  local recent = anchor.loaded["moth.base.recent"]
  if not recent or not recent.goes(name) then package.loaded[name] = module end
  return module
end

-- For LuaJIT's `require`: the code runs before `require` sets its mark.
function anchor.search(name)
  if name ~= "moth" and name:sub(1, 5) ~= "moth." then return nil end
  if name == "moth" and not anchor.moth then return nil end -- it was left by an error
  if name ~= "moth" and anchor.loaded[name] == nil and not find_file(name) then return nil end
  package.loaded[name] = nil
  local module = need(name)
  return function() return module end
end

anchor.need = need
local require = need

local lib = require "moth.binding.lib"
local bind = require "moth.binding.bind"
local dtype = require "moth.tensor.dtype"
local lazy = require "moth.base.lazy"

local ffi = require "ffi"

local version = ffi.string(lib.C.moth_version())
local moth = {none = lib.none, version = version, _VERSION = "Moth " .. version}

-- ---- the names of the namespace ----

-- The functions written in Lua, by module. A function made by define{...} is listed only here; its
-- definition says if it is a tensor method and in moth.nn.functional (lazy.lua).
local rows = bind.written
rows.Size = {"moth.tensor.size", "new"}
rows.device = {"moth.tensor.device", "new"}
rows.inference_mode = {"moth.autograd", "no_grad"}
rows.trapz = {"moth.functions.calculus", "trapezoid"}
rows.chain_matmul = {"moth.linalg", "multi_dot"}
rows.asarray = {"moth.tensor.create", "as_tensor"}
rows.timer = {"moth.profiler.benchmark", "Timer"}
local function from(module, names) lazy.from(rows, module, names) end
from("moth.*", "nn optim utils ops amp backends cuda data autograd distributions func linalg fft "
  .. "onnx profiler special darknet distributed gguf random signal testing models io metrics "
  .. "transforms progress audio plot callbacks fit")
from("moth.base.*", "class warn strict")
from("moth.binding.*", "define")
from("moth.help.*", "summary")
from("moth.tensor.create", "tensor as_tensor frombuffer :new_tensor :new_zeros :new_ones "
  .. ":new_empty "
  .. ":new_full")
from("moth.binding.dispatch", "max: min: equal: allclose: norm: arange range randint randperm "
  .. "cross_entropy*:")
from("moth.functions.creation", "logspace tril_indices triu_indices vander diagflat:")
from("moth.functions.sampling", "normal binomial :log_normal_ :cauchy_")
from("moth.functions.indexing", "nonzero: where :where :unfold scatter: index_reduce: put: "
  .. "slice_scatter: select_scatter: diagonal_scatter: unravel_index narrow_copy: :scatter_ "
  .. ":index_reduce_ :put_ :fill_diagonal_")
from("moth.functions.joining", "atleast_1d atleast_2d atleast_3d column_stack block_diag "
  .. "cartesian_prod combinations meshgrid broadcast_tensors broadcast_shapes tensor_split: "
  .. "hsplit: vsplit: dsplit: split_with_sizes:")
from("moth.functions.pointwise", "polygamma: clamp_min: clamp_max: float_power: ldexp: frexp: "
  .. "mvlgamma: isreal: rsub: :clamp_min_ :clamp_max_")
from("moth.functions.reduction", "median: nanmedian: quantile: nanquantile: mode: unique: "
  .. "unique_consecutive: std: var: std_mean: var_mean: :sum_to_size")
from("moth.functions.distance", "cdist pdist* renorm: :renorm_")
from("moth.functions.calculus", "trapezoid cumulative_trapezoid gradient logcumsumexp:")
from("moth.functions.statistics", "cov: corrcoef: histogram:")
from("moth.tensor.types", "finfo iinfo promote_types result_type can_cast get_device:")
from("moth.linalg.matrices", "cholesky: cholesky_inverse: cholesky_solve: cross: det: inverse: "
  .. "logdet: "
  .. "lu_solve: matrix_exp: matrix_power: pinverse: qr: slogdet: svd:")
from("moth.linalg.factors", "orgqr: ormqr: lu_unpack")
from("moth.functions.inplace", ":float_power_ :igamma_ :igammac_ :ldexp_ :mvlgamma_ :polygamma_")
from("moth.linalg.lowrank", "svd_lowrank pca_lowrank")
from("moth.functions.search", "searchsorted bucketize:")
from("moth.functions.quantize", "fake_quantize_per_tensor_affine fake_quantize_per_channel_affine")
from("moth.functions.interpolate", "interpolate*:")
from("moth.profiler.benchmark", "time")
from("moth.functions.window", "hann_window hamming_window blackman_window bartlett_window "
  .. "kaiser_window")
from("moth.functions.stft", "stft: istft:")
from("moth.func.vmap", "vmap")
from("moth.base.deepcopy", "deepcopy")
from("moth.functions.contract", "einsum tensordot")
from("moth.sparse", "sparse_coo_tensor :coalesce :is_coalesced :indices :values :to_dense "
  .. ":_indices :_values :_nnz")
from("moth.tensor.scope", "scope keep")
from("moth.capture", "capture")
from("moth.budget", "budget cancel_budget reserve")
from("moth.kernel", "kernel")
from("moth.tensor.memory", "memory set_memory_limit set_memory_floor empty_cache reset_peak_memory "
  .. "collect leaks")
from("moth.autograd", "no_grad enable_grad set_grad_enabled is_grad_enabled")
from("moth.amp.autocast", "autocast is_autocast_enabled")
from("moth.amp.scaler", "GradScaler")
from("moth.tensor.generator", "Generator manual_seed seed initial_seed get_rng_state set_rng_state")
from("moth.callbacks.lr_finder", "lr_find")
from("moth.io.save", "save load open")
from("moth.sandbox", "sandbox")
from("moth.io.reload", "reload")
from("moth.tensor.print", "set_printoptions")
from("moth.help", "help")
from("moth.tensor.index", "newaxis")
from("moth.base.settings", "get_default_dtype set_default_dtype get_default_device "
  .. "set_default_device get_num_threads set_num_threads errcode is_tensor is_floating_point "
  .. "numel typename context get_float32_matmul_precision set_float32_matmul_precision "
  .. "use_deterministic_algorithms are_deterministic_algorithms_enabled")
from("moth.tensor.token", "token open_token")

moth.inf, moth.nan, moth.pi, moth.e = math.huge, 0 / 0, math.pi, math.exp(1)
for name, object in pairs(dtype.by_name) do moth[name] = object end
for _, names in ipairs {require("moth.tensor.layout").docs, require("moth.tensor.layout").kinds} do
  for name in pairs(names) do moth[name] = name end
end

-- Guesses do not include short and int: they are similar to too many names.
local function worth_guessing(names, wrong)
  local list = {}
  for _, name in ipairs(names) do
    if not dtype.by_name[name] or wrong:find "%d" then list[#list + 1] = name end
  end
  return list
end

local function find(name)
  if name == "default_generator" then return require("moth.tensor.generator").default() end
  return bind.public(name)
end

local also = {"default_generator", unpack(require("moth.binding.alias").names())}

--- All names of the namespace, sorted: for completion and documentation.
moth.names = select(2, lazy.namespace("moth", moth, rows, {
  find = find, names = bind.names, also = also, guesses = worth_guessing, hint = lazy.HELP,
}))

getmetatable(moth).__tostring = function() return moth._VERSION end

function anchor.hint(message) -- for the launcher
  return (require("moth.error.hint")(message))
end
require "moth.tensor" -- the metatype of handles
for name, module in pairs(package.loaded) do -- loaded earlier by the host
  if type(name) == "string" and name:sub(1, 5) == "moth." then anchor.loaded[name] = module end
end
table.insert(package.loaders, 2, anchor.search)
anchor.moth, package.loaded.moth = moth, moth
return moth
