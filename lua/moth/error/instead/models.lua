--- models.lua -- hints for names of torchvision.models.

local OTHER = "moth.models.list_models() lists the models; moth.onnx.load reads others"

return {["moth.models"] = {
  ["*"] = OTHER,
  ["*Weights get_model_weights get_weight Weights WeightsEnum list_weights"] =
    "weights are files: moth.models.resnet18{weights = \"resnet18.safetensors\"}",
  ["quantization Quantizable*"] = "there are no quantized dtypes; "
    .. "moth.fake_quantize_per_tensor_affine rounds as they do",
}}
