-- Random views: chains of permutations, slices, windows, diagonals and expansions. What a view
-- contains follows from its sizes, strides and offset, by plain arithmetic in Lua.

local moth = require "moth"

local DTYPES = {moth.bool, moth.uint8, moth.int8, moth.int16, moth.int32, moth.int64, moth.float16,
  moth.bfloat16, moth.float32, moth.float64}
local FLOATS = {moth.float16, moth.bfloat16, moth.float32, moth.float64}

-- Numbers that do not depend on Moth's generator.
local state
local function seed(n) state = n % 2147483647 + 1 end
local function draw(n) -- 1 to n
  state = state * 48271 % 2147483647
  return state % n + 1
end
local function pick(list) return list[draw(#list)] end

local SIZES = {1, 2, 3, 4, 5, 7}

-- A tensor of integers from 0 to `most`, of which every dtype holds those up to 100 exactly.
local function fresh(size, dtype, most)
  local n, values = 1, {}
  for _, s in ipairs(size) do n = n * s end
  for i = 1, n do values[i] = draw(most + 1) - 1 end
  return moth.tensor(values):to(dtype):reshape(size)
end

local function base(dtype, most)
  local size = {}
  for d = 1, draw(4) do size[d] = pick(SIZES) end
  if #size == 2 and draw(3) == 1 then size = {pick {3, 17, 64, 65, 70}, pick {4, 33, 64, 67}} end
  return fresh(size, dtype, most)
end

local STEPS = {
  function(x) return x:transpose(draw(x:dim()), draw(x:dim())) end,
  function(x)
    local dims = {}
    for d = 1, x:dim() do table.insert(dims, draw(d), d) end
    return x:permute(dims)
  end,
  function(x)
    local d = draw(x:dim())
    local first = draw(x:size(d))
    return x:narrow(d, first, draw(x:size(d) - first + 1))
  end,
  function(x)
    local d, index = draw(x:dim()), {}
    for k = 1, d - 1 do index[k] = {1, x:size(k)} end
    local first = draw(x:size(d))
    index[d] = {first, first - 1 + draw(x:size(d) - first + 1), draw(3)}
    return x[index]
  end,
  function(x) return x:dim() > 1 and x:select(draw(x:dim()), -1) or x end,
  function(x) return x:dim() < 5 and x:unsqueeze(draw(x:dim() + 1)) or x end,
  function(x) return x:dim() > 1 and x:diagonal(draw(3) - 2, 1, 2) or x end,
}
local OVERLAPS = {
  function(x)
    local d = draw(x:dim())
    return x:dim() < 5 and x:unfold(d, draw(x:size(d)), draw(3)) or x
  end,
  function(x)
    local size = x:size()
    for d = 1, #size do if size[d] == 1 then size[d] = draw(3) end end
    return x:expand(size)
  end,
}

local function view_of(x, overlaps)
  for _ = 1, draw(4) do
    local step = overlaps and draw(3) == 1 and pick(OVERLAPS)
      or STEPS[draw(overlaps == "windows" and #STEPS - 1 or #STEPS)]
    local y = step(x)
    if y:numel() > 0 then x = y end
  end
  return x
end

-- The positions of a view's elements in its storage, in row-major order.
local function places(x)
  local size, stride, list = x:size(), x:stride(), {}
  local function walk(d, at)
    if d > #size then list[#list + 1] = at return end
    for i = 0, size[d] - 1 do walk(d + 1, at + i * stride[d]) end
  end
  walk(1, x:storage_offset())
  return list
end

local function number(v) return type(v) == "boolean" and (v and 1 or 0) or tonumber(v) end

local function numbers(x)
  local list = x:reshape(-1):tolist()
  for i, v in ipairs(list) do list[i] = number(v) end
  return list
end

-- The storage of x as one list; x was made by view_of from `whole`.
local function elements(x, whole)
  local all, list = numbers(whole), {}
  for i, at in ipairs(places(x)) do list[i] = all[at + 1] end
  return list
end

local function trials(n, visit)
  for trial = 1, n do
    seed(trial * 7919)
    moth.scope(visit, trial)
  end
end

local function same(want, got, trial)
  for i = 1, math.max(#want, #got) do
    if want[i] ~= got[i] then
      error(("trial %d: element %d is %s, not %s"):format(trial, i, tostring(got[i]),
        tostring(want[i])))
    end
  end
end

describe("a random view", function()
  it("is copied and converted element by element, for every pair of dtypes", function()
    trials(300, function(trial)
      local dtype = pick(DTYPES)
      local whole = base(dtype, dtype == moth.bool and 1 or 100)
      local x = view_of(whole, true)
      local want = elements(x, whole)
      same(want, numbers(x:clone()), trial)
      same(want, numbers(x:contiguous()), trial)
      local to = pick(DTYPES)
      if to == moth.bool then for i, v in ipairs(want) do want[i] = v ~= 0 and 1 or 0 end end
      same(want, numbers(x:to(to)), trial)
    end)
  end)

  it("is contiguous if its elements are in row-major order without gaps", function()
    trials(300, function(trial)
      local x = view_of(base(moth.float32, 9), true)
      local list, packed = places(x), true
      for i, at in ipairs(list) do packed = packed and at == list[1] + i - 1 end
      assert.equal(packed, x:is_contiguous(), "trial " .. trial)
    end)
  end)

  it("can be written if no two of its elements share memory", function()
    trials(300, function(trial)
      -- a diagonal of windows that overlap may count as overlapping though it does not
      local x = view_of(base(moth.float32, 9), "windows")
      local seen, shared = {}, false
      for _, at in ipairs(places(x)) do
        shared = shared or seen[at] ~= nil
        seen[at] = true
      end
      assert.equal(not shared, (pcall(x.zero_, x)), "trial " .. trial)
    end)
  end)

  it("is written without changing the elements around it", function()
    trials(300, function(trial)
      local dtype = pick(DTYPES)
      local whole = base(dtype, dtype == moth.bool and 1 or 100)
      local x = view_of(whole, false)
      local want, list = numbers(whole), places(x)
      local source = fresh(x:size(), pick(FLOATS), dtype == moth.bool and 1 or 100)
      if draw(2) == 1 then source = source:to(dtype) end
      if source:is_floating_point() and not whole:is_floating_point() then
        source = source:to(dtype)
      end
      for i, v in ipairs(numbers(source)) do want[list[i] + 1] = v end
      x:copy_(source)
      same(want, numbers(whole), trial)
    end)
  end)

  it("is added to another one, also to a part of itself, as their copies are", function()
    trials(300, function(trial)
      local whole = base(moth.float32, 100)
      local x = view_of(whole, false)
      local y = view_of(whole, true)
      local z = moth.zeros(x:size())
      local ok = pcall(z.add_, z, y)
      if not ok then return end -- y cannot be broadcast to x
      local want, list = numbers(whole), places(x)
      local sum = numbers(x:clone():add(y:clone():expand(x:size()), {alpha = 2}))
      same(sum, numbers(x:add(y, {alpha = 2})), trial)
      for i, v in ipairs(sum) do want[list[i] + 1] = v end
      x:add_(y, {alpha = 2})
      same(want, numbers(whole), trial)
    end)
  end)

  it("is the target of out, also if it overlaps the inputs", function()
    trials(300, function(trial)
      local whole = base(moth.float32, 100)
      local x = view_of(whole, false)
      local y, z = view_of(whole, true), view_of(whole, true)
      if not (pcall(y.expand, y, x:size()) and pcall(z.expand, z, x:size())) then return end
      y, z = y:expand(x:size()), z:expand(x:size())
      local want, list = numbers(whole), places(x)
      for i, v in ipairs(numbers(y:clone() - z:clone())) do want[list[i] + 1] = v end
      moth.sub(y, z, {out = x})
      same(want, numbers(whole), trial)
    end)
  end)

  it("has the sums of its elements over any dims", function()
    trials(300, function(trial)
      local dtype = pick {moth.int32, moth.int64, moth.float32, moth.float64, moth.bfloat16}
      local whole = base(dtype, 7)
      local x = view_of(whole, true)
      local dims, kept, size = {}, {}, x:size()
      for d = 1, #size do
        if draw(2) == 1 then dims[#dims + 1] = d else kept[#kept + 1] = d end
      end
      if #dims == 0 then dims = {1} table.remove(kept, 1) end
      local want, index, values = {}, {}, elements(x, whole)
      local function walk(d, at)
        if d > #size then
          want[at + 1] = (want[at + 1] or 0) + values[#index + 1]
          index[#index + 1] = true
          return
        end
        local is_kept = false
        for _, k in ipairs(kept) do is_kept = is_kept or k == d end
        for i = 0, size[d] - 1 do walk(d + 1, is_kept and at * size[d] + i or at) end
      end
      walk(1, 0)
      same(want, numbers(x:sum(dims, {dtype = moth.float64})), trial)
      if dtype ~= moth.bfloat16 then same(want, numbers(x:sum(dims)), trial) end
    end)
  end)

  it("passes the gradients of its elements to their places, and adds them up", function()
    trials(300, function(trial)
      local leaf = base(pick {moth.float32, moth.float64}, 9):requires_grad_()
      local x = view_of(leaf, true)
      local dy = fresh(x:size(), leaf.dtype, 9)
      local want = {}
      for i = 1, leaf:numel() do want[i] = 0 end
      local given = numbers(dy)
      for i, at in ipairs(places(x)) do want[at + 1] = want[at + 1] + given[i] end
      if rawequal(x, leaf) then x = x:view(x:size()) end
      x:backward(dy)
      same(want, numbers(leaf.grad), trial)
    end)
  end)

  it("that is written in place replaces the history of its elements only", function()
    trials(300, function(trial)
      local leaf = base(moth.float32, 9):requires_grad_()
      local whole = leaf * 1
      local x = view_of(whole, false)
      local other = fresh(x:size(), moth.float32, 9):requires_grad_()
      local weight = fresh(leaf:size(), moth.float32, 9)
      local want, given, list = numbers(weight), numbers(weight), places(x)
      local factor, for_other, values = numbers(other), {}, numbers(x:detach())
      for i, at in ipairs(list) do
        want[at + 1] = given[at + 1] * factor[i]
        for_other[i] = given[at + 1] * values[i]
      end
      x:mul_(other)
      whole:backward(weight)
      same(want, numbers(leaf.grad), trial)
      same(for_other, numbers(other.grad), trial)
    end)
  end)

  it("is joined, stacked and selected as its copy is", function()
    trials(300, function(trial)
      local dtype = pick(DTYPES)
      local most = dtype == moth.bool and 1 or 100
      local x = view_of(base(dtype, most), true)
      local y = fresh(x:size(), dtype, most):transpose(1, -1):contiguous():transpose(1, -1)
      local d = draw(x:dim())
      local mask = fresh(x:size(), moth.bool, 1):transpose(1, -1):contiguous():transpose(1, -1)
      local copy = x:clone()
      same(numbers(moth.cat({copy, y}, d)), numbers(moth.cat({x, y}, d)), trial)
      same(numbers(moth.stack({y, copy}, d)), numbers(moth.stack({y, x}, d)), trial)
      local a, b, c = numbers(copy), numbers(y), numbers(mask)
      local want = {}
      for i = 1, #a do want[i] = c[i] == 1 and a[i] or b[i] end
      same(want, numbers(moth.where(mask, x, y)), trial)
      local chosen = {}
      for i = 1, #a do if c[i] == 1 then chosen[#chosen + 1] = a[i] end end
      same(chosen, numbers(x:masked_select(mask)), trial)
      same(chosen, numbers(x[mask]), trial)
    end)
  end)
end)
