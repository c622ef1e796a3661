--- layout.lua -- memory formats: the order of a tensor's elements in memory. The names are
-- PyTorch's: moth.contiguous_format, moth.channels_last, moth.channels_last_3d,
-- moth.preserve_format. Their values are strings with the same text; so are moth.strided and
-- moth.sparse_coo, for x.layout.

local errors = require "moth.error"

local layout = {}

--- What each of them is.
layout.docs = {
  contiguous_format = "rows behind each other: the last dimension side by side",
  channels_last = "of images (N, C, H, W): the channels of a pixel side by side, in which order "
    .. "GPUs\nmultiply. x:to{memory_format = moth.channels_last} and net:to{memory_format = "
    .. "moth.channels_last}\nturn images and filters once; shapes and results stay what they are. "
    .. "Functions of single\nelements and copies keep the order; on a GPU also "
    .. "convolution, batch_norm, pooling,\nresampling and cat. All else takes such tensors too and "
    .. "gives contiguous ones",
  channels_last_3d = "of volumes (N, C, D, H, W): the channels of a place\nside by side. What "
    .. "channels_last is for images, but that pooling and resampling\ngive contiguous volumes",
  preserve_format = "the order in memory that the dimensions of the input have, without gaps",
}

--- What x.layout may be.
layout.kinds = {
  strided = "every element is held: the layout of dense tensors",
  sparse_coo = "some rows are held, with their positions: the layout of sparse tensors, such as\n"
    .. "gradients of nn.Embedding{..., sparse = true}",
}

-- Shapes that formats are for.
local shapes = {channels_last = {4, "(N, C, H, W)"}, channels_last_3d = {5, "(N, C, D, H, W)"}}

--- Whether a tensor of so many dimensions may lie so; else why not.
function layout.fits(format, ndim)
  local shape = shapes[format]
  if not shape or shape[1] == ndim then return true end
  return false, ("%s is for %s"):format(format, shape[2])
end

--- The memory format that was given to a function, by name or by itself; nil for none.
-- @param only  may it not be preserve_format?
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
