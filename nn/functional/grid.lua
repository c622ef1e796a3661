--- grid.lua -- affine_grid: computes the grid with which grid_sample applies an affine map to
-- images and volumes.

local bind = require "moth.binding.bind"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"

local ops = bind.ops
local grid = {}

-- Returns n coordinates along a dimension, from -1 to 1.
local function side(n, align, theta)
  local line = n > 1 and ops.linspace(-1, 1, n, theta.dtype, theta.device)
    or ops.zeros({n}, theta.dtype, theta.device)
  if not align and n > 1 then line = line * ((n - 1) / n) end
  return line
end

--- F.affine_grid(theta, size, align_corners).
grid.affine_grid = define {
  name = "affine_grid",
  doc = "The grid with which grid_sample applies the affine matrices theta: it samples the "
    .. "result's element (x, y) at the input's position theta (x, y, 1).",
  examples = "moth.randn(2, 2, 3), {2, 3, 4, 5}\n"
    .. "moth.randn(1, 3, 4), {1, 2, 3, 2, 4}, {align_corners = true}",
  args = {
    {"tensor", "theta", "matrices, (N, 2, 3) for images, (N, 3, 4) for volumes"},
    {"shape", "size", "sizes of the result, (N, C, H, W) or (N, C, D, H, W)"},
    {"bool", "align_corners", "are -1 and 1 the centres of the corner elements, not their outer "
      .. "corners", default = false},
  },
  scoped = true,
  run = function(theta, size, align)
    local sides = type(size) == "table" and #size - 2 or 0
    if sides ~= 2 and sides ~= 3 then
      errors.refuse("affine_grid", "size", "(N, C, H, W) or (N, C, D, H, W) is needed", size,
        "E_SHAPE")
    end
    for _, n in ipairs(size) do
      if n < 1 then
        errors.refuse("affine_grid", "size", "sizes of at least 1 are needed", size, "E_DOMAIN")
      end
    end
    if not theta:is_floating_point() then
      errors.refuse("affine_grid", "theta", "a float tensor is needed", theta, "E_DTYPE")
    end
    if theta:dim() ~= 3 or theta:size(1) ~= size[1] or theta:size(2) ~= sides
        or theta:size(3) ~= sides + 1 then
      errors.refuse("affine_grid", "theta",
        ("(%d, %d, %d) is needed"):format(size[1], sides, sides + 1), theta, "E_SHAPE")
    end
    -- theta's columns are x, y, z and 1; x runs along the last dimension. Elements and coordinates
    -- form one long dimension, because loops over only two or three coordinates are slow.
    local count, wide, dims = size[1], size[#size], sides + 1
    local flat = lib.filled(dims, 1, dims, wide * sides)
    flat[1] = count
    local function column(k) return theta:select(3, k):reshape({count, 1, sides}) end
    local places = column(dims) + column(1) * side(wide, align, theta):reshape({1, wide, 1})
    places = places:reshape(flat)
    for k = 2, sides do
      local n = size[#size + 1 - k]
      local along = side(n, align, theta):reshape(lib.filled(dims, 1, dims + 1 - k, n))
      local by = column(k):expand({count, wide, sides}):reshape(flat)
      places = ops.addcmul(places, by, along)
    end
    local shape = {count, unpack(size, 3)}
    shape[dims + 1] = sides
    return (places:reshape(shape))
  end,
}

return grid
