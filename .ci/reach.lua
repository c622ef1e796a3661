-- Checks that some spec launches each kernel of the CUDA plugin, each instantiation separately:
--
--   MOTH_EMULATED_REACHED=FILE ./moth test
--   luajit .ci/reach.lua build/emulated/libmoth_cuda.so FILE
--
-- The kernels of the GPU emulator (cuda/emulator/) are those whose address a launcher takes; FILE
-- lists the launched ones. Remove a kernel that no spec can launch.

local function lines(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read "*a"
  pipe:close()
  return text:gmatch "[^\n]+"
end

local emulator, log = arg[1], arg[2]

local kernels = {} -- names of the templates, or plain functions
for path in lines "ls cuda/*/*.cu cuda/*/*.cuh" do
  local file = assert(io.open(path))
  local text = file:read("*a"):gsub("__launch_bounds__%b()", "")
  file:close()
  for name in text:gmatch "__global__%s+void%s+([%w_]+)%s*%(" do kernels[name] = true end
end

local names, all = {}, 0 -- their addresses in the emulator
for line in lines("nm '" .. emulator .. "' 2>/dev/null") do
  local at, name = line:match "^0*(%x+) [tTwWuV] (%S+)$"
  local length, rest = (name or ""):match "^_ZL?(%d+)(.*)$"
  if length and kernels[rest:sub(1, length)] and not rest:find(".", 1, true) then
    names[at] = name
    all = all + 1
  end
end
if all == 0 then return end -- no C++ compiler

for line in io.lines(log) do
  local path, at = line:match "^(.*) (%x+)$"
  if path and path:sub(-#emulator) == emulator then names[at] = nil end
end

local never = {}
for _, name in pairs(names) do never[#never + 1] = name end
if #never == 0 then return end
local list = os.tmpname()
local file = assert(io.open(list, "w"))
file:write(table.concat(never, "\n"), "\n")
file:close()
for name in lines("c++filt <'" .. list .. "' | sort") do print("no spec launches " .. name) end
os.remove(list)
print(("%d of %d kernels"):format(#never, all))
os.exit(1)
