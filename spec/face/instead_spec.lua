-- Names of PyTorch that Moth omits raise an error that says what to write instead. So do in-place
-- methods that tensors do not have.

local moth = require "moth"
local nn, F = moth.nn, moth.nn.functional

local x = moth.randn(2, 3)

local function says(space, names, text)
  for name in names:gmatch "%S+" do
    local ok, problem = pcall(function() return space[name] end)
    assert.is_false(ok, name)
    assert.is_truthy(problem:find("'" .. name .. "'; ", 1, true), problem)
    assert.is_truthy(problem:find(text, 1, true), problem)
    assert.is_nil(problem:find("did you mean", 1, true), problem)
  end
end

describe("an omitted name raises an error that says what to write:", function()
  it("of moth", function()
    says(moth, "complex view_as_real complex64 real", "moth.fft")
    says(moth, "from_file from_numpy from_dlpack empty_strided", "moth.")
    says(moth, "sparse_csr_tensor sparse_bsc_tensor", "sparse_coo_tensor")
    says(moth, "quantize_per_tensor", "no quantized dtypes")
    says(moth, "cosine_similarity ctc_loss", "; it is moth.nn.functional.c")
    says(moth, "FloatTensor LongTensor scalar_tensor", "moth.tensor(")
    says(moth, "detach", "x:detach()")
    says(moth, "lu triangular_solve lobpcg geqrf", "moth.linalg.")
  end)

  it("of moth.func", function()
    says(moth.func, "linearize", "moth.func.jvp")
  end)

  it("of tensors, with the form that is not in place", function()
    says(x, "resize_ resize_as_", "a tensor keeps its shape")
    says(x, "apply_ map_", "moth.kernel(f)")
    says(x, "set_", "x.data = other")
    says(x, "share_memory_", "moth.token(x)")
    for name in ("permute_ movedim_ flip_ logcumsumexp_ diff_"):gmatch "%S+" do
      local bare = name:sub(1, -2)
      says(x, name, ("x:%s() has no form in place; write x = x:%s()"):format(bare, bare))
    end
  end)

  it("of layers and functions", function()
    says(nn, "DataParallel", "DistributedDataParallel")
    says(nn, "RNNBase RNNCellBase", "nn.LSTM")
    says(nn, "CrossMapLRN2d", "LocalResponseNorm")
    says(F, "upsample upsample_nearest upsample_bilinear", "interpolate")
    says(F, "multi_head_attention_forward", "MultiheadAttention")
    says(moth.autograd, "forward_ad", ".")
    says(moth.data, "default_convert", "no arrays to convert")
  end)

  it("the suggested names exist", function()
    for name in ("stack capture kernel as_tensor frombuffer load token open_token as_strided "
      .. "sparse_coo_tensor set_default_dtype set_default_device"):gmatch "%S+" do
      assert.is_truthy(moth[name], name)
    end
    for _, row in ipairs {
      {moth.linalg, "lu lu_factor solve_triangular eigh"},
      {moth.autograd.functional, "jacobian hessian vjp jvp vhp hvp"},
      {nn, "MaxPool3d AdaptiveMaxPool3d LocalResponseNorm MultiheadAttention RNN LSTM GRU"},
      {F, "interpolate max_pool3d adaptive_max_pool3d rrelu channel_shuffle linear_cross_entropy "
        .. "scaled_dot_product_attention"},
      {x, "narrow view register_hook data_ptr storage_offset nbytes"},
    } do
      for name in row[2]:gmatch "%S+" do assert.is_truthy(row[1][name], name) end
    end
  end)
end)

describe("the conjugate transposes of real tensors", function()
  it("are the transposes", function()
    assert.are.same(x:t():tolist(), x.H:tolist())
    local batch = moth.randn(4, 2, 3)
    assert.are.same(batch.mT:tolist(), batch.mH:tolist())
    assert.are.same(batch.mT:tolist(), batch:adjoint():tolist())
    assert.has_error_like(function() return batch.H end, "H needs two dimensions, got f32 %(4, 2")
    assert.has_error_like(function() return moth.ones(2):adjoint() end, "at least two dimensions")
  end)
end)
