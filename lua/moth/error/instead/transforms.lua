--- transforms.lua -- hints for names of torchvision.transforms.

local READ = "moth.io.read_image returns a tensor, and moth.transforms.ToDtype converts it: "
  .. "ToDtype(moth.float32, {scale = true})"
local WRITE = "pictures are tensors: moth.io.write_png and moth.utils.save_image write them"
local MODE = "interpolation is a string: moth.transforms.Resize(224, {interpolation = "
  .. "\"bicubic\"})"
local OWN = "moth.transforms.Lambda calls a function of your own"

return {["moth.transforms"] = {
  InterpolationMode = MODE,
  ["ToTensor PILToTensor ToImage"] = READ,
  ["ToPILImage JPEG"] = WRITE,
  ["LinearTransformation UniformTemporalSubsample ClampKeyPoints SanitizeKeyPoints "
    .. "SetClampingMode check_type get_bounding_boxes get_keypoints has_all has_any query_chw "
    .. "query_size"] = OWN,
  ["autoaugment transforms"] = "all transforms are in moth.transforms",
}, ["moth.transforms.functional"] = {
  ["F_pil F_t accimage pil_modes_mapping get_image_num_channels get_image_size"] =
    "pictures are tensors: x:size(-3) is the number of channels, x:size(-1) the width",
  InterpolationMode = MODE,
  ["to_tensor pil_to_tensor"] = READ,
  to_pil_image = WRITE,
  to_grayscale = "it is moth.transforms.functional.rgb_to_grayscale",
  elastic_transform = "it is moth.transforms.ElasticTransform",
}}
