#!/usr/bin/env luajit
-- Prints the largest include cycle in core/: files that include each other directly or through
-- other files. A .c file and its header count as one file. Ops and kernels are left out: gradients
-- of ops call other ops.
--
--   luajit .ci/include_cycles.lua [N]   exits with 1 if a cycle has more than N (5) files

local most = tonumber(arg[1]) or 5

local function lines(command)
  local pipe = assert(io.popen(command))
  local list = {}
  for line in pipe:lines() do list[#list + 1] = line end
  pipe:close()
  return list
end

local includes, names = {}, {} -- stem -> {stem = true}; stems
for _, path in ipairs(lines "git ls-files 'core/*.[ch]'") do
  local stem, folder = path:match "^core/(.*)%.[ch]$", path:match "^core/(.-)[^/]*$"
  if not includes[stem] then includes[stem], names[#names + 1] = {}, stem end
  for line in io.lines(path) do
    local header = line:match '^%s*#%s*include "(.*)%.h"'
    if header then
      local near = io.open("core/" .. folder .. header .. ".h")
      if near then near:close() end
      header = near and folder .. header or header
      if not header:find "^op/" and not header:find "^kernel/" then
        includes[stem][header] = true
      end
    end
  end
end

-- Tarjan's strongly connected components.
local index, low, on, stack, count, cycles = {}, {}, {}, {}, 0, {}
local function visit(name)
  count = count + 1
  index[name], low[name], on[name] = count, count, true
  stack[#stack + 1] = name
  for other in pairs(includes[name]) do
    if includes[other] and not index[other] then
      visit(other)
      low[name] = math.min(low[name], low[other])
    elseif on[other] then
      low[name] = math.min(low[name], index[other])
    end
  end
  if low[name] < index[name] then return end
  local cycle = {}
  repeat
    local other = table.remove(stack)
    on[other] = false
    cycle[#cycle + 1] = other
  until other == name
  cycles[#cycles + 1] = cycle
end
for _, name in ipairs(names) do
  if not index[name] then visit(name) end
end

table.sort(cycles, function(a, b) return #a > #b end)
table.sort(cycles[1])
print(("%d files, the largest cycle has %d: %s"):format(#names, #cycles[1],
  table.concat(cycles[1], " ")))
os.exit(#cycles[1] <= most and 0 or 1)
