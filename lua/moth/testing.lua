--- testing.lua -- moth.testing: comparisons for tests, with the names of torch.testing.

local define = require "moth.binding.define"
local errors = require "moth.error"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"

local istensor = lib.istensor
local testing = {}

-- rtol and atol of a dtype, the values of torch.testing.
local TOLERANCES = {
  float16 = {1e-3, 1e-5}, bfloat16 = {1.6e-2, 1e-5}, float32 = {1.3e-6, 1e-5},
  float64 = {1e-7, 1e-7},
}

local function fail(options, format, ...)
  local text = options.msg or format:format(...)
  if options.where ~= "" then text = text .. " (at " .. options.where .. ")" end
  errors.raise("assert_close: " .. text, "E_VALUE")
end

local function dtype_name(x) return (tostring(x.dtype):gsub("^moth%.", "")) end

local function tolerances(actual, expected, options)
  if options.rtol then return options.rtol, options.atol end
  local rtol, atol = 0, 0
  for _, x in ipairs {actual, expected} do
    local row = TOLERANCES[dtype_name(x)] or {0, 0}
    rtol, atol = math.max(rtol, row[1]), math.max(atol, row[2])
  end
  return rtol, atol
end

local function check_kinds(actual, expected, options)
  if actual.shape ~= expected.shape then
    fail(options, "the shapes differ: %s and %s", tostring(actual.shape), tostring(expected.shape))
  end
  if options.check_dtype and actual.dtype ~= expected.dtype then
    fail(options, "the dtypes differ: %s and %s", tostring(actual.dtype), tostring(expected.dtype))
  end
  if options.check_device and actual.device ~= expected.device then
    fail(options, "the devices differ: %s and %s", tostring(actual.device),
      tostring(expected.device))
  end
  if options.check_stride then
    for i = 1, actual:dim() do
      if actual:stride(i) ~= expected:stride(i) then
        fail(options, "the strides of dim %d differ: %d and %d", i, actual:stride(i),
          expected:stride(i))
      end
    end
  end
end

-- The position of the largest number of a tensor, as text.
local function place_of(x)
  local at, list = x:reshape(-1):argmax():item() - 1, {}
  for d = x:dim(), 1, -1 do
    table.insert(list, 1, tostring(at % x:size(d) + 1))
    at = math.floor(at / x:size(d))
  end
  return "{" .. table.concat(list, ", ") .. "}"
end

local function compare_tensors(actual, expected, options)
  check_kinds(actual, expected, options)
  local rtol, atol = tolerances(actual, expected, options)
  local a, b = actual:detach():cpu():double(), expected:detach():cpu():double()
  local close = a:isclose(b, {rtol = rtol, atol = atol, equal_nan = options.equal_nan})
  local wrong = close:logical_not()
  local count = wrong:sum():item()
  if tonumber(count) == 0 then return end
  local difference = (a - b):abs():masked_fill(close, 0):nan_to_num(math.huge, math.huge)
  fail(options, "%d of %d elements are not close; the largest difference is %.6g at %s "
    .. "(rtol %g, atol %g)", tonumber(count), a:numel(), difference:max():item(),
    place_of(difference), rtol, atol)
end

local function compare_numbers(actual, expected, options)
  if options.equal_nan and actual ~= actual and expected ~= expected then return end
  local rtol, atol = options.rtol or 1e-7, options.atol or 1e-7
  local allowed = atol + rtol * math.abs(expected)
  if actual == expected or allowed < math.huge and math.abs(actual - expected) <= allowed then
    return
  end
  fail(options, "%.14g and %.14g are not close (rtol %g, atol %g)", actual, expected, rtol, atol)
end

local compare

local function compare_tables(actual, expected, options)
  local where = options.where
  for key, value in pairs(expected) do
    options.where = where .. "[" .. tostring(key) .. "]"
    if actual[key] == nil then fail(options, "a value is missing") end
    compare(actual[key], value, options)
  end
  for key in pairs(actual) do
    options.where = where .. "[" .. tostring(key) .. "]"
    if expected[key] == nil then fail(options, "a value was not expected") end
  end
  options.where = where
