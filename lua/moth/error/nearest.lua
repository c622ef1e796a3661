--- nearest.lua -- errors.nearest: the known name nearest to a misspelt one.

local format, min = string.format, math.min

-- The number of edits from a to b. A swap of two letters is one edit; a replaced letter costs
-- `other`.
local function distance(a, b, other)
  local before, row = nil, {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    local new = {[0] = i}
    for j = 1, #b do
      local same = a:byte(i) == b:byte(j)
      new[j] = min(row[j] + 1, new[j - 1] + 1, row[j - 1] + (same and 0 or other))
      if before and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
        new[j] = min(new[j], before[j - 2] + 1)
      end
    end
    before, row = row, new
  end
  return row[#b]
end

local MANY_NAMES = 20 -- with more names, a short name resembles unrelated names

-- The largest number of edits of a guess. Among many names it is one for each four letters:
-- "models" must not become "mode".
local function most(name, many)
  if many then return math.max(1, min(3, math.floor(#name / 4))) end
  return #name <= 4 and 1 or #name <= 8 and 2 or 3
end
local alias = {axis = "dim", keepdims = "keepdim", x = "input", -- names in other libraries
               map_location = "device", bias = "linear_bias",
               learning_rate = "lr", pretrained = "weights", criterion = "loss"}

--- "; did you mean 'x'?" for the candidate nearest to a name, or "". No guess is better than a
-- wrong guess, so a short name needs an almost exact match.
-- @param name        the misspelt name
-- @param candidates  a list of names
return function(name, candidates)
  local best, least
  name = tostring(name)
  if #name > 60 then return "" end
  local many = #candidates > MANY_NAMES
  local limit = most(name, many)
  local other = #name <= 4 and many and 2 or 1
  for i = 1, #candidates do
    local candidate = candidates[i]
    if type(candidate) == "string" then
      if candidate == alias[name] then return format("; did you mean '%s'?", candidate) end
      local d = distance(name:lower(), candidate:lower(), other)
      local better = not best or d < least or (d == least and candidate < best)
      local near = d <= 1 or d <= limit and candidate:sub(1, 1):lower() == name:sub(1, 1):lower()
      if near and d < #candidate and better then best, least = candidate, d end
    end
  end
  return best and format("; did you mean '%s'?", best) or ""
end
