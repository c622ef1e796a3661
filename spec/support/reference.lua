--- reference.lua -- indexing of nested Lua tables without Moth: the expected results of reads and
-- writes by brackets.

local reference = {}

--- Nested tables of these sizes; fill(k) gives element k, counted from 0 in row-major order.
function reference.make(sizes, fill)
  local k = -1
  local function build(d)
    if d > #sizes then
      k = k + 1
      return fill(k)
    end
    local list = {}
    for i = 1, sizes[d] do list[i] = build(d + 1) end
    return list
  end
  return build(1)
end

function reference.copy(t)
  if type(t) ~= "table" then return t end
  local c = {}
  for i = 1, #t do c[i] = reference.copy(t[i]) end
  return c
end

--- The positions 1..n of a range {first, last, step}.
function reference.range(n, first, last, step)
  local list = {}
  if first < 0 then first = n + first + 1 end
  if last < 0 then last = n + last + 1 end
  for i = first, last, step or 1 do list[#list + 1] = i end
  return list
end

function reference.all(n) return reference.range(n, 1, n) end

--- The sub-table at the product of position lists, a list or a number for each dimension; numbers
-- drop their dimension. If each(parent, i) is given it is called for every element instead.
function reference.gather(t, positions, each)
  local function walk(node, d)
    local at = positions[d]
    if at == nil then return node end
    local last = d == #positions
    if type(at) == "number" then
      if last and each then each(node, at) end
      return walk(node[at], d + 1)
    end
    local list = {}
    for i, p in ipairs(at) do
      if last and each then each(node, p) end
      list[i] = walk(node[p], d + 1)
    end
    return list
  end
  return walk(t, 1)
end

--- t with every element at those positions replaced by value(k), k from 0 in row-major order.
function reference.put(t, positions, value)
  local c, k = reference.copy(t), -1
  reference.gather(c, positions, function(node, i)
    k = k + 1
    node[i] = value(k)
  end)
  return c
end

--- The elements where a mask of the same nesting is true, in row-major order.
function reference.masked(t, mask)
  local list = {}
  local function walk(a, m)
    for i = 1, #m do
      if type(m[i]) == "table" then walk(a[i], m[i])
      elseif m[i] then list[#list + 1] = a[i] end
    end
  end
  walk(t, mask)
  return list
end

return reference