end

function compare(actual, expected, options)
  if istensor(actual) and istensor(expected) then
    return compare_tensors(actual, expected, options)
  elseif type(actual) ~= type(expected) or istensor(actual) or istensor(expected) then
    fail(options, "%s and %s cannot be compared", errors.describe(actual),
      errors.describe(expected))
  elseif type(actual) == "number" then
    return compare_numbers(actual, expected, options)
  elseif lib.is_plain(actual) then
    return compare_tables(actual, expected, options)
  elseif actual ~= expected then
    fail(options, "%s and %s differ", tostring(actual), tostring(expected))
  end
end

--- moth.testing.assert_close(actual, expected, ...): raises unless both are close.
testing.assert_close = define {
  name = "assert_close",
  doc = "Raises unless |actual - expected| <= atol + rtol * |expected| for all elements, and "
    .. "shapes, dtypes and devices are equal. Tensors, numbers, and lists of them are compared. "
    .. "The default tolerances depend on the dtype.",
  examples = "moth.ones(2, 3), moth.ones(2, 3)\n"
    .. "moth.ones(2), moth.ones(2) * 1.01, {rtol = 0.1, atol = 0, equal_nan = true, "
    .. "check_device = false, check_dtype = false, check_stride = true, msg = 'not close'}",
  args = {
    {"any", "actual", "the computed value"},
    {"any", "expected", "the right value", map = true},
    {"float", "rtol", "relative tolerance; needs atol", optional = true},
    {"float", "atol", "absolute tolerance; needs rtol", optional = true},
    {"bool", "equal_nan", "is NaN close to NaN?", default = false},
    {"bool", "check_device", "must the devices be equal?", default = true},
    {"bool", "check_dtype", "must the dtypes be equal?", default = true},
    {"bool", "check_stride", "must the strides be equal?", default = false},
    {"string", "msg", "the text of the error", optional = true},
  },
  outputs = "",
  run = function(actual, expected, rtol, atol, equal_nan, device, dtype, stride, msg)
    if (rtol == nil) ~= (atol == nil) then
      errors.argument("assert_close", rtol and "atol" or "rtol",
        "rtol and atol are given both or neither")
    end
    compare(actual, expected, {rtol = rtol, atol = atol, equal_nan = equal_nan,
      check_device = device, check_dtype = dtype, check_stride = stride, msg = msg, where = ""})
  end,
}

--- moth.testing.make_tensor(shape, dtype): random numbers of a range.
testing.make_tensor = define {
  name = "make_tensor",
  doc = "A tensor of random numbers from low (-9) to high (9): floats are uniform, integers are "
    .. "below high, booleans are true or false.",
  examples = "{2, 3}, moth.float32\n{2}, moth.int64, {low = 0, high = 3, device = 'cpu'}\n"
    .. "{2}, moth.float64, {requires_grad = true}",
  args = {
    {"shape", "shape", "the shape"},
    {"dtype", "dtype", "element type"},
    {"device", "device", "device of the elements", optional = true},
    {"float", "low", "the smallest number", optional = true},
    {"float", "high", "bound above all numbers", optional = true},
    {"bool", "requires_grad", "record gradients for it", default = false},
  },
  run = function(shape, dtype, device, low, high, requires_grad)
    local moth = require "moth"
    local floating = dtype.is_floating_point
    if dtype == moth.bool then low, high = low or 0, high or 2
    elseif dtype == moth.uint8 then low, high = low or 0, high or 10
    else low, high = low or -9, high or (floating and 9 or 10) end
    if low >= high then
      errors.argument("make_tensor", "low", ("a number below high (%g) is needed, got %g"):format(
        high, low), "E_DOMAIN")
    end
    if not floating then return moth.randint(low, high, shape, {device = device}):to(dtype) end
    local x = moth.empty(shape, {dtype = dtype, device = device}):uniform_(low, high)
    return requires_grad and x:requires_grad_() or x
  end,
}

return (lazy.namespace("moth.testing", testing, {}))
