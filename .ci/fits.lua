-- Checks that each launch fits its GPU: compares the resources of a kernel that nvcc prints
-- (registers, shared memory, threads) with the launches of specs on the GPU emulator
-- (cuda/emulator/, MOTH_EMULATED_LOG).
--
--   luajit .ci/fits.lua [--all] KERNELS EMULATOR CARD=LOG...    a CARD: 75 80 86 89 90 100
--
-- Lists launches that a GPU would refuse, kernels that spill registers to memory, launches that
-- leave most of a multiprocessor idle, and kernels without a launch in any log; --all: every
-- launch, with its block, registers, shared memory and blocks a multiprocessor. KERNELS is the
-- output of nvcc with --resource-usage; the last entry of a kernel counts. Needs nm.

-- Limits of a multiprocessor: threads, blocks, bytes of shared memory; the bytes of a block; and
-- the bytes that the system reserves in each block. CUDA C++ Programming Guide, "Technical
-- Specifications".
local CARDS = {
  ["75"] = { code = "75", threads = 1024, blocks = 16, size = 65536, most = 65536, own = 0 },
  ["80"] = { code = "80", threads = 2048, blocks = 32, size = 167936, most = 166912, own = 1024 },
  ["86"] = { code = "80", threads = 1536, blocks = 16, size = 102400, most = 101376, own = 1024 },
  ["89"] = { code = "80", threads = 1536, blocks = 24, size = 102400, most = 101376, own = 1024 },
  ["90"] = { code = "90", threads = 2048, blocks = 32, size = 233472, most = 232448, own = 1024 },
  ["100"] = { code = "100", threads = 2048, blocks = 32, size = 233472, most = 232448, own = 1024 },
}
local UNASKED = 40960 -- SHARED_UNASKED of cuda/host/device.cuh
local FEW_WARPS = 8 -- with fewer warps a multiprocessor mostly waits for memory

local function lines(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read "*a"
  pipe:close()
  return text:gmatch "[^\n]+"
end

-- Both compilers mangle names the same way, except for static functions.
local function plain(name) return (name:gsub("_ZL", "_Z")) end

-- Kernels of an architecture: name -> regs, stack, shared.
local function compiled(told, code)
  local kernels, kernel = {}, nil
  for line in io.lines(told) do
    local name, of = line:match "Compiling entry function '([^']+)' for 'sm_(%d+)'"
    if name then
      kernel = { stack = 0 }
      if of == code then kernels[plain(name)] = kernel end
    end
    local stack, regs = line:match "(%d+) bytes stack", line:match "Used (%d+) registers"
    if stack then kernel.stack = math.max(kernel.stack, tonumber(stack)) end
    if regs then
      kernel.regs = tonumber(regs)
      kernel.shared = tonumber(line:match "(%d+) bytes smem" or 0)
    end
  end
  assert(next(kernels), told .. " has no kernels for sm_" .. code)
  return kernels
end

-- The address of a function in the emulator -> its name.
local function places(emulator)
  local names = {}
  for line in lines("nm '" .. emulator .. "'") do
    local at, name = line:match "^0*(%x+) [tTwWuV] (%S+)$"
    if at then names[at] = plain(name) end
  end
  return names
end

-- The launches of a log without duplicates: name, threads, shared; the largest y and z of a grid.
local function launches(log, names)
  local all, order = {}, {}
  for line in io.lines(log) do
    local at, y, z, a, b, c, shared =
      line:match "^kernel %d+ (%x+) %d+ (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)"
    if at and at ~= "0" then
      local threads = a * b * c
      local key = at .. " " .. threads .. " " .. shared
      local l = all[key]
      if not l then
        l = { name = names[at] or "at 0x" .. at, threads = threads, shared = tonumber(shared),
              high = 0 }
        all[key] = l
        order[#order + 1] = l
      end
      l.high = math.max(l.high, tonumber(y), tonumber(z))
    end
  end
  return order
end

local function up(n, to) return math.ceil(n / to) * to end

-- Resident blocks of a multiprocessor: its four parts have 16,384 registers each.
local function held(card, kernel, l)
  local warps = math.ceil(l.threads / 32)
  local by_regs = 4 * math.floor(16384 / math.max(up(kernel.regs * 32, 256), 256))
  local used = up(kernel.shared + l.shared + card.own, 128)
  return math.min(card.blocks, math.floor(card.threads / (warps * 32)),
    math.floor(by_regs / warps), used > 0 and math.floor(card.size / used) or card.blocks), warps
end

local function why_not(card, kernel, l)
  local warps = up(math.ceil(l.threads / 32), 4)
  if up(kernel.regs * 32, 256) * warps > 65536 then return "too many registers" end
  if kernel.shared + l.shared > card.most then return "too much shared memory" end
  if kernel.shared > 49152 then return "too much static shared memory" end
  if l.shared <= UNASKED and kernel.shared + l.shared > 49152 then
    return "shared memory that was not requested"
  end
  if l.threads > 1024 or l.high > 65535 then return "too large a block or grid" end
end

local every, told, emulator, logs = false, nil, nil, {}
for _, word in ipairs(arg) do
  local card, log = word:match "^(%d+)=(.+)$"
  if word == "--all" then every = true
  elseif card then logs[#logs + 1] = { card, log }
  elseif not told then told = word
  else emulator = word end
end

local names, all, seen, bad = places(emulator), {}, {}, 0
for _, pair in ipairs(logs) do
  local card = assert(CARDS[pair[1]], "no such card: " .. pair[1])
  local kernels = compiled(told, card.code)
  for name in pairs(kernels) do all[name] = true end
  local function say(what, l, k)
    local blocks, warps = held(card, k, l)
    print(("sm_%s %-22s %s: %d threads, %d registers, %d + %d bytes shared, %d of stack, %d blocks"
      .. " (%d warps)"):format(pair[1], what, l.name, l.threads, k.regs, k.shared, l.shared,
      k.stack, blocks, blocks * warps))
  end
  for _, l in ipairs(launches(pair[2], names)) do
    local k = kernels[l.name]
    seen[l.name] = true
    if not k then
      print("sm_" .. pair[1] .. " not compiled: " .. l.name)
      bad = bad + 1
    else
      local reason, blocks, warps = why_not(card, k, l), held(card, k, l)
      if reason then bad = bad + 1 end
      if reason then say(reason, l, k)
      elseif k.stack > 0 then say("values in memory", l, k)
      elseif blocks * warps < FEW_WARPS and l.threads > 64 then say("mostly idle", l, k)
      elseif every then say("fits", l, k) end
    end
  end
end
for _, name in pairs(names) do -- KERNELS may list kernels whose source was removed
  if all[name] and not seen[name] then print("never launched: " .. name) end
end
print(bad == 0 and "each launch fits" or bad .. " launches do not fit")
os.exit(bad == 0 and 0 or 1)
