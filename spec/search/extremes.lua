--- extremes.lua -- a search for wrong numbers at the ends of the range, run by hand.
--
--     ./moth spec/search/extremes.lua             all functions
--     ./moth spec/search/extremes.lua softmax     names that match a Lua pattern
--     MOTH_SEARCH_ALL=1 ./moth spec/search/extremes.lua      accepted differences too
--
-- Every differentiable op of the registry, and every function of moth, moth.special, moth.linalg
-- and moth.nn.functional that is written in Lua, is called as its examples say, with its float
-- tensors at extreme points: value, first and second derivative in f32 are compared with those of
-- the same inputs in f64. f32 is wrong if it is infinite or NaN and f64 is a number that f32 can
-- hold, or if the difference is larger than rounding explains. If f64 is not finite, or is beyond
-- f32, nothing is known; spec/cases has values from mpmath for these points.
--
-- A point replaces one element or all elements of a tensor, or multiplies all; in each tensor
-- separately and in all tensors. A line is printed for each function, with a column for each point:
-- `compared` or `compared/wrong`; then the wrong values with their calls.

local moth = require "moth"
local bind = require "moth.binding.bind"
local registry = require "spec.support.registry"

local only = arg and arg[1]
local show_all = os.getenv "MOTH_SEARCH_ALL"

local POINTS = {
  {"0", 0}, {"1e-40", 1e-40}, {"1e-30", 1e-30}, {"1e20", 1e20}, {"1e30", 1e30}, {"-1e20", -1e20},
  {"inf", math.huge}, {"-inf", -math.huge}, {"nan", 0 / 0}, {"x100", 100},
}
local LARGEST = 3.4028234e38
local RELATIVE = {1e-4, 1e-3, 1e-2} -- of the largest number of a result: value and derivatives
local NOISE = 2e-6 -- of the largest number of the differentiated value, which f32 has rounded

-- Where PyTorch 2.15 is wrong in f32 too, and the numbers here are right:
--   prod, cumprod           gradients 0 or NaN of {1e-25, 1e-25, 1e25, 1e25}, and behind a zero
--   logsumexp, logaddexp    NaN at an infinite element
--   sinc, bessel_j1, i1     second derivative NaN or 0 next to 0
--   i0e, erfcx, log_ndtr    gradients lost to a difference: 3.5e-18 for -2e-31 at 1e20, and so on
--   norm(p), lp_pool        infinite or 0 at 1e20 and 1e-20; std has an infinite gradient at 1e-40
--   cosine_similarity, corrcoef, layer_norm, rms_norm   0 or NaN at 1e20
--   gelu, silu, mish, softsign   NaN derivatives at 1e20, NaN at infinity
--   asinh, acosh, atan2, addcdiv, svd   gradients 0 at 1e20; atan2 also at 1e-30
--   hypot                   NaN at 0; sigmoid is 0 below -88; logit(eps) twice is NaN at 1e-30
--   gaussian_nll_loss       infinite at 1e20
--   mean, nanmean, sum, avg_pool, mse_loss, l1_loss    infinite near 3e38
--   std, norm, layer_norm, rms_norm, lp_pool   infinite, NaN or 0 where squares overflow
--   layer_norm, group_norm  NaN for equal numbers of 1e20; local_response_norm is 0 at 1e20
--   gru_cell                NaN gradients of saturated gates at 1e20
--   erf                     second derivative NaN at infinity; poisson_nll_loss of counts of 0 too

-- Functions that are not searched: {pattern, why}.
local SKIPPED = {
  {"^empty", "memory as it is"}, {"bernoulli", "draws"}, {"dropout", "draws"}, {"^rand", "draws"},
  {"normal", "draws"}, {"multinomial", "draws"}, {"poisson$", "draws"}, {"gumbel", "draws"},
  {"rrelu", "draws"}, {"fractional", "draws"}, {"_lowrank", "draws"},
  {"gradcheck", "checks"}, {"^adam", "an optimizer's step"}, {"^sgd", "an optimizer's step"},
}

