--- moth.lua -- hints for names of torch: functions, dtypes, settings and whole namespaces.

local FASTER = "moth.capture replays a whole step as one call, moth.kernel makes a function of "
  .. "elements one pass over memory"
local COMPLEX = "complex numbers are pairs in a last dimension of 2, see moth.fft"
local SPARSE = "moth.sparse_coo_tensor is the one sparse layout, of some of the rows"
local QUANTIZED = "there are no quantized dtypes; moth.fake_quantize_per_tensor_affine rounds as "
  .. "they do"
local STRIDED = "moth.as_strided views memory in any order"
local SCRIPT = "it belongs to TorchScript, which has no counterpart; " .. FASTER
local ONE_PROCESS = "a tensor belongs to one process; moth.distributed copies tensors between "
  .. "processes, moth.token shares them between threads"
local LIBRARY = "it is an entry of one backend; "
local AUTOCAST = "moth.autocast(f, ...) calls f in half precision, for all devices"
local STORAGE = "a tensor owns its memory; x:data_ptr(), x:storage_offset() and x.nbytes "
  .. "describe it"
local NARROW = "moth.uint8, moth.int8, moth.int16, moth.int32 and moth.int64 are the integers"
local FLOAT8 = "moth.float16 and moth.bfloat16 are the narrowest floats"
local SYMBOLIC = "sizes are ordinary numbers: x:size(1)"
local MODELS = "networks are written with moth.nn; moth.load reads their weights from .pth and "
  .. ".safetensors, moth.onnx.load whole networks"

