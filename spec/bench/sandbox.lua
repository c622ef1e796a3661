--- sandbox.lua -- how late a sandbox stops scripts that run longer than their time.
--
--   ./moth spec/bench/sandbox.lua [ROUNDS] [SECONDS]     (100 0.01)
--
-- A script runs until its limit of SECONDS. `late` is the time from the limit to the return to the
-- host, by the wall clock.

local moth = require "moth"

local ROUNDS, LIMIT = tonumber(arg[1]) or 100, tonumber(arg[2]) or 0.01
moth.set_num_threads(1)

local now = require("moth.binding.lib").C.moth_seconds

local scripts = {
  {"empty loop", "while true do end"},
  {"arithmetic", "local x = 0 while true do x = x + 1 end"},
  {"function calls", "local function f(n) return n end while true do f(1) end"},
  {"recursion", "local function f(n) if n == 0 then return 0 end return f(n - 1) + 1 end "
    .. "while true do f(100) end"},
  {"pcall", "while true do pcall(function() while true do end end) end"},
  {"nested pcall", "local function f() pcall(f) while true do pcall(f) end end f()"},
  {"coroutines", "while true do coroutine.wrap(function() while true do end end)() end"},
  {"string.rep", "while true do local s = string.rep('x', 1e5) end"},
  {"string.find", "local s = string.rep('a', 3000) while true do s:find '.-.-.-b' end"},
  {"tables", "while true do local t = {} for i = 1, 100 do t[i] = {i} end end"},
  {"table.sort", "while true do local t = {} for i = 1, 1e4 do t[i] = -i end table.sort(t) end"},
  {"small tensors", "local x = moth.ones(8) while true do x = x * 1 end"},
  {"matrix products", "local a = moth.ones(512, 512) while true do a:matmul(a) end"},
  {"a long product", "local a = moth.ones(2000, 2000) while true do a:matmul(a) end"},
  {"convolutions", "local x, w = moth.ones(4, 64, 56, 56), moth.ones(64, 64, 3, 3) "
    .. "while true do moth.nn.functional.conv2d(x, w) end"},
  {"a long sort", "local x = moth.randn(1e6) while true do x:sort() end"},
  {"backward", "local w = moth.ones(256, 256, {requires_grad = true}) "
    .. "while true do w:matmul(w):sum():backward() end"},
}

print(("%-18s %10s %10s %10s   ms late"):format("script", "median", "p99", "worst"))
for _, row in ipairs(scripts) do
  local late = {}
  for i = 1, ROUNDS do
    local box = moth.sandbox {time = LIMIT, memory = 2 ^ 28}
    local start = now()
    local ok = pcall(box.run, box, row[2])
    late[i] = (now() - start - LIMIT) * 1e3
    assert(not ok, row[1])
  end
  table.sort(late)
  print(("%-18s %10.3f %10.3f %10.3f"):format(row[1], late[math.ceil(ROUNDS / 2)],
    late[math.ceil(ROUNDS * 0.99)], late[ROUNDS]))
end
