-- Functions of one and two numbers in float64: values, first and second derivatives equal mpmath's
-- at ordinary and extreme arguments. spec/golden/functions.py writes them to functions.json.

local moth = require "moth"
local json = require "moth.json"

local S, F = moth.special, moth.nn.functional
local LEVELS = {0, 1, 2}          -- the order of each list of a row: of one argument,
local PAIRS = {0, 1, 1, 2, 2, 2}  -- ... of two: value, x, y, xx, xy, yy
local ULPS = 8     -- the allowed error in units in the last place
local LEAST = 2.3e-308 -- smaller numbers have fewer digits, and may be 0

-- Other bounds: {pattern, lowest order, ulps, absolute bound, reason}.
local SAVED = "computed from the result, whose rounding error is absolute"
local SQUARE = "the argument of exp is rounded, up to 745 of its units"
local SUMS = "terms of both signs: the bound is in units of the largest"
local BOUNDS = {
  {"expm1", 1, 8, 2.3e-16, SAVED}, {"x:tanh", 1, 8, 4.5e-16, SAVED},
  {"x:sigmoid", 1, 8, 2.3e-16, SAVED}, {"tanhshrink", 0, 8, 4.5e-16, SAVED},
  {"logaddexp", 2, 8, 2.3e-16, SAVED}, {"mish", 1, 30, 2.3e-15, SAVED},
  {"x:asin", 2, 8, 4.5e-16, "the derivatives of 1 - x and 1 + x cancel"},
  {"x:acos", 2, 8, 4.5e-16, "likewise"}, {"x:atanh", 2, 8, 4.5e-16, "likewise"},
  {"erf%(", 1, 800, 0, SQUARE}, {"erfc%(", 1, 800, 0, SQUARE}, {"ndtr%(", 0, 800, 0, SQUARE},
  {"erfinv", 1, 800, 0, SQUARE}, {"ndtri", 1, 800, 0, SQUARE}, {"gelu", 0, 800, 0, SQUARE},
  {"pow", 1, 800, 0, "y - 1 is rounded, and counts as often as the logarithm of x says"},
  {"silu", 2, 30, 0, SUMS},
  {"erfcx", 1, 200, 0, SUMS}, {"i[01]e%(", 1, 1e4, 0, SUMS}, {"scaled_", 1, 100, 0, SUMS},
  {"bessel_[jy]", 0, 16, 1e-15, "near a zero: absolute, by the phase"},
  {"spherical", 2, 20, 0, SUMS},
  {"airy", 0, 1e4, 0, "digits get fewer as |x|^1.5 grows, as its help says"},
  {"polynomial", 0, 2e4, 1e-14, "a recurrence, as PyTorch's; " .. SUMS},
  {"lgamma", 1, 8, 1e-15, "digamma near its zero at 1.46: absolute"},
  {"digamma", 0, 8, 1e-15, "near zeros: absolute"},
  {"x:digamma", 2, 8, 1e-12, "sums from both sides of 0 cancel"},
  {"polygamma", 0, 100, 1e-4, "below 0 sums from both sides cancel: absolute"},
  {"zeta", 0, 30, 0, SUMS}, {"hypot", 1, 100, 0, "of denormals: the length has fewer digits"},
  {"hypot", 2, 100, 4.5e-16, "1 / z - x^2 / z^3 is a difference"},
  {"multigammaln", 1, 40, 0, SUMS},
  {"gammainc", 0, 3e4, 0, SUMS},
}

local function golden()
  local file = assert(io.open "spec/golden/functions.json")
  local text = file:read "*a"
  file:close()
  return json.decode(text).rows
end

local NAMED = {nan = 0 / 0, inf = math.huge, ["-inf"] = -math.huge}
local function number(v) return NAMED[v] or v end

local function column(list)
  local out = {}
  for i, v in ipairs(list) do out[i] = number(v) end
  return moth.tensor(out, {dtype = moth.float64})
end

local function all_null(list)
  for _, v in ipairs(list) do if v ~= json.null then return false end end
  return true
end

-- The bound for a row's numbers of an order: ulps, absolute.
local function bound_of(lua, order)
  local ulps, absolute = ULPS, LEAST
  for _, row in ipairs(BOUNDS) do
    if lua:find(row[1]) and order >= row[2] then
      ulps, absolute = math.max(ulps, row[3]), math.max(absolute, row[4])
    end
  end
  return ulps, absolute
end

-- True if a number is near enough to mpmath's. Infinite derivatives are beyond float64, or at a
-- pole.
local function right(got, want, order, ulps, absolute)
  if got == want or want ~= want and got ~= got then return true end
  if order > 0 and math.abs(want) == math.huge then return true end
  if not (math.abs(got) < math.huge and math.abs(want) < math.huge) then return false end
  local _, e = math.frexp(want)
  return math.abs(got - want) <= math.max(absolute, ulps * 2 ^ math.max(e - 53, -1074))
end

-- Value and derivatives of a row, as lists; false if there are none.
local function computed(row)
  local x, y = column(row.at[1]), row.at[2] and column(row.at[2])
  local leaves = {}
  if not y or not all_null(row.want[2]) then leaves.x = x:requires_grad_() end
  if y then leaves.y = y:requires_grad_() end
  local fn = setfenv(assert(loadstring("return " .. row.lua)),
    {x = x, y = y, S = S, F = F, moth = moth})
  local function diff(v, leaf)
    if not leaf or not v then return false end
    if not v.requires_grad then return moth.zeros_like(leaf) end
    return moth.autograd.grad(v:sum(), {leaf}, {create_graph = true, allow_unused = true})
      or moth.zeros_like(leaf)
  end
  local value = fn()
  local by_x = diff(value, leaves.x)
  if not y then return {value, by_x, diff(by_x, leaves.x)} end
  local by_y = diff(value, leaves.y)
  return {value, by_x, by_y, diff(by_x, leaves.x), diff(by_x, leaves.y), diff(by_y, leaves.y)}
end

-- The error of a row as text, and the count of compared numbers.
local function faults(row)
  local n, wrong, orders = 0, {}, row.at[2] and PAIRS or LEVELS
  for k, tensor in ipairs(computed(row)) do
    local ulps, absolute = bound_of(row.lua, orders[k])
    local got = tensor and tensor:tolist()
    for i, want in ipairs(got and row.want[k] or {}) do
      if want ~= json.null then
        n, want = n + 1, number(want)
        if not right(got[i], want, orders[k], ulps, absolute) then
          wrong[#wrong + 1] = ("list %d at %s%s: %.17g, wanted %.17g"):format(k, row.at[1][i],
            row.at[2] and ", " .. row.at[2][i] or "", got[i], want)
        end
      end
    end
  end
  return wrong, n
end

describe("a function's value and derivatives in float64", function()
  for _, row in ipairs(golden()) do
    it("equal mpmath's: " .. row.lua, function()
      local wrong, n = faults(row)
      assert.is_true(n >= 30)
      assert(#wrong == 0, table.concat(wrong, "\n"))
    end)
  end
end)