return {moth = {
  -- namespaces
  ["compile jit fx"] = FASTER,
  compiler = "nothing needs compiling; " .. FASTER,
  ["export package"] = "moth.onnx.export writes a network, moth.save its weights",
  multiprocessing = "moth.data.DataLoader takes num_workers; moth.token shares tensors between "
    .. "threads",
  ["futures fork wait"] = "calls are synchronous, and kernels of a GPU asynchronous without "
    .. "futures: moth.cuda.synchronize waits",
  hub = "nothing is downloaded; moth.load reads .pth and .safetensors files, moth.onnx.load "
    .. "networks",
  library = "moth.define makes a function with the checks of an op, "
    .. "moth.autograd.Function one with its own gradient",
  ["masked"] = "moth.where, x:masked_fill and x:masked_select take masks",
  ["nested jagged"] = "moth.nn.utils.rnn.pack_padded_sequence and pad_sequence take sequences of "
    .. "several lengths",
  ["ao quantization"] = QUANTIZED,
  ["mps xpu mtia"] = "the devices are the CPU and CUDA: moth.cuda.is_available() says which",
  cpu = "\"cpu\" is a device's name: x:cpu(), moth.get_num_threads()",
  accelerator = "moth.cuda.is_available(), moth.cuda.synchronize() and their like serve a GPU",
  monitor = "moth.profiler.profile measures, moth.progress counts",
  overrides = "moth.nn.class inherits from classes of modules; functions of tensors are not "
    .. "replaced",
  sparse = "moth.sparse_coo_tensor makes sparse tensors; x:to_dense(), x:coalesce() and "
    .. "moth.matmul "
    .. "take them",
  ["serialization"] = "moth.save and moth.load",
  ["types return_types"] = "several results come as several values: local values, indices = "
    .. "x:max(2)",
  ["storage UntypedStorage TypedStorage Storage is_storage *Storage StorageBase "
    .. "get_file_path"] = STORAGE,
  ["classes foreach"] = "ops are functions of moth and methods of tensors",
  ["functional"] = "its functions are moth's own: moth.cdist, moth.einsum, moth.meshgrid",
  ["quasirandom"] = "moth.rand draws uniform numbers, moth.randperm orders",
  ["cpp windows"] = "moth.h is the C interface: core/moth.h",
  ["__config__"] = "moth.version is the version; the command 'moth doctor' prints what was found",
  ["__future__"] = "module:to() replaces the values of parameters, as PyTorch does by default",
  torch = "it is moth",
  torch_version = "moth.version is the version",
  ["compiled_with_cxx11_abi has_lapack has_mkl has_openmp has_spectral is_vulkan_available "
    .. "USE_GLOBAL_DEPS USE_RTLD_GLOBAL_WITH_LIBTORCH classproperty"] =
    "the command 'moth doctor' prints which libraries were found",
  transforms = "moth.nn.functional.interpolate, moth.nn.functional.pad, x:flip and arithmetic in a "
    .. "Dataset's get do their work",
  ["models"] = MODELS,
  datasets = "moth.data.mnist and moth.data.idx read MNIST's files, moth.data.csv tables; others "
    .. "are "
    .. "classes of moth.data.Dataset",
  io = "moth.frombuffer takes the bytes that a decoder made: moth.frombuffer(bytes, {dtype = "
    .. "moth.uint8})",
  -- dtypes and layouts
  ["complex cfloat cdouble chalf complex32 complex64 complex128 bcomplex32 is_complex "
    .. "view_as_complex view_as_real view_as_complex_copy view_as_real_copy real imag"] = COMPLEX,
  ["conj conj_physical conj_physical_ is_conj resolve_conj is_neg resolve_neg"] =
    "tensors are real, and their own conjugates; " .. COMPLEX,
  polar = "moth.fft.polar; " .. COMPLEX,
  ["quint8 qint8 qint32 quint4x2 quint2x4 qscheme q_* int_repr dequantize empty_quantized "
    .. "per_channel_affine per_channel_affine_float_qparams per_channel_symmetric "
    .. "per_tensor_affine per_tensor_symmetric quantize_per_tensor quantize_per_channel "
    .. "quantize_per_tensor_dynamic quantized_* fbgemm_* choose_qparams_optimized "
    .. "fused_moving_avg_obs_fake_quant"] = QUANTIZED,
  ["bit bits1x8 bits2x4 bits4x2 bits8 bits16 int1 int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 "
    .. "uint4 uint5 uint6 uint7 uint16 uint32 uint64"] = NARROW,
  ["float8_* float4_e2m1fn_x2"] = FLOAT8,
  dtype = "x.dtype == moth.float32 compares; x:is_floating_point() asks for the kind",
  ["layout memory_format legacy_contiguous_format"] =
    "moth.strided and moth.sparse_coo are the layouts, moth.contiguous_format and "
    .. "moth.channels_last the memory formats",
  ["sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor sparse_csr sparse_csc "
    .. "sparse_bsr sparse_bsc sparse_compressed_tensor ccol_indices_copy col_indices_copy "
    .. "crow_indices_copy row_indices_copy"] = SPARSE,
  ["indices_copy values_copy"] = "x:indices() and x:values() are those of a sparse tensor",
  ["dsmm hsmm hspmm saddmm smm spmm sspaddmm"] = "moth.matmul takes a sparse first factor",
  ["resize_as_ resize_as_sparse_"] = "a tensor keeps its shape; moth.empty makes another",
  ["FloatTensor DoubleTensor HalfTensor BFloat16Tensor LongTensor IntTensor ShortTensor CharTensor "
    .. "ByteTensor BoolTensor Tensor set_default_tensor_type"] =
    "moth.tensor(list, {dtype = moth.int64}), moth.empty(2, 3), moth.set_default_dtype",
  -- making tensors
  from_file = "moth.load maps a safetensors file",
  ["from_numpy from_dlpack to_dlpack"] = "moth.frombuffer reads bytes; a host passes memory by "
    .. "moth_from_memory",
  ["empty_strided empty_permuted"] = STRIDED,
  scalar_tensor = "moth.tensor(3)",
  ["fill"] = "moth.full_like(x, value), or x:fill_(value) in place",
  -- functions
  adjoint = "x:adjoint(), or x.mH, is x.mT",
  ["is_nonzero"] = "x:item() ~= 0",
  alias_copy = "x:clone() copies",
  ["detach detach_copy"] = "x:detach(); x:detach():clone() is a copy",
  ["is_same_size"] = "x.shape == y.shape",
  ["is_signed"] = "x:is_signed()",
  ["slice_copy"] = "x[{{1, 3}}]:clone() is a copy of a range",
  ["slice_inverse"] = "moth.slice_scatter writes a range",
  ["as_strided_scatter"] = "x[{...}] = values writes through a view of any order",
  ["isreal"] = "tensors are real: moth.ones_like(x):bool()",
  ["angle"] = "moth.atan2(imaginary, real) is the angle of a pair",
  ["rsub"] = "write other - x",
  ["lu lu_factor"] = "moth.linalg.lu and moth.linalg.lu_factor",
  ["triangular_solve solve"] = "moth.linalg.solve_triangular and moth.linalg.solve",
  ["lstsq"] = "moth.linalg.lstsq", ["matrix_rank cond"] = "moth.linalg.matrix_rank and "
    .. "moth.linalg.cond",
  ["symeig eig lobpcg"] = "moth.linalg.eigh returns all eigenvalues of a symmetric matrix",
  geqrf = "moth.linalg.qr",
  ["frobenius_norm nuclear_norm native_norm"] = "moth.linalg.matrix_norm and "
    .. "moth.linalg.vector_norm",
  norm_except_dim = "moth.linalg.vector_norm takes the dims; moth.nn.utils.weight_norm divides "
    .. "by it",
  ["constant_pad_nd"] = "moth.nn.functional.pad{x, pad, value = 0}",
  ["conv_tbc"] = "moth.nn.functional.conv1d takes (N, C, L): x:permute(2, 3, 1)",
  ["convolution"] = "moth.nn.functional.conv1d, conv2d, conv3d and conv_transpose2d",
  ["affine_grid_generator cudnn_affine_grid_generator"] = "moth.nn.functional.affine_grid",
  ["grid_sampler grid_sampler_2d grid_sampler_3d cudnn_grid_sampler"] =
    "moth.nn.functional.grid_sample",
  ["max_pool1d_with_indices mkldnn_max_pool2d mkldnn_max_pool3d"] =
    "moth.nn.functional.max_pool1d{x, 2, return_indices = true}, max_pool2d, max_pool3d",
  ["mkldnn_adaptive_avg_pool2d"] = "moth.nn.functional.adaptive_avg_pool2d",
  ["cudnn_convolution* miopen_convolution* miopen_depthwise_convolution mkldnn_convolution "
    .. "cudnn_is_acceptable"] = LIBRARY .. "moth.nn.functional.conv2d takes the fastest there is",
  ["miopen_rnn mkldnn_rnn_layer"] = LIBRARY .. "moth.nn.LSTM, moth.nn.GRU and moth.nn.RNN",
  ["miopen_ctc_loss"] = LIBRARY .. "moth.nn.functional.ctc_loss",
  mkldnn_linear_backward_weights = LIBRARY .. "moth.nn.functional.linear has its gradient",
  ["batch_norm_* cudnn_batch_norm miopen_batch_norm native_batch_norm"] =
    LIBRARY .. "moth.nn.functional.batch_norm",
  native_layer_norm = "moth.nn.functional.layer_norm",
  native_group_norm = "moth.nn.functional.group_norm",
  native_dropout = "moth.nn.functional.dropout",
  native_channel_shuffle = "moth.nn.functional.channel_shuffle",
  ["feature_dropout feature_dropout_"] = "moth.nn.functional.dropout2d drops whole channels",
  ["alpha_dropout_ feature_alpha_dropout_"] =
    "moth.nn.functional.alpha_dropout{x, p, training = true, inplace = true} works in place",
  rrelu_ = "moth.nn.functional.rrelu{x, inplace = true} works in place",
  embedding_renorm_ = "moth.nn.functional.embedding{tokens, weight, max_norm = 1} renormalizes",
  ["segment_reduce"] = "moth.scatter_reduce reduces by an index of segments",
  histogramdd = "moth.histogram counts one variable; moth.bincount counts joint bins",
  hash_tensor = "moth.equal compares all elements",
  nonzero_static = "moth.nonzero, then x:narrow(1, 1, n)",
  ["unsafe_chunk unsafe_split unsafe_split_with_sizes"] = "moth.chunk, moth.split and "
    .. "moth.split_with_sizes",
  ["while_loop"] = "Lua's own while loops run anything; moth.capture replays loops of fixed length",
  -- modes and settings
  ["get_autocast_* set_autocast_* autocast_*_nesting clear_autocast_cache "
    .. "is_autocast_*"] = AUTOCAST,
  ["set_anomaly_enabled is_anomaly_enabled is_anomaly_check_nan_enabled"] =
    "moth.autograd.set_detect_anomaly and moth.autograd.is_anomaly_enabled",
  ["is_inference_mode_enabled is_inference"] = "moth.inference_mode is moth.no_grad: "
    .. "moth.is_grad_enabled() asks",
  ["get_deterministic_debug_mode set_deterministic_debug_mode "
    .. "is_deterministic_algorithms_warn_only_enabled"] = "moth.use_deterministic_algorithms and "
    .. "moth.are_deterministic_algorithms_enabled",
  ["get_num_interop_threads set_num_interop_threads init_num_threads"] =
    "ops run one after another: moth.get_num_threads and moth.set_num_threads set the threads of "
      .. "one",
  ["set_flush_denormal"] = "denormal numbers are kept",
  ["set_warn_always is_warn_always_enabled"] = "moth.warn prints each warning once",
  ["get_device_module"] = "moth.cuda is the one module of a device",
  ["is_distributed"] = ONE_PROCESS,
  ["thread_safe_generator"] = "moth.Generator belongs to one thread: "
    .. "moth.Generator():manual_seed(1)",
  ["Event Stream StreamObjType DeviceObjType"] = "moth.cuda.Event and moth.cuda.Stream",
  ["OutOfMemoryError AcceleratorError FatalError JITException ErrorReport"] =
    "errors are caught by pcall; moth.errcode() is then \"E_MEM\" and so on",
  ["BufferDict ModuleDict ParameterDict"] = "moth.nn.ModuleDict and moth.nn.ParameterDict",
  ["Future"] = "calls are synchronous: their results are values",
  ["ThroughputBenchmark BenchmarkConfig BenchmarkExecutionStats"] = "moth.timer measures a "
    .. "function",
  ["sym_* SymBool SymFloat SymInt"] = SYMBOLIC,
  ["profiler_allow_cudagraph_cupti_lazy_reinit_cuda12"] = "moth.profiler.profile measures "
    .. "replays too",
  ["prepare_multiprocessing_environment"] = ONE_PROCESS,
  ["AVG SUM PRIVATE_OPS AggregationType AliasDb AnyType Argument ArgumentSpec AwaitType Block "
    .. "BoolType CallStack Capsule ClassType Code CompilationUnit CompleteArgumentSpec ComplexType "
    .. "ConcreteModuleType ConcreteModuleTypeBuilder DeepCopyMemoTable DictType EnumType "
    .. "ExecutionPlan FileCheck FloatType FunctionSchema FutureType Gradient Graph "
    .. "GraphExecutorState IODescriptor InferredType IntType InterfaceType ListType "
    .. "LiteScriptModule LockingLogger LoggerBase Node NoneType NoopLogger NumberType OperatorInfo "
    .. "OptionalType PyObjectType RRefType Script* StaticModule StringType SymBoolType SymIntType "
    .. "TensorType TracingState TupleType Type UnionType Use Value import_ir_module "
    .. "import_ir_module_from_buffer merge_type_from_type_comment parse_ir parse_schema "
    .. "parse_type_comment unify_type_list"] = SCRIPT,
  ["DisableTorchFunction DisableTorchFunctionSubclass DispatchKey DispatchKeySet "
    .. "ExcludeDispatchKeyGuard Tag"] = "an op has one kernel for each device; moth.define and "
    .. "moth.autograd.Function make functions of your own",
  ["DeserializationStorageContext SerializationStorageContext PyTorchFileReader "
    .. "PyTorchFileWriter"] =
    "moth.load reads .pth files, moth.save writes safetensors",
}}
