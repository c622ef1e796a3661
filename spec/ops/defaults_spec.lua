--- The defaults of arguments are those of PyTorch, torchvision, torchaudio and torchmetrics: help's
-- defaults are compared with spec/names/defaults.txt, for every common name and argument.

local moth = require "moth"
local help = require "moth.help"

local FILE = "spec/names/defaults.txt"

-- PyTorch's None for these arguments means the default value here, by the name of the argument.
local NONE = {
  stride = "kernel_size", norm = '"backward"', device = '"cpu"', align_corners = "false",
  memory_format = '"preserve_format"', recompute_scale_factor = "false", ignore_index = "-100",
  shuffle = "false", onesided = "true", is_coalesced = "false", side = '"left"',
  indexing = '"ij"', atol = "0", nan = "0", normalize = '"none"', average = '"none"',
  prefix = '""', postfix = '""', font_size = "10",
}

-- Numbers of PyTorch's C++ constants.
local NAMED = { reduction = { ["1"] = '"mean"' }, mode = { ["0"] = '"mean"' },
  dtype = { ["4"] = "none" } }

-- Intended differences, or other forms of the same default: function and argument.
local OTHER = {}
for line in ([[
  GradScaler device: "cpu", a GPU is optional
  amax dim: none
  amin dim: none
  roll dims: none
  distributions.Distribution batch_shape, event_shape: arguments of subclasses
  distributions.ExponentialFamily batch_shape, event_shape: arguments of subclasses
  embedding padding_idx: none
  vmap randomness: every element draws its own
  gradient spacing: 1
  linalg.cond p: 2
  linalg.lstsq driver: its only one
  linalg.matrix_norm dim: none, the last two
  load mmap, weights_only: true
  nn.LinearCrossEntropyLoss out_features: none
  nn.functional.one_hot num_classes: none
  nn.functional.pad value: 0
  nn.utils.parametrizations.orthogonal orthogonal_map: the map of square matrices
  nn.utils.fuse_conv_bn_eval transpose: found by the class
  normal mean: 0
  rot90 dims: none, {1, 2}
  slice_scatter start: 1
  stft return_complex: there are no complex dtypes
  std unbiased: none
  std_mean unbiased: none
  var unbiased: none
  var_mean unbiased: none
  optim. capturable: none
  utils.benchmark.Timer stmt, setup: Lua has no word for an empty statement
  transforms.RandomIoUCrop sampler_options: torchvision's numbers
]]):gmatch "[^\n]+" do
  local name, arguments = line:match "^%s+(%S+) ([^:]+):"
  for argument in arguments and arguments:gmatch "[%w_]+" or function() end do
    OTHER[#OTHER + 1] = { name, argument }
  end
end

local function is_other(path, argument)
  for _, pair in ipairs(OTHER) do
    if pair[2] == argument and path:find(pair[1], 1, true) then return true end
  end
end

-- "conv2d(input, weight, bias = none)": argument -> default, "-" without one.
local function defaults(text)
  local body = text:match "^[%w_.]+(%b())"
  local set, depth, from = {}, 0, 2
  if not body then return false end
  for i = 2, #body do
    local c = body:sub(i, i)
    if c:find "[{(]" then depth = depth + 1 elseif c:find "[})]" then depth = depth - 1 end
    if depth < 0 or (c == "," and depth == 0) then
      local part = body:sub(from, i - 1)
      local name, value = part:match "^%s*([%w_]+) = (.-)%s*$"
      name = name or part:match "^%s*([%w_]+)"
      if name then set[name] = value or "-" end
      from = i + 1
    end
  end
  return set
end

-- A list of equal numbers equals that number: {1,1} is 1.
local function plain(text)
  local first = text:match "^{([^,{}]+)"
  if not first then return text end
  for number in text:gmatch "[^,{}]+" do
    if number ~= first then return text end
  end
  return first
end

-- A text without spaces, its numbers with 12 digits.
local function list_text(text)
  return (text:gsub("%s", ""):gsub("%d+%.?%d*", function(n) return ("%.12g"):format(n) end))
end

local function is_place(argument)
  return argument:find "^dims?%d?$" or argument:find "_dims?$" or argument == "blank" or
    argument == "argnums"
end

local function same(argument, here, there)
  if there == "None" then
    return here == "none" or here == "-" or here == "nil" or here == NONE[argument]
  end
  if there == "True" or there == "False" then return here == there:lower() end
  if NAMED[argument] and NAMED[argument][there] then return here == NAMED[argument][there] end
  if there == "{}" or (there == '"valid"' and argument == "padding") then
    return here == (argument == "stride" and "kernel_size" or "0")
  end
  local a, b = tonumber(here), tonumber((plain(there)))
  if a and b and is_place(argument) and b >= 0 and a == b + 1 then return true end
  if a and b then return math.abs(a - b) <= 1e-13 * math.abs(b) end
  return list_text(here) == list_text(there)
end

local function index(t, name) return t[name] end

-- The value at a path, or nil.
local function reached(place, name)
  local value = moth
  for part in (place:gsub("^moth%.?", "") .. "." .. name):gmatch "[%w_]+" do
    local found, inner = pcall(index, value, part)
    if not found then return nil end
    value = inner
  end
  return value
end

describe("the defaults of arguments", function()
  it("are PyTorch's", function()
    local known, compared, right, wrong = {}, 0, {}, {}
    for line in io.lines(FILE) do
      local space, name, rest = line:match "^(torch[%w_.]*) ([%w_]+) (.*)$"
      local place = space and space:gsub("^torchvision%.transforms%.v2", "moth.transforms")
        :gsub("^torchvision", "moth"):gsub("^torchaudio", "moth.audio")
        :gsub("^(torchmetrics.*)%.classification", "%1"):gsub("^torchmetrics%.detection",
          "torchmetrics"):gsub("^torchmetrics", "moth.metrics"):gsub("^torch", "moth")
      local path = space and place .. "." .. name
      if path and known[path] == nil then
        local value = reached(place, name)
        known[path] = value ~= nil and defaults(help.text(value)) or false
      end
      for argument, there in (known[path] and rest or ""):gmatch "([%w_]+)=(%S+)" do
        local here, key = known[path][argument], path .. "'s " .. argument
        if here and argument ~= "out" then
          compared = compared + 1
          if is_other(path, argument) or same(argument, here, there) then
            right[key] = true -- one signature of several is enough
          else
            wrong[key] = ("%s is %s, not %s"):format(key, here, there)
          end
        end
      end
    end
    local complaints = {}
    for key, text in pairs(wrong) do
      if not right[key] then complaints[#complaints + 1] = text end
    end
    table.sort(complaints)
    assert(#complaints == 0, "\n" .. table.concat(complaints, "\n"))
    assert(compared > 2500, compared)
  end)
end)
