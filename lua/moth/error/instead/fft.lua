--- fft.lua -- hints for names of torch.fft.

return {
  ["moth.fft"] = {
    Tensor = "moth.tensor makes tensors",
  },
}
