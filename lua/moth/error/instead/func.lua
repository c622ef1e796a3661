--- func.lua -- hints for names of torch.func.

return {
  ["moth.func"] = {
    linearize = "moth.func.jvp computes the derivative along tangents",
    functionalize = "functions that write in place are differentiated as they are",
    debug_unwrap = "values inside moth.func.grad are ordinary tensors: print(x)",
    rearrange = "moth.permute, moth.reshape and moth.flatten arrange dims",
    replace_all_batch_norm_modules_ = "nn.BatchNorm2d{n, track_running_stats = false} keeps no "
      .. "running statistics",
  },
}
