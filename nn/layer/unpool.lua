--- unpool.lua -- nn.MaxUnpool1d to 3d: write pooled maxima to their old positions; other elements
-- are 0. Also max_unpool1d to 3d of moth.nn.functional.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local Module = require "moth.nn.module"
local named = require "moth.nn.module.named"
local errors = require "moth.error"
local functional = require "moth.nn.functional"
local window = require "moth.nn.layer.window"

local unpool = {}

local SHAPES = {"(N, C, L) or (C, L)", "(N, C, H, W) or (C, H, W)",
  "(N, C, D, H, W) or (C, D, H, W)"}

local OUTPUT_SIZE = {"ints", "output_size",
                     "sizes of the result; default: the smallest that fit the windows",
                     optional = true}

local function rows(n)
  return {"int" .. n, "kernel_size", "size of the pooling's window", bounds = {1}},
    {"int" .. n, "stride", "step between windows", same = "kernel_size", bounds = {1}},
    {"int" .. n, "padding", "the pooling's border on each side", default = 0}
end

-- Returns the sizes before pooling: the given sizes, which must differ from the computed ones by
-- less than a stride; by default the computed ones.
local function sizes(name, input, n, kernel, stride, padding, given)
  if type(given) == "number" then given = window.list(given, n) end
  local list, extra = {}, given and #given - n or 0
  if given and extra ~= 0 and #given ~= input:dim() then
    errors.argument(name, "output_size", ("%d numbers are needed for %s, got %d"):format(n,
      errors.describe(input), #given), "E_SHAPE")
  end
  for i = 1, n do
    local said = (input:size(i - n - 1) - 1) * stride[i] - 2 * padding[i] + kernel[i]
    list[i] = given and given[extra + i] or said
    if math.abs(list[i] - said) >= stride[i] and list[i] ~= said then
      errors.argument(name, "output_size", ("%d is too far from %d, the size by the "
        .. "windows"):format(
        list[i], said), "E_SHAPE")
    end
  end
  return list
end

local EXAMPLES = {
  "moth.tensor{{{5, 7, 6}}}, moth.tensor({{{2, 3, 6}}}, {dtype = moth.int64}), 2\n"
    .. "moth.tensor{{5, 7}}, moth.tensor({{1, 5}}, {dtype = moth.int64}), "
    .. "{kernel_size = 2, stride = 3, padding = 0, output_size = {6}}",
  "moth.tensor{{{5, 7}}}, moth.tensor({{{1, 4}}}, {dtype = moth.int64}), 2\n"
    .. "moth.tensor{{{5, 7}}}, moth.tensor({{{2, 9}}}, {dtype = moth.int64}), "
    .. "{kernel_size = {3, 2}, stride = {2, 3}, padding = {1, 0}, output_size = {2, 5}}",
  "moth.tensor{{{{5, 7}}}}, moth.tensor({{{{1, 16}}}}, {dtype = moth.int64}), 2\n"
    .. "moth.tensor{{{{5, 7}}}}, moth.tensor({{{{2, 9}}}}, {dtype = moth.int64}), "
    .. "{kernel_size = {3, 2, 2}, stride = 2, padding = {1, 0, 0}, output_size = {1, 2, 5}}",
}

for n = 1, 3 do
  local name, fname = "MaxUnpool" .. n .. "d", "max_unpool" .. n .. "d"
  local kernel_size, stride, padding = rows(n)
  local Unpool = class(name, Module)
  unpool[name] = Unpool
  Unpool._doc = ("The inverse of MaxPool%dd, with 0 for all other elements, of %s."):format(n,
    window.INPUT[n])

  unpool[fname] = define {
    name = fname,
    doc = ("Writes the results of max_pool%dd to their old positions; 0 elsewhere."):format(n),
    examples = EXAMPLES[n],
    args = {
      {"tensor", "input", "the maxima, " .. SHAPES[n]},
      {"tensor", "indices", "the old position of each, of the same shape"},
      kernel_size, stride, padding,
      OUTPUT_SIZE,
    },
    scoped = true,
    run = function(input, indices, kernel, step, border, output_size)
      local ndim = input:dim()
      if ndim ~= n + 1 and ndim ~= n + 2 then
        errors.refuse(fname, "input", SHAPES[n] .. " is needed", input, "E_SHAPE")
      end
      if indices.shape ~= input.shape then
        errors.argument(fname, "indices", ("%s does not belong to %s"):format(
          errors.describe(indices), errors.describe(input)), "E_SHAPE")
      end
      local size = sizes(fname, input, n, window.list(kernel, n), window.list(step, n),
        window.list(border, n), output_size)
      local flat, room = input:flatten(-n), 1
      local planes = {unpack(flat.shape, 1, flat:dim() - 1)}
      for _, side in ipairs(size) do room = room * side end
      local shape = {unpack(planes)}
      planes[#planes + 1] = room
      for _, side in ipairs(size) do shape[#shape + 1] = side end
      return (input:new_zeros(planes):scatter(-1, indices:flatten(-n), flat):view(shape))
    end,
  }

  Unpool.signature = define.signature(name, {kernel_size, stride, padding})

  function Unpool:init(kernel, step, border)
    self.kernel_size, self.stride, self.padding = kernel, step, border
  end

  function Unpool:forward(input, indices, output_size)
    return (functional[fname](input, indices, self.kernel_size, self.stride, self.padding,
      output_size))
  end

  named.takes(Unpool.forward, {
    {"tensor", "input", "the maxima, " .. SHAPES[n]},
    {"tensor", "indices", "the old position of each, of the same shape"},
    OUTPUT_SIZE,
  })

  function Unpool:extra_repr()
    return ("kernel_size=%s, stride=%s, padding=%s"):format(window.text(self.kernel_size),
      window.text(self.stride), window.text(self.padding))
  end
end

return unpool
