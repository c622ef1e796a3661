--- library_pattern.lua -- Lua's pattern matching written in Lua, for patterns and texts for which
-- string.find may take long: the hook of a sandbox can stop it. It is never compiled.

jit.off(true, true)

local byte, sub, find = string.byte, string.sub, string.find

local pattern = {}

local MOST_CAPTURES, DEPTH = 32, 200 -- DEPTH: of captures and repetitions, as in Lua

local L_ESC = byte "%"

local function class_end(p, at)
  local c = byte(p, at)
  if not c then error("malformed pattern", 0) end
  if c == L_ESC then
    if at == #p then error("malformed pattern (ends with '%')", 0) end
    return at + 2
  end
  if c ~= 91 then return at + 1 end -- [
  at = at + 1
  if byte(p, at) == 94 then at = at + 1 end
  repeat
    local inner = byte(p, at)
    if not inner then error("malformed pattern (missing ']')", 0) end
    at = at + (inner == L_ESC and 2 or 1)
  until byte(p, at) == 93
  return at + 1
end

-- Does the character of s at i match the class p[at .. stop - 1]? One character: find is cheap.
local function single(m, i, at, stop)
  if i > m.n then return false end
  local class = m.classes[at]
  if not class then
    local c = sub(m.p, at, stop - 1)
    class = #c == 1 and c ~= "." and "[" .. (c == "^" and "%^" or c == "]" and "%]" or c) .. "]"
      or c
    class = "^" .. class
    m.classes[at] = class
  end
  return find(sub(m.s, i, i), class) ~= nil
end

local match

local function balanced(m, i, at)
  local open, close = byte(m.p, at), byte(m.p, at + 1)
  if not close then error("unbalanced pattern", 0) end
  if byte(m.s, i) ~= open then return nil end
  local depth = 1
  for k = i + 1, m.n do
    local c = byte(m.s, k)
    if c == close then
      depth = depth - 1
      if depth == 0 then return k + 1 end
    elseif c == open then
      depth = depth + 1
    end
  end
end

local function start_capture(m, i, at, kind)
  if m.level >= MOST_CAPTURES then error("too many captures", 0) end
  m.level = m.level + 1
  m.from[m.level], m.length[m.level] = i, kind
  local stop = match(m, i, at)
  if not stop then m.level = m.level - 1 end
  return stop
end

local function end_capture(m, i, at)
  local level
  for k = m.level, 1, -1 do
    if m.length[k] == -1 then level = k break end
  end
  if not level then error("invalid pattern capture", 0) end
  m.length[level] = i - m.from[level]
  local stop = match(m, i, at)
  if not stop then m.length[level] = -1 end
  return stop
end

local function back_reference(m, i, digit)
  local length = m.length[digit]
  if digit < 1 or digit > m.level or length < 0 then error("invalid capture index", 0) end
  local from = m.from[digit]
  if sub(m.s, from, from + length - 1) ~= sub(m.s, i, i + length - 1) or i + length - 1 > m.n then
    return nil
  end
  return i + length
end

local function frontier(m, i, at)
  if byte(m.p, at) ~= 91 then error("missing '[' after '%f' in pattern", 0) end
  local stop = class_end(m.p, at)
  local class = "^" .. sub(m.p, at, stop - 1)
  local before = i == 1 and "\0" or sub(m.s, i - 1, i - 1)
  local now = i > m.n and "\0" or sub(m.s, i, i)
  if find(before, class) or not find(now, class) then return nil end
  return stop
end

-- Matches p from `at` on against s from i on. Returns the position after the match, or nil.
local function step(m, i, at)
  local p = m.p
  while true do
    local c = byte(p, at)
    if not c then return i end
    local after = c == L_ESC and byte(p, at + 1)
    if c == 40 then -- (
      if byte(p, at + 1) == 41 then return start_capture(m, i, at + 2, -2) end
      return start_capture(m, i, at + 1, -1)
    elseif c == 41 then
      return end_capture(m, i, at + 1)
    elseif c == 36 and at == #p then -- $
      return i == m.n + 1 and i or nil
    elseif after == 98 then -- %b
      i, at = balanced(m, i, at + 2), at + 4
      if not i then return nil end
    elseif after == 102 then -- %f
      at = frontier(m, i, at + 2)
      if not at then return nil end
    elseif after and after >= 48 and after <= 57 then
      i, at = back_reference(m, i, after - 48), at + 2
      if not i then return nil end
    else
      local stop = class_end(p, at)
      local mark = byte(p, stop)
      if mark == 63 then -- ?
        if single(m, i, at, stop) then
          local found = match(m, i + 1, stop + 1)
          if found then return found end
        end
        at = stop + 1
      elseif mark == 42 or mark == 43 then -- * +
        local k = i
        while single(m, k, at, stop) do k = k + 1 end
        for j = k, mark == 43 and i + 1 or i, -1 do
          local found = match(m, j, stop + 1)
          if found then return found end
        end
        return nil
      elseif mark == 45 then -- -
        while true do
          local found = match(m, i, stop + 1)
          if found then return found end
          if not single(m, i, at, stop) then return nil end
          i = i + 1
        end
      else
        if not single(m, i, at, stop) then return nil end
        i, at = i + 1, stop
      end
    end
  end
end

function match(m, i, at)
  m.depth = m.depth + 1
  if m.depth > DEPTH then error("pattern too complex", 0) end
  local found = step(m, i, at)
  m.depth = m.depth - 1
  return found
end

local function capture(m, k)
  if m.length[k] == -2 then return m.from[k] end
  if m.length[k] == -1 then error("unfinished capture", 0) end
  return sub(m.s, m.from[k], m.from[k] + m.length[k] - 1)
end

--- Searches from position `init` on.
-- @return first and last position and the list of captures (empty: none); nil
function pattern.find(s, p, init, anchored_allowed)
  local m = {s = s, p = p, n = #s, classes = {}, from = {}, length = {}, level = 0, depth = 0}
  local anchored = anchored_allowed and byte(p, 1) == 94
  local at = anchored and 2 or 1
  for i = init, #s + 1 do
    m.level, m.depth = 0, 0
    local stop = match(m, i, at)
    if stop then
      local list = {}
      for k = 1, m.level do list[k] = capture(m, k) end
      return i, stop - 1, list
    end
    if anchored then return nil end
  end
end

return pattern
