-- Random windows on a GPU: kernels, strides, paddings, dilations, groups and layouts that no
-- example has, for convolution, pooling and resizing. The CPU's results are the reference.
-- `MOTH_FUZZ=2000 ./moth test spec/cuda/windows_spec.lua` draws that many calls for each claim; a
-- failure prints the call and its seed, where MOTH_FUZZ_SEED starts.

local moth = require "moth"
local cuda = require "spec.support.cuda"
local F = moth.nn.functional

local random = math.random
local COUNT = tonumber(os.getenv "MOTH_FUZZ")
local FIRST = tonumber(os.getenv "MOTH_FUZZ_SEED")
-- The tolerance, relative to the largest element. Half types are compared with float32.
local MOST = { [moth.float64] = 1e-9, [moth.float32] = 1e-4, [moth.float16] = 4e-3,
               [moth.bfloat16] = 3e-2 }
local LAST = { [4] = moth.channels_last, [5] = moth.channels_last_3d }

local function one_of(list) return list[random(#list)] end

-- n numbers, f() each
local function many(n, f, ...)
  local list = {}
  for i = 1, n do list[i] = f(...) end
  return list
end

-- batch, channels, and `dims` sides from least to most
local function sides(dims, channels, least, most)
  return { random(2), channels, unpack(many(dims, random, least, most)) }
end

local function floor_halves(list)
  local halves = {}
  for i, v in ipairs(list) do halves[i] = random(0, math.floor(v / 2)) end
  return halves
end

-- the size of a kernel, often 1
local function side() return one_of { 1, random(3) } end

-- ---- calls: name, arguments, with sizes in place of tensors ----

local draw = {}

function draw.conv()
  local dims, groups = random(3), one_of { 1, 1, 2, 3 }
  local channels, filters = groups * random(3), groups * one_of { 1, 2, 3, 8 }
  local padding = one_of { "same", "valid", many(dims, random, 0, 2), many(dims, random, 0, 2) }
  return "conv" .. dims .. "d", {
    sides(dims, channels, 5, 9), { filters, channels / groups, unpack(many(dims, side)) },
    random() < 0.5 and { filters } or nil,
    stride = padding == "same" and 1 or many(dims, random, 3), padding = padding,
    dilation = many(dims, random, 2), groups = groups,
  }
end

function draw.transposed()
  local dims, groups = random(3), one_of { 1, 1, 2 }
  local channels, filters = groups * random(3), random(4)
  local stride, dilation, more = many(dims, random, 3), many(dims, random, 2), {}
  for i = 1, dims do more[i] = random(0, math.max(stride[i], dilation[i]) - 1) end
  return "conv_transpose" .. dims .. "d", {
    sides(dims, channels, 3, 6), { channels, filters, unpack(many(dims, side)) },
    random() < 0.5 and { filters * groups } or nil, stride = stride, dilation = dilation,
    padding = many(dims, random, 0, 1), output_padding = more, groups = groups,
  }
end

function draw.pool()
  local dims = random(3)
  local kernel = many(dims, side)
  local options = { sides(dims, random(9), 4, 8), kernel_size = kernel,
                    padding = floor_halves(kernel), ceil_mode = random() < 0.5,
                    stride = random() < 0.7 and many(dims, random, 3) or nil }
  if random() < 0.5 then
    options.dilation = many(dims, random, 2)
    return "max_pool" .. dims .. "d", options
  end
  options.count_include_pad = random() < 0.5
  return "avg_pool" .. dims .. "d", options
end

function draw.adaptive()
  local dims = random(3)
  return ("adaptive_%s_pool%dd"):format(one_of { "avg", "max" }, dims),
    { sides(dims, random(9), 2, 8), output_size = many(dims, random, 7) }
end

function draw.resized()
  local dims = random(3)
  local smooth = ({ "linear", "bilinear", "trilinear" })[dims]
  local mode = one_of { "nearest", "nearest-exact", "area", smooth,
                        dims == 2 and "bicubic" or smooth }
  local aligns = mode == smooth or mode == "bicubic"
  return "interpolate", {
    sides(dims, random(5), 2, 8), mode = mode, size = many(dims, random, 9),
    align_corners = aligns and random() < 0.5 or nil,
    antialias = dims == 2 and aligns and random() < 0.3 or nil,
  }
end

function draw.columns()
  return "unfold", { sides(2, random(4), 5, 8), kernel_size = many(2, random, 3),
                     stride = many(2, random, 2), padding = many(2, random, 0, 1),
                     dilation = many(2, random, 2) }
end

function draw.padded()
  local dims, by = random(3), {}
  for i = 1, 2 * dims do by[i] = random(0, 2) end
  return "pad", { sides(dims, random(4), 3, 6), by,
                  mode = one_of { "reflect", "replicate", "circular", "constant" } }
end

-- ---- running them ----

-- The call with tensors of these values, in a layout: results and gradients. On the CPU half types
-- are computed in float32.
local function ran(name, options, values, device, last)
  local given, tensors = {}, {}
  local dtype = values[1].dtype
  local wide = device == "cpu" and dtype ~= moth.float64 and moth.float32 or dtype
  local function there(x)
    x = x:to(dtype):to { dtype = wide, device = device }
    return last and LAST[x:dim()] and x:to { memory_format = LAST[x:dim()] } or x
  end
  for key, v in pairs(options) do given[key] = v end
  for i, x in ipairs(values) do
    tensors[i] = there(x):detach():requires_grad_()
    given[i] = tensors[i]
  end
  local y = F[name](given)
  y:backward(there(moth.linspace(-1, 1, y:numel()):view(y.shape)))
  local list = { y:detach() }
  for i, x in ipairs(tensors) do list[i + 1] = x.grad end
  for i, x in ipairs(list) do
    assert.equal(wide, x.dtype)
    list[i] = x:cpu():double()
  end
  return list
end

local function tensors_of(options)
  local dtype = one_of { moth.float64, moth.float32, moth.float16, moth.bfloat16 }
  local values = {}
  for i, v in ipairs(options) do
    if type(v[1]) ~= "number" or options.mode and i > 1 then break end
    values[i] = moth.randn(v):to(dtype)
  end
  return values, dtype
end

local function shown(name, options, seed, how)
  local list = {}
  for key, v in pairs(options) do
    v = type(v) == "table" and table.concat(v, ",") or tostring(v)
    list[#list + 1] = ("%s = %s"):format(key, v)
  end
  table.sort(list)
  return ("seed %d, %s: %s{%s}"):format(seed, how, name, table.concat(list, "; "))
end

local function agrees(kind, seed)
  math.randomseed(seed)
  moth.manual_seed(seed)
  local name, options = draw[kind]()
  local values, dtype = tensors_of(options)
  local fits, wanted = pcall(ran, name, options, values, "cpu")
  for _, last in ipairs { false, true } do
    local here, got = pcall(ran, name, options, values, "cuda", last)
    local call = shown(name, options, seed, tostring(dtype) .. (last and ", channels last" or ""))
    assert.equal(fits, here, ("%s\n%s\n%s"):format(call, tostring(wanted), tostring(got)))
    for i = 1, fits and #wanted or 0 do
      assert.same(wanted[i].shape, got[i].shape, call)
      local off = (wanted[i] - got[i]):abs():max():item()
      local most = MOST[dtype] * math.max(1, wanted[i]:abs():max():item())
      assert(off <= most, ("%s\nnumber %d is off by %g"):format(call, i, off))
    end
  end
  return fits
end

describe("a random window on a GPU", function()
  if not cuda.here then return pending("gives what it gives on the CPU: " .. cuda.why) end

  for kind in pairs(draw) do
    it("has the CPU's results: " .. kind, function()
      local count, good = FIRST and (COUNT or 1) or COUNT or 60, 0
      for seed = FIRST or 1, (FIRST or 1) + count - 1 do
        if agrees(kind, seed) then good = good + 1 end
        if seed % 20 == 0 then moth.collect() end
      end
      assert(FIRST or good > count / 3, "hardly a call was one")
    end)
  end
end)