-- Differences that are accepted: {pattern of the name, pattern of the point, what, why}.
local HUGE, TINY = "1e20 1e30 -1e20", "1e-40"
local TERMS = "terms beyond f32 whose sum is in the range"
local ACCEPTED = {
  {"attention$", HUGE .. " x100", 1, "scores beyond f32, or gradients lost in theirs"},
  {"linear_cross_entropy$", HUGE .. " x100", 1, "the logits are beyond f32"},
  {"^addbmm$", HUGE, 1, "the products are beyond f32"},
  {"^linear$", HUGE, 1, "the products are beyond f32"},
  {"_cell$", HUGE .. " 1e-30 1e-40 x100", 1, "sums of gates are beyond f32, or under it"},
  {"cross_entropy$", HUGE .. " 1e-40", 1, "weights and logits at once: products beyond f32"},
  {"cross_entropy_soft$", HUGE, 1, "likewise"},
  {"_with_logits$", HUGE, 1, "likewise"},
  {"soft_margin_loss$", HUGE .. " x100", 1, "likewise"},
  {"multi_margin_loss$", HUGE, 1, "the sum of squares is beyond f32, its product with 0.5 is not"},
  {"margin_ranking_loss$", "1e-30", 2, "the product of targets and scores is 0 in f32"},
  {"cosine_embedding_loss$", HUGE, 1, "labels of 1e20"},
  {"^fmod$", "", 1, "the divisor 0.7 is another number in f32"},
  {"^remainder$", "", 1, "likewise"},
  {"^floor_divide$", "", 1, "likewise"},
  {"^binomial$", "", 1, "draws, by the dtype's random numbers"},
  {"^fake_quantize", TINY, 1, "1 / scale is beyond f32"},
  {"^rms_norm$", "0 1e-30 1e-40", 2, "eps is the dtype's own"},
  {"_norm$", HUGE, 1, "weights and elements at once: their products are beyond f32"},
  {"^var", "1e30", 1, "the squares of what the mean was rounded by"},
  {"^cov$", "1e-40 1e-30 1e20 1e30 -1e20", 1, "weights of 1e20: their products are beyond f32"},
  {"^igamma", TINY, 2, "1 / x is beyond f32"},
  {"^pow$", "1e-40 1e-30", 2, "x^(y - 1) or x^(y - 2) is beyond f32"},
  {"linalg", "1e-40", 1, "an inverse of a denormal is beyond f32"},
  {"^pinverse$", "1e-40", 1, "likewise"}, {"^logdet$", "1e-40", 1, "likewise"},
  {"^qr$", "1e-40 1e-30", 2, "likewise"},
  {"linalg", "1e-30 1e20 1e30 -1e20", 2, "squares of an inverse are beyond f32"},
  {"^cdist$", HUGE, 2, "rows of very different sizes lose digits in the product of matrices"},
  {"lu_solve$", HUGE, 1, "the inverse of one triangle is beyond f32"},
  {"^linalg_cofactor_back$", HUGE, 1, "products of minors are beyond f32"},
  {"^rms_norm$", "1e-30 1e-40", 1, "eps is the dtype's own"},
  {"^cov$", "x100", 1, "rounding of a difference that is 0"},
  {"_reduce$", HUGE, 3, "second derivatives of products with one factor of 1e20"},
  {"dist", TINY, 3, "1 / distance is beyond f32"},
  {"norm", TINY, 3, "1 / norm is beyond f32"}, {"std", TINY, 3, "likewise"},
  {"lp_pool", TINY, 3, "likewise"}, {"cosine_similarity", TINY, 3, "likewise"},
  {"_reduce$", "1e-40 1e-30", 3, "1 / x^2 is beyond f32"},
  {"^conv", HUGE, 1, TERMS}, {"^matmul$", HUGE, 1, TERMS}, {"^inner$", HUGE, 1, TERMS},
  {"^outer_sum$", HUGE, 1, TERMS}, {"^tensordot$", HUGE, 1, TERMS}, {"cross$", HUGE, 1, TERMS},
  {"^recur$", HUGE, 1, TERMS}, {"stft$", HUGE, 1, TERMS}, {"^ormqr$", HUGE, 1, TERMS},
  {"^conv3d", "inf -inf nan", 1, "zeros of the padding times an infinite weight"},
  {"nll_loss", "1e-30 1e-40", 2, "the square of the weights' sum is 0 in f32"},
  {"^class_entropy$", "1e-30 1e-40", 2, "likewise"}, {"cross_entropy$", "1e-30", 2, "likewise"},
  {"margin_ranking_loss$", "1e-40", 2, "the product of targets and scores is 0 in f32"},
  {"^kl_div$", "x100", 1, "exp(target) is beyond f32"},
  {"^hypot$", TINY, 3, "1 / length is beyond f32"},
  {"^pow$", "1e30", 3, "the square of the exponent is beyond f32"},
  {"lu_solve$", "1e-40 1e-30", 1, "1 / x is beyond f32, or its square"},
  {"^grid_sample$", "1e30 x100", 3, "rounding of a difference of large numbers"},
  {"cosine_similarity$", "1e30", 3, "likewise"},
}

