-- Convolutions and pools of integers equal those of floats, with every option.

local moth = require "moth"
local F = moth.nn.functional

local function draw(...)
  return moth.randint(-4, 5, { ... }, { dtype = moth.int32 })
end

local function same(wanted, got)
  assert.equal(moth.int32, got.dtype)
  assert.equal(wanted.shape, got.shape)
  assert.same(wanted:flatten():tolist(), got:double():flatten():tolist())
end

local SIDES = { { 9 }, { 7, 6 }, { 5, 5, 6 } }

local function images(n, channels, batch)
  local sizes = { unpack(SIDES[n]) }
  table.insert(sizes, 1, channels)
  if batch then table.insert(sizes, 1, batch) end
  return draw(unpack(sizes))
end

local function filters(n, ...)
  local sizes = { ... }
  for _ = 1, n do sizes[#sizes + 1] = 2 + #sizes % 2 end
  return draw(unpack(sizes))
end

-- f of the tensors, and of their float64 copies.
local function agree(f, ...)
  local floats = {}
  for i = 1, select("#", ...) do
    local x = select(i, ...)
    floats[i] = x and x:double() or x
  end
  same((f(unpack(floats, 1, select("#", ...)))), (f(...)))
end

describe("integers", function()
  for n = 1, 3 do
    local conv, transposed = F["conv" .. n .. "d"], F["conv_transpose" .. n .. "d"]

    it(("have the convolutions of floats: %dd"):format(n), function()
      for _, batch in ipairs { false, 2 } do
        for _, groups in ipairs { 1, 2 } do
          for _, padding in ipairs { 0, 1, "same", "valid" } do
            for _, steps in ipairs { { 1, 1 }, { 2, 1 }, { 1, 2 } } do
              if padding ~= "same" or steps[1] == 1 then
                local bias = steps[2] == 1 and draw(6) or nil
                agree(function(x, w, b)
                  return conv(x, w, b, { stride = steps[1], padding = padding,
                    dilation = steps[2], groups = groups })
                end, images(n, 4, batch), filters(n, 6, 4 / groups), bias)
              end
            end
          end
        end
      end
    end)

    it(("have the transposed convolutions of floats: %dd"):format(n), function()
      for _, batch in ipairs { false, 2 } do
        for _, groups in ipairs { 1, 2 } do
          for _, steps in ipairs { { 1, 1, 0 }, { 2, 1, 1 }, { 3, 2, 2 }, { 2, 2, 0 } } do
            local bias = steps[2] == 1 and draw(3 * groups) or nil
            agree(function(x, w, b)
              return transposed(x, w, b, { stride = steps[1], dilation = steps[2],
                output_padding = steps[3], padding = groups - 1, groups = groups })
            end, images(n, 4, batch), filters(n, 4, 3), bias)
          end
        end
      end
    end)

    it(("have the maximum of each window: %dd"):format(n), function()
      local pool = F["max_pool" .. n .. "d"]
      for _, batch in ipairs { false, 2 } do
        for _, ceil_mode in ipairs { false, true } do
          for _, steps in ipairs { { 2, 2, 0, 1 }, { 3, 2, 1, 1 }, { 2, 1, 1, 2 } } do
            local options = { stride = steps[2], padding = steps[3], dilation = steps[4],
              ceil_mode = ceil_mode, return_indices = true }
            local x = images(n, 2, batch)
            local a, at = pool(x, steps[1], options)
            local b, there = pool(x:double(), steps[1], options)
            same(b, a)
            assert.same(there:flatten():tolist(), at:flatten():tolist())
          end
        end
      end
    end)

    it(("have the mean of each window, rounded towards 0: %dd"):format(n), function()
      local pool = F["avg_pool" .. n .. "d"]
      for _, batch in ipairs { false, 2 } do
        for _, include in ipairs { false, true } do
          for _, ceil_mode in ipairs { false, true } do
            local x = images(n, 2, batch)
            local options = { stride = 2, padding = 1, ceil_mode = ceil_mode,
              count_include_pad = include }
            same(pool(x:double(), 3, options):trunc(), pool(x, 3, options))
            if n > 1 then
              options.divisor_override = 5
              same(pool(x:double(), 3, options):trunc(), pool(x, 3, options))
            end
          end
        end
      end
    end)
  end
end)
