--- rows.lua -- the table of the workloads of `moth bench cuda`, and functions to fill it.
--
-- A row is a name, a description, a setup function, and "warm" or "cold", the state of the L2
-- cache. setup() returns the step, and the work of a call: {flop =, bytes =, images =, tokens =,
-- mfu =}. In names: f32, tf32 (float32, TF32 in matrix products and convolutions), bf16, f16; _cl:
-- images and filters are channels_last (volumes _3d); fwd is a call without recording; fwdbwd
-- clears the gradients, calls, and runs backward from a fixed randn gradient; eager and graph (the
-- step in moth.capture) are modes of whole steps.

local moth = require "moth"

local rows = { list = {} }

--- A dry run uses small sizes.
rows.dry = false

local DTYPES = { f32 = "float32", tf32 = "float32", bf16 = "bfloat16", f16 = "float16" }

--- A size: n, but in a dry run no more than `most` (16).
function rows.cap(n, most)
  return rows.dry and math.min(n, most or 16) or n
end

--- Adds a row; setup(mode), for each mode of the list `modes` if there is one.
function rows.add(name, text, setup, l2, modes)
  for _, mode in ipairs(modes or { "" }) do
    table.insert(rows.list, {
      name = mode == "" and name or name .. "/" .. mode, text = text, l2 = l2 or "warm",
      setup = function() return setup(mode) end,
    })
  end
end

--- Returns true for a variant of channels_last.
function rows.is_channels_last(variant) return (variant or ""):find "_cl$" ~= nil end

--- The tensor that *[2,3], ids[5]<9 or mask[5] describes, on the GPU.
-- @param fixed  true for the input of a network: a dry run shrinks only the first dimension
function rows.input(spec, gradients, variant, fixed)
  local kind, sizes, bound = spec:match "^([*%l]*)%[([%d,]*)%]<?(%d*)$"
  local shape = {}
  for size in sizes:gmatch "%d+" do
    local most = fixed and (#shape == 0 and 4 or math.huge) or 16
    shape[#shape + 1] = rows.cap(tonumber(size), most)
  end
  if kind == "ids" then
    bound = tonumber(bound)
    return moth.randint(1, (fixed and bound or rows.cap(bound)) + 1, shape)
  elseif kind == "mask" then
    return moth.rand(shape):lt(0.5)
  end
  local x = moth.randn(shape, { dtype = moth[DTYPES[(variant or "f32"):match "^%w+"]] })
  if #shape > 3 and rows.is_channels_last(variant) then
    x = x:to { memory_format = #shape == 5 and moth.channels_last_3d or moth.channels_last }
  end
  return x:requires_grad_(gradients == true and kind == "*")
end

--- Bytes of all inputs and results, once.
function rows.traffic(inputs, results)
  local bytes = 0
  for _, list in ipairs { inputs, results } do
    for _, x in ipairs(list) do
      if type(x) ~= "number" then bytes = bytes + x:numel() * x:element_size() end
    end
  end
  return { bytes = bytes }
end

-- The step of forward and backward.
local function both_ways(fn, xs, result)
  local a, b, c, d, e = unpack(xs)
  local leaves, out_grad = {}, moth.randn_like(result)
  for _, x in ipairs(xs) do
    if x.requires_grad then leaves[#leaves + 1] = x end
  end
  return function()
    for i = 1, #leaves do leaves[i].grad = nil end
    fn(a, b, c, d, e):backward(out_grad)
  end
end

--- Adds NAME or, if an input requires a gradient, NAME/fwd and NAME/fwdbwd.
-- @param inputs   a text in the format of rows.input
-- @param options  variant; l2 ("cold"); work(inputs, results): the work of a forward call; both:
-- the factor for forward and backward
function rows.op(name, text, inputs, fn, options)
  options = options or {}
  local work = options.work or rows.traffic
  local function setup(mode)
    local xs = {}
    for spec in inputs:gmatch "%S+" do
      xs[#xs + 1] = rows.input(spec, mode == "fwdbwd", options.variant)
    end
    local a, b, c, d, e = unpack(xs)
    local results = moth.no_grad(function() return { fn(a, b, c, d, e) } end)
    local amounts = work(xs, results)
    if mode ~= "fwdbwd" then return function() return fn(a, b, c, d, e) end, amounts end
    for key, n in pairs(amounts) do amounts[key] = options.both and n * options.both end
    return both_ways(fn, xs, results[1]), amounts
  end
  if options.variant then name = name .. "/" .. options.variant end
  rows.add(name, ("%s. Inputs %s"):format(text, inputs), setup, options.l2 or "cold",
    inputs:find("*", 1, true) and { "fwd", "fwdbwd" })
end

return rows
