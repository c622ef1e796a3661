--- tensor.lua -- hints for methods and fields of tensors.

local COMPLEX = "complex numbers are pairs in a last dimension of 2, see moth.fft"
local SHAPE = "a tensor keeps its shape: x:narrow and x:view return others, moth.empty makes "
  .. "another"
local ELEMENTS = "moth.kernel(f) makes a function of elements one pass over memory"
local SHARED = "moth.token(x) and moth.open_token share a tensor between threads"
local SPARSE = "moth.sparse_coo_tensor is the one sparse layout, of some of the rows"
local QUANTIZED = "there are no quantized dtypes; moth.fake_quantize_per_tensor_affine rounds as "
  .. "they do"
local DEVICE = "x.device is the CPU or a GPU: x.is_cuda"
local MEMORY = "a tensor owns its memory; x:data_ptr(), x:storage_offset() and x.nbytes describe it"

return {tensor = {
  ["resize_ resize_as_ resize resize_as resize_as_sparse_ sparse_resize_ "
    .. "sparse_resize_and_clear_"] = SHAPE,
  repeat_ = "x:tile(2, 3) repeats, as a new tensor",
  set_ = "x.data = other sets the values to those of another of its shape",
  ["apply_ map_ map2_"] = ELEMENTS, numpy = "x:tolist() returns a table",
  ["real imag is_complex cfloat cdouble chalf isreal angle"] = COMPLEX,
  ["conj conj_physical conj_physical_ is_conj is_neg resolve_conj resolve_neg"] =
    "tensors are real, and their own conjugates",
  ["untyped_storage storage storage_type"] = MEMORY, const_data_ptr = "x:data_ptr()",
  ["share_memory_ is_shared"] = SHARED, ["to_sparse*"] = SPARSE,
  ["crow_indices col_indices ccol_indices row_indices is_sparse_csr"] = SPARSE,
  ["sparse_dim dense_dim"] = "x:dim() is the number of dims; of a sparse tensor the first is "
    .. "sparse",
  ["smm sspaddmm"] = "moth.matmul takes a sparse first factor",
  sparse_mask = "x:to_dense() and x:masked_fill take masks",
  to_mkldnn = "x:contiguous() is the layout that kernels take",
  to_padded_tensor = "moth.nn.utils.rnn.pad_sequence pads a list of tensors",
  is_nested = "moth.nn.utils.rnn.pad_sequence pads a list of tensors",
  dim_order = "x:stride() is the order in memory",
  ["is_inference is_meta"] = "there are no such tensors",
  ["is_cpu is_ipu is_maia is_mkldnn is_mps is_mtia is_vulkan is_xla is_xpu"] = DEVICE,
  ["ipu mtia xpu"] = "the devices are the CPU and CUDA: x:to(\"cuda\"), x:cpu()",
  is_distributed = "a tensor belongs to one process; moth.token shares it between threads",
  ["is_quantized q_* qscheme dequantize int_repr"] = QUANTIZED,
  is_nonzero = "x:item() ~= 0", is_same_size = "x.shape == y.shape",
  ["new"] = "x:new_empty(2, 3), x:new_zeros and x:new_tensor",
  new_empty_strided = "moth.as_strided views memory in any order",
  as_strided_scatter = "x[{...}] = values writes through a view of any order",
  slice_inverse = "x:slice_scatter writes a range",
  as_subclass = "tensors have no subclasses; nn.class makes classes that hold them",
  ["name"] = "parameters have their names in a module: net:named_parameters()",
  output_nr = "x.grad_fn is the node that made a tensor",
  grad_dtype = "a gradient has the dtype of its tensor: x.dtype",
  module_load = "net:load_state_dict(state) copies into parameters, x:copy_(y) into a tensor",
  reinforce = "moth.distributions.Categorical{probs = p}:log_prob(action) is what REINFORCE "
    .. "differentiates",
  volatile = "moth.no_grad(f) calls f without recording",
  hash_tensor = "x:equal(y) compares all elements",
  nonzero_static = "x:nonzero(), then narrow(1, 1, n)",
  ["unsafe_chunk unsafe_split unsafe_split_with_sizes"] = "x:chunk, x:split and x:split_with_sizes",
  ["lu"] = "moth.linalg.lu and moth.linalg.lu_factor",
  ["triangular_solve solve"] = "moth.linalg.solve_triangular and moth.linalg.solve",
  lstsq = "moth.linalg.lstsq", geqrf = "moth.linalg.qr",
  ["eig symeig"] = "moth.linalg.eigh returns all eigenvalues of a symmetric matrix",
  ["eigenvalues eigenvectors Q R U S V Vh L LU P LD solution residuals logabsdet pivots info "
    .. "counts"] = "several results come one by one: local Q, R = moth.linalg.qr(x)",
}}
