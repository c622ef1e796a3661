--- backends.lua -- hints for names of torch.backends and its namespaces.

local SDP = "moth.nn.attention.sdpa_kernel(backends, f) chooses the kernels of attention"
local DOCTOR = "the command 'moth doctor' prints which libraries were found"
local CPU = "the CPU's kernels are Moth's own and BLAS: 'moth doctor' prints the instructions "
  .. "they use"

return {
  ["moth.backends"] = {
    ["cpu kleidiai mkl mkldnn nnpack xeon"] = CPU,
    ["mha"] = "moth.nn.MultiheadAttention chooses its path itself",
    ["openmp"] = "moth.set_num_threads sets the threads",
    ["cusparselt miopen python_native"] = DOCTOR,
    opt_einsum = "moth.einsum multiplies in the order written, moth.linalg.multi_dot in the best "
      .. "one",
    quantized = "there are no quantized dtypes; moth.fake_quantize_per_tensor_affine rounds as "
      .. "they do",
    m = "its switches are names of moth.backends",
  },
  ["moth.backends.cuda"] = {
    ["SDPAParams can_use_* allow_fp16_bf16_reduction_math_sdp fp16_bf16_reduction_math_sdp_allowed "
      .. "enable_flash_sdp enable_math_sdp enable_mem_efficient_sdp flash_sdp_enabled "
      .. "math_sdp_enabled mem_efficient_sdp_enabled sdp_kernel is_ck_sdpa_available "
      .. "is_flash_attention_available preferred_rocm_fa_library"] = SDP,
    ["blas_workspace_size cublas_workspace_size cublaslt_workspace_size preferred_blas_library "
      .. "preferred_linalg_library cuBLASModule"] =
      "the library is chosen by shape: moth.backends.cuda.matmul.allow_tf32 sets its precision",
    ["cuFFT* cufft_plan_cache"] = "moth.fft keeps no plans",
    is_built = "moth.cuda.is_available() is false without the plugin",
  },
  ["moth.backends.cudnn"] = {
    ["m flags set_flags"] = "moth.backends.cudnn.benchmark = true sets a switch",
  },
  ["moth.backends.cuda.matmul"] = {
    ["fp32_precision allow_fp16_accumulation allow_fp16_reduced_precision_reduction "
      .. "allow_bf16_reduced_precision_reduction"] = "moth.backends.cuda.matmul.allow_tf32 and "
      .. "moth.set_float32_matmul_precision set the precision",
  },
  ["moth.backends.mps"] = {
    ["get_core_count get_name is_macos13_or_newer is_macos_or_newer"] =
      "the devices are the CPU and CUDA: moth.cuda.is_available()",
  },
}
