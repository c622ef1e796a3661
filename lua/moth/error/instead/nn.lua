--- nn.lua -- hints for names of torch.nn and its namespaces.

local DEVICES = "nn.parallel.DistributedDataParallel trains a net in several processes"
local RECURRENT = "nn.RNN, nn.LSTM and nn.GRU can be inherited from"
local QUANTIZED = "there are no quantized layers; moth.fake_quantize_per_tensor_affine rounds as "
  .. "they do"
local KERNELS = "the fastest kernel is taken; moth.backends.cuda.enable_cudnn_sdp chooses cuDNN's"
local MASKS = "F.scaled_dot_product_attention{q, k, v, attn_mask = mask} takes any mask and bias, "
  .. "is_causal = true the causal one"
local INPLACE = "the name ends in _: nn.init."
local CLASSES = "the pruning functions do it: moth.nn.utils.prune."

return {
  ["moth.nn"] = {
    ["DataParallel parallel"] = DEVICES,
    ["DistributedDataParallel DDP"] = "it is moth.nn.parallel.DistributedDataParallel",
    CrossMapLRN2d = "nn.LocalResponseNorm is the same function",
    ["RNNBase RNNCellBase"] = RECURRENT,
    parameter = "nn.Parameter, nn.Buffer; nn.isinstance(p, nn.UninitializedParameter) is "
      .. "is_lazy(p)",
    Container = "nn.Module is the base of all modules",
    NLLLoss2d = "nn.NLLLoss takes images too",
    LinearCrossEntropyOptions = "nn.LinearCrossEntropyLoss takes its options as arguments",
    ["modules common_types factory_kwargs"] = "layers are names of nn itself: nn.Linear",
    grad = "moth.autograd.grad(y, {x, weight}) computes the gradients of any layer",
    ["qat quantizable quantized intrinsic"] = QUANTIZED,
  },
  ["moth.nn.functional"] = {
    multi_head_attention_forward = "nn.MultiheadAttention, F.scaled_dot_product_attention",
    native_channel_shuffle = "F.channel_shuffle is the same function",
    upsample = "F.interpolate takes the same arguments",
    upsample_nearest = "F.interpolate{x, size, scale_factor} is the same function",
    upsample_bilinear = "F.interpolate{x, size, mode = 'bilinear', align_corners = true} is the "
      .. "same function",
    rrelu_ = "F.rrelu{x, inplace = true} works in place",
    ["grouped_mm scaled_mm scaled_grouped_mm scaled_addmm scaled_addmm_ ScalingType SwizzleType"] =
      "there are no floats of 8 bits; moth.matmul and moth.bmm multiply half types",
    ["max_pool*_with_indices adaptive_max_pool*_with_indices fractional_max_pool*_with_indices"] =
      "the pooling function takes return_indices = true: F.max_pool2d{x, 2, return_indices = true}",
    conv_tbc = "F.conv1d takes (N, C, L): x:permute(2, 3, 1)",
    grad = "moth.autograd.grad(y, {x, weight}) computes the gradients of any function",
    ["BroadcastingList* boolean_dispatch assert_int_or_pair handle_torch_function "
      .. "has_torch_function has_torch_function_*"] = "moth.define makes functions that check "
      .. "their "
      .. "arguments",
    ["GRID_SAMPLE_INTERPOLATION_MODES GRID_SAMPLE_PADDING_MODES"] = "moth.help(F.grid_sample) "
      .. "lists "
      .. "the modes",
    ["reproducibility_notes sparse_support_notes tf32_notes"] = "moth.help(F.conv2d) shows a "
      .. "function's text",
    ["Tensor torch"] = "moth.tensor makes tensors",
  },
  ["moth.nn.init"] = {
    constant = INPLACE .. "constant_", dirac = INPLACE .. "dirac_", eye = INPLACE .. "eye_",
    kaiming_normal = INPLACE .. "kaiming_normal_", kaiming_uniform = INPLACE .. "kaiming_uniform_",
    normal = INPLACE .. "normal_", orthogonal = INPLACE .. "orthogonal_",
    sparse = INPLACE .. "sparse_", uniform = INPLACE .. "uniform_",
    xavier_normal = INPLACE .. "xavier_normal_", xavier_uniform = INPLACE .. "xavier_uniform_",
  },
  ["moth.nn.attention"] = {
    ["bias flex_attention varlen"] = MASKS,
    ["WARN_FOR_UNFUSED_KERNELS *flash_attention_impl *flash_attention_impls"] = KERNELS,
  },
  ["moth.nn.utils"] = {
    clip_grad_norm = "nn.utils.clip_grad_norm_ is the same function",
    ["convert_conv2d_weight_memory_format convert_conv3d_weight_memory_format"] =
      "kernels arrange weights themselves; x:to{memory_format = moth.channels_last} arranges a "
        .. "tensor",
    stateless = "moth.func.functional_call calls a module with other parameters",
  },
  ["moth.nn.parallel"] = {
    ["DataParallel data_parallel gather parallel_apply replicate scatter"] = "several devices "
      .. "are trained by several processes: moth.nn.parallel.DistributedDataParallel",
  },
  ["moth.nn.utils.rnn"] = {
    invert_permutation = "moth.argsort(permutation) is the inverse",
  },
  ["moth.nn.utils.parametrize"] = {
    type_before_parametrizations = "moth.nn.typename(module) names the class",
    transfer_parametrizations_and_params = "moth.nn.utils.parametrize.register_parametrization "
      .. "sets "
      .. "one on the other module",
  },
  ["moth.nn.utils.prune"] = {
    BasePruningMethod = "moth.nn.utils.prune.custom_from_mask takes a mask of your own",
    CustomFromMask = CLASSES .. "custom_from_mask", Identity = CLASSES .. "identity",
    L1Unstructured = CLASSES .. "l1_unstructured", LnStructured = CLASSES .. "ln_structured",
    RandomStructured = CLASSES .. "random_structured",
    RandomUnstructured = CLASSES .. "random_unstructured",
    PruningContainer = "further calls prune what is left: moth.nn.utils.prune.l1_unstructured",
  },
}
