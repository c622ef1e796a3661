--- instead.lua -- names of PyTorch that Moth leaves out by choice, and what there is instead: the
-- hint in the error of who asks for one.

local COMPLEX = "complex numbers are pairs in a last dimension of 2, see moth.fft"
local FASTER = "moth.capture replays a whole step as one call, moth.kernel makes a function of "
  .. "elements one pass over memory"
local SHAPE = "a tensor keeps its shape: x:narrow and x:view give others, moth.empty another tensor"
local ELEMENTS = "moth.kernel(f) makes a function of elements one pass over memory"
local SHARED = "moth.token(x) and moth.open_token share a tensor between threads"
local SPARSE = "moth.sparse_coo_tensor is the one sparse layout, of some of the rows"
local QUANTIZED = "there are no quantized dtypes"
local STRIDED = "moth.as_strided views memory in any order"
local DEVICES = "a net runs on one device; moth.token shares its weights between threads, as in "
  .. "examples/12_word2vec.lua"
local RECURRENT = "nn.RNN, nn.LSTM and nn.GRU can be inherited from"
local GRAPH = "x:register_hook sees gradients, moth.utils.checkpoint saves memory"

-- Rows of names and what is said of them.
local ROWS = {
  ["moth"] = {
    ["compile jit fx"] = FASTER,
    ["complex view_as_real view_as_complex complex64 complex128 is_complex"] = COMPLEX,
    ["real imag"] = COMPLEX, ["polar"] = "moth.fft.polar; " .. COMPLEX,
    ["transforms"] = "F.interpolate, F.pad, x:flip and arithmetic in a Dataset's get do their work",
    ["adjoint"] = "x:adjoint(), or x.mH, is x.mT",
    ["from_file"] = "moth.load maps a safetensors file",
    ["from_numpy from_dlpack"] = "moth.frombuffer reads bytes; a host gives memory by "
      .. "moth_from_memory",
    ["empty_strided"] = STRIDED,
    ["sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor"] = SPARSE,
    ["quantize_per_tensor quantize_per_channel"] = QUANTIZED,
    ["set_default_tensor_type"] = "moth.set_default_dtype and set_default_device",
    ["lu"] = "moth.linalg.lu and lu_factor", ["triangular_solve"] = "moth.linalg.solve_triangular",
    ["FloatTensor DoubleTensor HalfTensor BFloat16Tensor LongTensor IntTensor ByteTensor "
      .. "BoolTensor Tensor"] = "moth.tensor(list, {dtype = moth.int64}), moth.empty(2, 3)",
    ["detach"] = "x:detach()", ["is_nonzero"] = "x:item() ~= 0",
    ["scalar_tensor"] = "moth.tensor(3)",
    ["random"] = "moth.manual_seed, moth.get_rng_state and moth.set_rng_state",
    ["testing"] = "moth.allclose and x:equal compare",
    ["matrix_rank cond"] = "moth.linalg.matrix_rank and moth.linalg.cond",
    ["lobpcg"] = "moth.linalg.eigh gives all eigenvalues", ["geqrf"] = "moth.linalg.qr",
  },
  ["tensor"] = {
    ["resize_ resize_as_"] = SHAPE,
    ["repeat_"] = "x:tile(2, 3) repeats, as a new tensor",
    ["set_"] = "x.data = other gives it the values of another of its shape",
    ["apply_ map_ map2_"] = ELEMENTS, ["numpy"] = "x:tolist() gives a table",
    ["real imag is_complex conj cfloat cdouble"] = COMPLEX,
    ["untyped_storage storage"] = "x:data_ptr(), x:storage_offset() and x.nbytes say where it lies",
    ["share_memory_ is_shared"] = SHARED, ["to_sparse"] = SPARSE,
    ["dim_order"] = "x:stride() tells the order in memory",
    ["is_inference is_meta"] = "there are no such tensors",
    ["lu"] = "moth.linalg.lu and lu_factor", ["triangular_solve"] = "moth.linalg.solve_triangular",
    ["eigenvalues eigenvectors Q R U S V Vh L LU P LD solution residuals logabsdet pivots info "
      .. "counts"] = "several results come one by one: local Q, R = moth.linalg.qr(x)",
  },
  ["moth.nn"] = {
    ["DataParallel SyncBatchNorm parallel"] = DEVICES,
    ["CrossMapLRN2d"] = "LocalResponseNorm is the same function",
    ["RNNBase RNNCellBase"] = RECURRENT,
    ["parameter is_lazy"] = "nn.isinstance(p, nn.UninitializedParameter) stands for is_lazy(p)",
  },
  ["moth.nn.functional"] = {
    ["multi_head_attention_forward"] = "nn.MultiheadAttention, scaled_dot_product_attention",
    ["native_channel_shuffle"] = "channel_shuffle does it",
    ["upsample"] = "interpolate takes the same arguments",
    ["upsample_nearest"] = "interpolate{x, size, scale_factor} does it",
    ["upsample_bilinear"] = "interpolate{x, size, mode = 'bilinear', align_corners = true} does it",
    ["rrelu_"] = "rrelu{x, inplace = true} does it",
    ["grouped_mm scaled_mm scaled_grouped_mm"] = "there are no dtypes of 8 bits but integers",
  },
  ["moth.cuda"] = {
    ["CUDAGraph graph_pool_handle make_graphed_callables is_current_stream_capturing"] =
      "moth.cuda.graph(f) records a step and replays it",
    ["amp"] = "moth.autocast and moth.amp.GradScaler serve all devices",
    ["nvtx"] = "moth.profiler.record_function marks a part of a profile",
    ["set_stream StreamContext"] = "moth.cuda.stream(s, f) calls f on a stream",
    ["OutOfMemoryError"] = "after pcall, moth.errcode() is \"E_MEM\"",
    ["memory_stats memory_snapshot max_memory_reserved max_memory_cached memory_cached"] =
      "moth.cuda.memory_summary, memory_allocated, max_memory_allocated and memory_reserved tell",
    ["reset_max_memory_allocated reset_max_memory_cached reset_accumulated_memory_stats"] =
      "moth.cuda.reset_peak_memory_stats lets the peak begin anew",
    ["get_rng_state_all set_rng_state_all seed_all"] = "one stream of random numbers serves all "
      .. "devices: moth.get_rng_state and moth.set_rng_state",
    ["FloatTensor DoubleTensor HalfTensor BFloat16Tensor LongTensor IntTensor ByteTensor "
      .. "BoolTensor"] = "moth.tensor(list, {dtype = moth.int64, device = \"cuda\"})",
    ["comm nccl"] = DEVICES, ["init is_initialized"] = "a GPU is looked for when it is first named",
    ["utilization temperature power_draw clock_rate"] = "nvidia-smi tells",
  },
  ["moth.func"] = {
    ["linearize"] = "moth.func.jvp gives the derivative along tangents",
  },
  ["moth.data"] = {
    ["default_convert"] = "samples hold tensors already, there are no arrays to convert",
  },
  ["moth.autograd"] = {
    ["forward_ad"] = "functional.jvp gives directional derivatives",
    ["graph"] = GRAPH,
  },
}

--- What there is instead of a name, as text; nil: nothing is known.
-- @param path  whose name it is, as messages call it: "moth.nn"; "tensor" for a tensor's
return function(path, name)
  for names, text in pairs(ROWS[path] or {}) do
    if (" " .. names .. " "):find(" " .. name .. " ", 1, true) then return text end
  end
  if path == "moth" and getmetatable(require "moth.nn.functional").__built_in(name) ~= nil then
    return "it is moth.nn.functional." .. name
  end
end
