--- onnx.lua -- hints for names of torch.onnx.

return {["moth.onnx"] = {
  ["ExportableModule InputObserver ONNXProgram is_in_onnx_export"] = "moth.onnx.export writes "
    .. "the file",
  ["OnnxExporterError errors"] = "errors are caught by pcall; moth.errcode() is their code",
  ops = "moth.onnx.export writes Moth's own functions as ONNX's ops",
}}
