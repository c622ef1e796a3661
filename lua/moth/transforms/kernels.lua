--- kernels.lua -- the functions of moth.transforms.functional by kind of value.
--
--     kernels.add("crop", {image = f, mask = f, boxes = f})
--     kernels.run("crop", "image", x, 0, 0, 10, 10)   -- for transforms: arguments are not checked
--     kernels.of("crop")                              -- the `run` of a public function
--
-- An image or a mask is a tensor here, boxes are a BoundingBoxes. A kind without a function is
-- passed on unchanged by transforms.

local errors = require "moth.error"
local lib = require "moth.binding.lib"
local values = require "moth.transforms.values"

local kernels = {}
local list = {}

--- Adds the functions of a name: image, mask, boxes; each is optional.
function kernels.add(name, functions) list[name] = functions end

-- The functions of a name; loads the file that adds them.
local function functions_of(name)
  if not list[name] then assert(require("moth.transforms.functional")[name]) end
  return list[name]
end

--- Applies a function to a value of a kind; a kind that it does not have is returned unchanged.
function kernels.run(name, kind, x, ...)
  local f = (list[name] or functions_of(name))[kind]
  if not f then return x end
  return (f(x, ...))
end

--- The function that finds the kind of its first argument.
function kernels.of(name)
  return function(x, ...)
    if lib.istensor(x) then return (list[name].image(x, ...)) end
    local kind = values.kind(x)
    local f = kind and list[name][kind]
    if not f then
      errors.refuse(name, "inpt", "a picture" .. (list[name].mask and ", a Mask" or "")
        .. (list[name].boxes and " or BoundingBoxes" or "") .. " is needed", x, "E_TYPE")
    end
    if kind == "boxes" then return (f(x, ...)) end
    return values.wrap(kind, f(x.data, ...))
  end
end

--- A function of pictures, for masks, which may lack the dimension of channels.
function kernels.of_mask(f)
  return function(x, ...)
    if x:dim() >= 3 then return (f(x, ...)) end
    return f(x:unsqueeze(1), ...):squeeze(1)
  end
end

--- Is x in the memory of the CPU, and no part of a graph of gradients?
function kernels.plain(x)
  return x.device.type == "cpu" and not (x.requires_grad
    and require("moth.autograd").is_grad_enabled())
end

return kernels
