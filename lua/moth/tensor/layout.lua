--- layout.lua -- memory formats: the order of a tensor's elements in memory. The names are
-- PyTorch's: moth.contiguous_format, moth.channels_last, moth.channels_last_3d,
-- moth.preserve_format. Their values are strings with the same text; so are moth.strided and
-- moth.sparse_coo, for x.layout.

local errors = require "moth.error"

local layout = {}

--- Their documentation.
layout.docs = {
  contiguous_format = "row-major: neighbours along the last dimension are adjacent",
  channels_last = "of images (N, C, H, W): the channels of a pixel are adjacent, the order for "
    .. "products\non GPUs. x:to{memory_format = moth.channels_last} and net:to{memory_format = "
    .. "moth.channels_last}\nconvert images and filters once; shapes and results do not change. "
    .. "Elementwise ops and\ncopies keep the order; on a GPU also "
    .. "convolution, batch_norm, pooling,\nresampling and cat. Other ops accept these tensors too "
    .. "and return contiguous ones",
  channels_last_3d = "of volumes (N, C, D, H, W): the channels of a voxel\nare adjacent. Like "
    .. "channels_last for images, except that pooling and resampling\nreturn contiguous volumes",
  preserve_format = "the order of the input's dimensions in memory, without gaps",
}

--- The values of x.layout.
layout.kinds = {
  strided = "every element is stored: the layout of dense tensors",
  sparse_coo = "some rows are stored, with their positions: the layout of sparse tensors, such as\n"
    .. "gradients of nn.Embedding{..., sparse = true}",
}

-- The shapes to which formats apply.
local shapes = {channels_last = {4, "(N, C, H, W)"}, channels_last_3d = {5, "(N, C, D, H, W)"}}

--- Returns true if a tensor with this number of dimensions can have this format; else the reason.
function layout.fits(format, ndim)
  local shape = shapes[format]
  if not shape or shape[1] == ndim then return true end
  return false, ("%s is for %s"):format(format, shape[2])
end

--- The memory format in a function's argument, by name or as a value, or nil.
-- @param only  true: preserve_format is not allowed
function layout.read(fname, value, only)
  if type(value) == "table" then value = value.memory_format or value[1] end
  if value == nil or (layout.docs[value] and not (only and value == "preserve_format")) then
    return value
  end
  errors.argument(fname, "memory_format", ("moth.contiguous_format,%s moth.channels_last or "
    .. "moth.channels_last_3d is needed, got %s"):format(only and "" or " moth.preserve_format,",
    errors.describe(value)))
end

return layout
