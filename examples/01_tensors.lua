-- Tensors: creation, indexing, writing. Positions count from 1, ranges include both ends. Run it
-- with: ./moth examples/01_tensors.lua

local moth = require "moth"
require "argparse"("01_tensors", "Making tensors, looking into them, writing to them."):parse()

-- ---- creation ----

local x = moth.tensor{{1, 2, 3}, {4, 5, 6}}
print(x)
print("shape", x.shape, "dtype", x.dtype, "rows", #x, "columns", x:size(2))

assert(x.shape == moth.zeros(2, 3).shape)
assert(moth.arange(3):tolist()[1] == 0)           -- 0, 1, 2, as in PyTorch
assert(moth.range(1, 3):tolist()[3] == 3)         -- 1, 2, 3, as Lua's for
assert(moth.zeros{2, 3, dtype = moth.int64}.dtype == moth.int64)
assert(moth.full({2, 2}, 7):sum():item() == 28)

-- ---- arithmetic and broadcasting ----

local y = x * 10 + moth.tensor{0.1, 0.2, 0.3}
print(y)
assert(math.abs(y[2][3]:item() - 60.3) < 1e-5)
assert((2 ^ moth.tensor{3}):item() == 8 and (1 - moth.tensor{3}):item() == -2)
assert(x:sum(1):tolist()[1] == 5 and x:mean():item() == 3.5)

local values, positions = x:max(2)                -- the maximum of each row, and its position
assert(values:tolist()[2] == 6 and positions:tolist()[2] == 3)
assert(x:matmul(x:t()).shape == moth.Size{2, 2})

-- ---- indexing: each of these is a view of the same memory ----

assert(x[1][2]:item() == 2)                       -- row 1, column 2
assert(x[{2, -1}]:item() == 6)                    -- -1 is the last column
assert(x[{{}, {2, 3}}].shape == moth.Size{2, 2})  -- all rows, columns 2 to 3
assert(x[{"...", 1}]:tolist()[2] == 4)            -- position 1 of the last dim
assert(x[{1, moth.newaxis}].shape == moth.Size{1, 3})
assert(x[{{}, {1, 3, 2}}]:tolist()[2][2] == 6)    -- every second column

-- nested brackets index five dims
local data = moth.arange(3 * 4 * 5 * 6 * 7):view(3, 4, 5, 6, 7)
assert(data[1][2][3][4][5]:item() == data[{1, 2, 3, 4, 5}]:item())
assert(data[1][2][3][4][5]:item() == 1 * 210 + 2 * 42 + 3 * 7 + 4)

-- ---- masks and lists of positions return copies ----

local mask = x:gt(3)
print(mask)
assert(x[mask]:tolist()[1] == 4)
assert(x[moth.tensor{2, 1}:long()]:tolist()[1][1] == 4)
assert(x:index_select(2, {1, 3}):tolist()[2][2] == 6)

-- ---- writing ----

local z = x:clone()
z[1] = 0                                          -- a row
z[{2, {1, 2}}] = moth.tensor{-1, -2}              -- part of a row
z[z:eq(6)] = 60                                   -- by mask
z[{{}, 3}]:add_(0.5)                              -- Python's `+=`
print(z)
assert(z:tolist()[1][3] == 0.5 and z:tolist()[2][1] == -1 and z:tolist()[2][3] == 60.5)

local row = z[1]                                  -- a view: writing to it writes to z
row:fill_(9)
assert(z[{1, 2}]:item() == 9)

-- ---- comparing ----

assert(x == x and x ~= z and x ~= nil)            -- identity
assert(x:eq(moth.tensor{{1, 2, 3}, {4, 5, 6}}):all():item())
local ok, message = pcall(function() return x == 3 end)
assert(not ok)
print(message)                                    -- the error says what to write instead

-- ---- errors name your function, argument and line ----

ok, message = pcall(function() return moth.ones(2, 3) + moth.ones(4) end)
assert(not ok and message:match("broadcast"))
print(message)
ok, message = pcall(function() return x:summ() end)
assert(not ok and message:match("sum"))
print(message)
ok, message = pcall(function() return x[3] end)
assert(not ok and message:match("3"))
print(message)
