--- functional_spec.lua -- moth.transforms.functional: values against torchvision's
-- (spec/golden/transforms.py), gradients, and errors.

local moth = require "moth"
local T = moth.transforms
local F = T.functional
local json = require "moth.json"

local here = debug.getinfo(1, "S").source:match("^@(.*[/\\])") or "./"
local folder = here .. "../golden/"

local function read(name)
  local file = assert(io.open(folder .. name, "rb"))
  local text = file:read "*a"
  file:close()
  return text
end

local cases = json.decode(read "transforms.json")
local tensors = moth.load(folder .. "transforms.safetensors")

-- An argument of a case.
local function value_of(v)
  if type(v) ~= "table" then return v end
  if v.dtype then return moth[v.dtype] end
  if v.tensor then return tensors[v.tensor] end
  local list = {}
  for i, each in ipairs(v) do list[i] = value_of(each) end
  return list
end

local function input_of(case)
  local x = tensors[case.x]
  if case.format then return T.BoundingBoxes(x, case.format, case.canvas_size) end
  return case.mask and T.Mask(x) or x
end

local function shown(v)
  if type(v) ~= "table" then return tostring(v) end
  local list = {}
  for _, each in pairs(v) do list[#list + 1] = shown(each) end
  return "{" .. table.concat(list, ", ") .. "}"
end

local function text_of(case)
  local list = {}
  for name, v in pairs(case.args) do
    list[#list + 1] = name .. " = " .. shown(v)
  end
  table.sort(list)
  return ("%s(%s, {%s})"):format(case.f, case.x, table.concat(list, ", "))
end

-- Functions whose bytes are exactly torchvision's; others differ by 1 at most: sums of floats are
-- rounded in another order.
local EXACT = {resize = true, crop = true, center_crop = true, resized_crop = true, pad = true,
               horizontal_flip = true, vertical_flip = true, five_crop = true, ten_crop = true,
               invert = true, posterize = true, solarize = true, equalize = true, erase = true,
               permute_channels = true, autocontrast = true, to_dtype = true,
               adjust_brightness = true, rgb_to_grayscale = true, grayscale_to_rgb = true}

local function compare(case, y, want)
  local what = text_of(case)
  assert.equal(want.shape, y.shape, what)
  assert.equal(want.dtype, y.dtype, what)
  if y:numel() == 0 then return end
  local worst = (y:double() - want:double()):abs():max():item()
  if y.dtype:__tostring():find "float" then
    assert.is_true(worst <= 2e-5 * math.max(1, want:abs():max():item()), what .. ": " .. worst)
  else
    local exact = EXACT[case.f] and want.dtype == moth.uint8 or case.mask
      or case.format and case.f ~= "elastic"
    local most = exact and 0 or 1
    assert.is_true(worst <= most, what .. ": " .. worst)
  end
end

local function run(case)
  local args, any = {}, false
  for name, v in pairs(case.args) do args[name], any = value_of(v), true end
  local y
  if any then y = F[case.f](input_of(case), args) else y = F[case.f](input_of(case)) end
  if case.new_format then
    assert.equal(case.new_format, y.format, text_of(case))
    assert.same(case.new_canvas, y.canvas_size, text_of(case))
  end
  if type(case.y) == "string" then
    return compare(case, moth.is_tensor(y) and y or y.data, tensors[case.y])
  end
  assert.equal(#case.y, #y)
  for i, name in ipairs(case.y) do compare(case, y[i], tensors[name]) end
end

describe("functions of pictures have torchvision's values:", function()
  local names, by_name = {}, {}
  for _, case in ipairs(cases) do
    if not by_name[case.f] then names[#names + 1], by_name[case.f] = case.f, {} end
    table.insert(by_name[case.f], case)
  end
  for _, name in ipairs(names) do
    it(name, function()
      local problems = {}
      for _, case in ipairs(by_name[name]) do
        local fine, problem = pcall(run, case)
        if not fine then problems[#problems + 1] = text_of(case) .. ": " .. tostring(problem) end
      end
      assert.equal("", table.concat(problems, "\n"))
    end)
  end
end)

it("resize to one column averages each row by itself", function()
  -- By hand: triangles and cubic curves that are as wide as the picture. PyTorch repeats a row.
  local x = moth.arange(56):double():view(1, 7, 8)
  for mode, wanted in pairs {bilinear = {16.15116279, 38.84883721},
                             bicubic = {14.75920987, 40.24079013}} do
    local y = F.resize(x, {2, 1}, mode):flatten():tolist()
    for i = 1, 2 do assert.near(wanted[i], y[i], 1e-7) end
  end
end)
