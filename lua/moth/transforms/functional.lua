--- functional.lua -- moth.transforms.functional: the functions behind the transforms, without
-- random numbers, with the names of torchvision.transforms.v2.functional.
--
-- The first argument is a picture (a tensor, (..., C, H, W)), a Mask or BoundingBoxes; the result
-- is of the same kind.

local lazy = require "moth.base.lazy"

local rows = {}
lazy.from(rows, "moth.transforms.geometry", "resize crop center_crop resized_crop five_crop "
  .. "ten_crop pad horizontal_flip vertical_flip get_size get_dimensions")
lazy.from(rows, "moth.transforms.boxes", "convert_bounding_box_format clamp_bounding_boxes "
  .. "sanitize_bounding_boxes")
lazy.from(rows, "moth.transforms.pixels", "to_dtype convert_image_dtype normalize")
lazy.from(rows, "moth.transforms.color", "rgb_to_grayscale grayscale_to_rgb adjust_brightness "
  .. "adjust_contrast adjust_saturation adjust_hue adjust_gamma adjust_sharpness invert posterize "
  .. "solarize autocontrast equalize permute_channels")
lazy.from(rows, "moth.transforms.filters", "gaussian_blur gaussian_noise erase")
lazy.from(rows, "moth.transforms.warp", "affine rotate perspective elastic")
rows.hflip = {"moth.transforms.geometry", "horizontal_flip"}
rows.vflip = {"moth.transforms.geometry", "vertical_flip"}

return (lazy.namespace("moth.transforms.functional", {}, rows))