local function matches(list, name)
  for _, row in ipairs(list) do if name:match(row[1]) then return row end end
end

local function plain(v) return type(v) == "table" and getmetatable(v) == nil end

local function tensors_of(v, list)
  if moth.is_tensor(v) then
    list[#list + 1] = v
  elseif plain(v) then
    for i = 1, #v do tensors_of(v[i], list) end
  end
  return list
end

-- The sum of the results with a different weight for each element, so that elements do not cancel.
local function weighted(list)
  local total
  for _, y in ipairs(list) do
    if registry.isfloat(y) and y.requires_grad and y:numel() > 0 then
      local w = (moth.arange(y:numel()) % 5):to(y.dtype):view(y.shape) * 0.37 + 1
      local part = (y * w):sum()
      total = total and total + part or part
    end
  end
  return total
end

-- Values, first and second derivatives of f, each a list of f64 tensors by name.
local function three(fn, arguments, order, inputs)
  local given = registry.replace(arguments, inputs)
  local out = tensors_of({fn(unpack(given, 1, given.n))}, {})
  local got = {{}, {}, {}}
  for _, y in ipairs(out) do
    if registry.isfloat(y) then got[1][#got[1] + 1] = y:detach():double() end
  end
  local leaves = {}
  for i, x in ipairs(order) do
    if registry.isfloat(x) then leaves[#leaves + 1] = inputs[i] end
  end
  local level = out
  for k = 2, 3 do
    local total = weighted(level)
    if not total then break end
    local grads = {pcall(moth.autograd.grad, total, leaves,
      {create_graph = true, allow_unused = true})}
    if not table.remove(grads, 1) then break end
    level = {}
    for i = 1, #leaves do
      local g = grads[i]
      if moth.is_tensor(g) then
        got[k][#got[k] + 1] = g:detach():double()
        level[#level + 1] = g
      end
    end
  end
  return got
end

local function list_of(x)
  local t = x:flatten():tolist()
  return type(t) == "table" and t or {t}
end

-- The count of compared numbers, and the first wrong one as text.
local function compare(narrow, wide, level, before)
  local n, unknown, wrong, text, most = 0, 0, 0, nil, 0
  for i, y in ipairs(wide) do
    local x = narrow[i]
    if x and x:numel() == y:numel() then
      local a, b, scale = list_of(x), list_of(y), 0
      for j = 1, #b do
        local size = math.abs(b[j])
        if size <= LARGEST and size > scale then scale = size end
      end
      local off = RELATIVE[level] * scale + NOISE * before + (level == 1 and 1e-43 or 2e-38)
      most = math.max(most, scale)
      for j = 1, #b do
        local p, q = a[j], b[j]
        if q ~= q or math.abs(q) > LARGEST * 0.999 then
          unknown = unknown + 1
        else
          n = n + 1
          if not (math.abs(p - q) <= off) then
            wrong = wrong + 1
            text = text or ("%d: %.7g for %.7g"):format(j, p, q)
          end
        end
      end
    end
  end
  return n, unknown, wrong, text, most
end

-- The tensors of an example with a point in tensor `which` (0: in all), as `mode` says.
local function placed(order, drawn, which, mode, value)
  local list = {}
  for i, x in ipairs(order) do
    list[i] = x
    if registry.isfloat(x) then
      local v = drawn[i]
      if which == 0 or which == i then
        if mode == "all" then
          v = moth.full_like(v, value)
        elseif mode == "factor" then
          v = (v:double() * value):float()
        elseif v:numel() > 0 then
          v = v:clone()
          v:view(-1):narrow(1, 1, 1):fill_(value)
        end
      end
      list[i] = v
    end
  end
  return list
end

local function leaves_of(order, list, dtype)
  local out = {}
  for i, x in ipairs(order) do
    out[i] = registry.isfloat(x) and list[i]:to(dtype):detach():clone():requires_grad_() or x
  end
  return out
end

local LEVEL = {"value", "gradient", "second derivative"}
local found, totals = {}, {functions = 0, compared = 0, unknown = 0, wrong = 0, accepted = 0}

local function accepted(name, point, level)
  for _, row in ipairs(ACCEPTED) do
    local here = row[2] == "" or (" " .. row[2] .. " "):find(" " .. point .. " ", 1, true)
    if name:match(row[1]) and here and level >= row[3] then return row end
  end
end

-- Matrices that must not be singular are only multiplied.
local function modes_of(domain)
  return (domain == "matrix" or domain == "symmetric") and {"factor"} or {"one", "all", "factor"}
end

local function try(fn, name, example, arguments, order, drawn, point, row)
  for which = 0, #order do
    local single = which == 0 or registry.isfloat(order[which])
    if #order == 1 and which == 1 then single = false end
    for _, mode in ipairs(single and modes_of(example.domain) or {}) do
      local v = point[2]
      if mode ~= "factor" or (v == v and v ~= 0 and math.abs(v) < math.huge) then
        local list = placed(order, drawn, which, mode, v)
        local ok, a = pcall(three, fn, arguments, order, leaves_of(order, list, moth.float32))
        local good, b = pcall(three, fn, arguments, order, leaves_of(order, list, moth.float64))
        local before = 0
        for level = 1, ok and good and 3 or 0 do
          local n, unknown, wrong, text, most = compare(a[level], b[level], level, before)
          before = math.max(before, most)
          row[1], totals.unknown = row[1] + n, totals.unknown + unknown
          if wrong > 0 and accepted(name, point[1], level) and not show_all then
            totals.accepted = totals.accepted + wrong
          elseif wrong > 0 then
            row[2] = row[2] + wrong
            found[#found + 1] = ("%s at %s (%s, tensor %d) of (%s): %s %s"):format(name, point[1],
              mode, which, example.code, LEVEL[level], text)
          end
        end
      end
    end
  end
end

local function search(name, fn, examples)
  local cells, any = {}, false
  for p, point in ipairs(POINTS) do
    local row = {0, 0}
    for _, example in ipairs(examples) do
      local made, arguments = pcall(example.arguments)
      local order = made and registry.tensors(arguments) or {}
      local drawn = {}
      moth.manual_seed(11)
      for i, x in ipairs(order) do
        if registry.isfloat(x) then drawn[i] = registry.redraw(x, example.domain, i):float() end
      end
      if next(drawn) then
        moth.scope(function()
          try(fn, name, example, arguments, order, drawn, point, row)
        end)
      end
    end
    cells[p] = row[2] > 0 and row[1] .. "/" .. row[2] or tostring(row[1])
    any = any or row[1] > 0
    totals.compared, totals.wrong = totals.compared + row[1], totals.wrong + row[2]
  end
  if not any then return end
  totals.functions = totals.functions + 1
  io.write(("%-34s"):format(name))
  for _, cell in ipairs(cells) do io.write((" %10s"):format(cell)) end
  io.write "\n"
  io.flush()
end

local seen = {}
local function wanted(name)
  if seen[name] or matches(SKIPPED, name) or only and not name:match(only) then return false end
  seen[name] = true
  return true
end

io.write(("%-34s"):format "function")
for _, point in ipairs(POINTS) do io.write((" %10s"):format(point[1])) end
io.write "\n"
for _, op in ipairs(registry.ops()) do
  if op.grad and not op.derived and not op.mutates and not op.random and wanted(op.name) then
    search(op.name, op.fn, op.examples)
  end
end
for _, space in ipairs{"special", "linalg", "nn.functional", ""} do
  local from = moth
  for part in space:gmatch "%w+" do from = from[part] end
  local names = getmetatable(from).__names()
  table.sort(names)
  for _, name in ipairs(names) do
    local ok, fn = pcall(function() return from[name] end)
    local sig = ok and type(fn) == "function" and bind.signature(fn)
    local full = space == "" and name or space:match "%w+$" .. "." .. name
    if sig and sig.lua and sig.examples and sig.examples ~= "" and not name:match "_$"
      and wanted(full) then
      search(full, fn, registry.examples(sig.examples))
    end
  end
end

table.sort(found)
local last
for _, text in ipairs(found) do
  local key = text:match "^(%S+ at %S+) .-(%a+ ?%a* )%d+:" or text
  if key ~= last or show_all then print(text) end
  last = key
end
print(("%d functions, %d numbers compared, %d that f64 has none for, %d wrong, %d accepted"):format(
  totals.functions, totals.compared, totals.unknown, totals.wrong, totals.accepted))
os.exit(totals.wrong == 0 and 0 or 1)
