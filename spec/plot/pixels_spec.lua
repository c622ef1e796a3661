-- The ink of each shape of a plot in pixels (its area and its center), the styles of series, and
-- live plots.

local moth = require "moth"
local raster = require "moth.plot.raster"
local style = require "moth.plot.style"
local sink = require "spec.support.sink"

local plot = moth.plot

-- ---- pixels ----

-- The ink of a shape on a canvas of 60 x 40: its amount in pixels, and its center.
local function ink_of(shape, scale)
  local width, height = 60, 40
  scale = scale or 1
  local pixels = raster.pixels({shape}, width, height, scale)
  local ink = (255 - pixels:to(moth.float64):select(3, 1)) / 255 -- black has all of it
  local all = ink:sum():item()
  local x = moth.arange(width * scale, {dtype = moth.float64}) + 0.5
  local y = moth.arange(height * scale, {dtype = moth.float64}) + 0.5
  return all / scale ^ 2, (ink:sum(1) * x):sum():item() / all / scale,
    (ink:sum(2) * y):sum():item() / all / scale
end

local BLACK = {0, 0, 0}

describe("a plot as pixels", function()
  it("has markers of their areas, at their places", function()
    local r = 8
    local areas = {circle = math.pi * r * r, ring = 2 * math.pi * r * (0.5 * r),
      square = (1.8 * r) ^ 2, diamond = 2 * (1.25 * r) ^ 2, triangle = 2.2 * r * r,
      cross = 1.8 * 4 * math.sqrt(2) * r - 1.8 ^ 2, plus = 1.8 * 4 * 1.2 * r - 1.8 ^ 2}
    for shape, area in pairs(areas) do
      for _, scale in ipairs {1, 2} do
        local got, x, y = ink_of({"marker", shape, 31.5, 19.25, 2 * r, BLACK}, scale)
        assert.is_true(math.abs(got / area - 1) < 0.08, shape .. " " .. got .. " of " .. area)
        assert.near(31.5, x, 0.03, shape)
        -- The centroid of the triangle: a third of its height above its base.
        local center = shape == "triangle" and 19.25 + 0.8 * r - 2 * r / 3 or 19.25
        assert.near(center, y, 0.1, shape)
      end
    end
  end)

  it("has markers at its corners as far as they are inside", function()
    for _, at in ipairs {{0, 0}, {60, 0}, {0, 40}, {60, 40}} do
      local got = ink_of {"marker", "circle", at[1], at[2], 16, BLACK}
      assert.near(math.pi * 16, got, 2)
    end
    assert.equal(0, (ink_of {"marker", "circle", 80, 20, 16, BLACK}))
  end)

  it("has lines of their length and width", function()
    for _, line in ipairs {{10, 10, 50, 30}, {50, 10, 10, 30}, {10, 20, 50, 20}, {30, 5, 30, 35}} do
      local length = math.sqrt((line[3] - line[1]) ^ 2 + (line[4] - line[2]) ^ 2)
      for _, width in ipairs {2, 4} do
        local got, x, y = ink_of {"line", line, BLACK, width}
        -- Its ends are round.
        assert.near(length * width + math.pi * width ^ 2 / 4, got, 0.04 * length * width)
        assert.near((line[1] + line[3]) / 2, x, 0.05)
        assert.near((line[2] + line[4]) / 2, y, 0.05)
      end
    end
    -- A joint is not painted twice, a point is round.
    local whole = ink_of {"line", {10, 20, 50, 20}, BLACK, 4}
    assert.near(whole, (ink_of {"line", {10, 20, 30, 20, 50, 20}, BLACK, 4}), 0.5)
    assert.near(math.pi * 16, (ink_of {"line", {30, 20}, BLACK, 8}), 2)
    assert.equal(0, (ink_of {"line", {100, 10, 120, 30}, BLACK, 2}))
  end)

  it("has sharp lines of width 1 along an axis", function()
    local pixels = raster.pixels({{"line", {10, 5.3, 50, 5.3}, BLACK, 1}}, 60, 10, 1)
    local rows = pixels:select(3, 1):select(2, 30):tolist()
    assert.same({255, 255, 255, 255, 255, 0, 255, 255, 255, 255}, rows)
    local column = raster.pixels({{"line", {7.8, 2, 7.8, 8}, BLACK, 1}}, 12, 10, 1)
      :select(3, 1):select(1, 5):tolist()
    assert.same({255, 255, 255, 255, 255, 255, 255, 0, 255, 255, 255, 255}, column)
  end)

  it("has rectangles, with their opacity", function()
    local got, x, y = ink_of {"rect", 10, 5, 20, 15, BLACK, 1}
    assert.near(300, got, 1e-9)
    assert.near(20, x, 1e-9)
    assert.near(12.5, y, 1e-9)
    assert.near(60, (ink_of {"rect", 10, 5, 20, 15, BLACK, 0.2}), 0.6)
    assert.near(25, (ink_of {"rect", -5, -5, 10, 10, BLACK, 1}), 1e-9)
    assert.near(25, (ink_of {"rect", 55, 35, 10, 10, BLACK, 1}), 1e-9)
    assert.near(300, (ink_of({"rect", 10, 5, 20, 15, BLACK, 1}, 2)), 1e-9)
    local pixels = raster.pixels({{"rect", 0, 0, 1, 1, {200, 100, 50}, 0.5}}, 2, 1, 1)
    assert.same({{{228, 178, 153}, {255, 255, 255}}}, pixels:tolist())
  end)

  it("has the pixels of a picture, each as large as the others", function()
    local picture = moth.tensor({{{10, 20, 30}, {40, 50, 60}}, {{70, 80, 90}, {100, 110, 120}}},
      {dtype = moth.uint8})
    local pixels = raster.pixels({{"image", 2, 1, 4, 6, picture}}, 8, 8, 1)
    assert.same({255, 255, 10, 10, 40, 40, 255, 255}, pixels:select(3, 1)[2]:tolist())
    assert.same({255, 20, 20, 20, 80, 80, 80, 255}, pixels:select(3, 2):select(2, 3):tolist())
    assert.same({120, 255}, {pixels[7][6][3]:item(), pixels[8][6][3]:item()})
    local wide = moth.arange(6):to(moth.uint8):view(1, 6, 1):expand(1, 6, 3):contiguous()
    assert.same({{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}}, raster.pixels({{"image", 0, 0, 6, 2,
      wide}}, 6, 2, 1):select(3, 1):tolist())
    local tall = wide:permute(2, 1, 3):contiguous()
    assert.same({{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}}, raster.pixels({{"image", 0, 0, 2,
      6, tall}}, 2, 6, 1):select(3, 1):tolist())
    local edge = raster.pixels({{"image", -2, -3, 4, 6, picture}}, 3, 4, 1)
    assert.same({100, 100, 255}, edge:select(3, 1)[1]:tolist())
  end)

  it("has texts at their anchors, upwards if they are turned", function()
    local function box(anchor, turned)
      local pixels = raster.pixels({{"text", 30, 20, "HHH", 10, anchor, turned, BLACK}}, 60, 40, 1)
      local ink = pixels:select(3, 1):lt(128)
      local x, y = ink:any(1):nonzero():flatten(), ink:any(2):nonzero():flatten()
      return {x:min():item() - 1, x:max():item(), y:min():item() - 1, y:max():item()}
    end
    local wide = require("moth.plot.font").width("HHH", 10)
    assert.near(3 * (4 + 1.6) * 10 * 0.7 / 6, wide, 1e-9)
    for anchor, share in pairs {start = 0, middle = 0.5, ["end"] = 1} do
      local left, gap = 30 - wide * share, 0.8 * 10 * 0.7 / 6
      local got = box(anchor, false)
      assert.near(left + gap, got[1], 1)
      assert.near(left + wide - gap, got[2], 1)
      assert.near(13, got[3], 1) -- capital letters are 7 high
      assert.near(20, got[4], 1)
      local up = box(anchor, true)
      local start = 20 + wide * share
      assert.near(23, up[1], 1)
      assert.near(30, up[2], 1)
      assert.near(start - wide + gap, up[3], 1)
      assert.near(start - gap, up[4], 1)
    end
  end)

  it("writes a question mark for characters that its font lacks", function()
    local width = require("moth.plot.font").width
    assert.equal(width("?", 10), width("\1", 10))
    assert.equal(width("?", 10), width("é", 10))
    assert.equal(width("-x...", 10), width("−×…", 10))
    assert.is_true(width("~", 10) ~= width("?", 10))
  end)
end)

describe("styles", function()
  it("are those of Okabe and Ito, with dashes and markers that differ", function()
    local dashes = {"", "5 3", "1.5 2", "7 2.5 1.5 2.5", "10 3", "3 1.5", "7 2 1.5 2 1.5 2"}
    local colors = {"0 114 178", "213 94 0", "0 158 115", "204 121 167", "86 180 233", "230 159 0",
      "90 90 90"}
    local markers = {"circle", "square", "triangle", "diamond", "cross", "plus", "ring"}
    local codes = {36, 33, 32, 35, 34, 31, 37}
    for i = 1, 7 do
      local one = style.of(i)
      assert.same({dashes[i], colors[i], markers[i], codes[i]}, {table.concat(one.dash or {}, " "),
        table.concat(one.color, " "), one.marker, one.code})
    end
  end)

  it("begin again after the seventh series", function()
    assert.equal(style.of(1), style.of(8))
    assert.equal("ring", style.of(7).marker)
    assert.equal("square", style.of(2).marker)
  end)

  it("have maps of 256 colors between their steps", function()
    local gray = style.map "gray"
    assert.equal(256, #gray)
    for i = 0, 255 do assert.same({i, i, i}, gray[i + 1]) end
    assert.same({68, 1, 84}, style.map "viridis"[1])
    assert.same({253, 231, 37}, style.map "viridis"[256])
    assert.same({247, 251, 255}, style.map "blues"[1])
    assert.same({8, 48, 107}, style.map "blues"[256])
    local warm = style.map "coolwarm"
    assert.same({5, 48, 97}, warm[1])
    assert.same({67, 147, 195}, warm[52]) -- the third of 11 steps
    assert.same({103, 0, 31}, warm[256])
    for _, name in ipairs(style.maps) do assert.equal(256, #style.map(name)) end
  end)

  it("have a brightness from 0 to 1", function()
    assert.near(1, style.brightness(255, 255, 255), 1e-12)
    assert.near(0.299, style.brightness(255, 0, 0), 1e-12)
    assert.near(0.587, style.brightness(0, 255, 0), 1e-12)
    assert.near(0.114, style.brightness(0, 0, 255), 1e-12)
  end)

  it("split a path into dashes that go on around a corner", function()
    local function dashes(path, lengths, unit)
      local out = {}
      style.dashed(path, lengths, unit, function(part) out[#out + 1] = part end)
      return out
    end
    assert.same({{0, 0, 3, 0}, {5, 0, 8, 0}}, dashes({0, 0, 10, 0}, {3, 2}, 1))
    assert.same({{0, 0, 6, 0}}, dashes({0, 0, 10, 0}, {3, 2}, 2))
    assert.same({{0, 0, 4, 0, 4, 1}, {4, 3, 4, 4}}, dashes({0, 0, 4, 0, 4, 4}, {5, 2}, 1))
    assert.same({{0, 0, 1, 0}, {2, 0, 5, 0}, {9, 0, 10, 0}},
      dashes({0, 0, 10, 0}, {1, 1, 3, 4}, 1))
    assert.same({{0, 0, 10, 0}}, dashes({0, 0, 10, 0}, nil, 1))
  end)
end)

-- ---- live ----

describe("a live plot", function()
  it("is redrawn in its place where standard output is a terminal, else below", function()
    local terminal = require "spec.support.terminal"
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write [[
      local live = require("moth").plot.live()
      for step = 1, 3 do
        live:add(step, {loss = step})
        live.last = -1e9 -- the next point is drawn, too
      end
      live:close()]]
    file:close()
    local program = debug.getregistry()["moth.launcher"].program
    for _, row in ipairs {{"2>/dev/null", true}, {"| cat", false}, {"", true}} do
      local t = terminal.start(("sh -c '%s %s %s'"):format(program, path, row[1]))
      assert.is_true(t:ended())
      -- "\27[nA" moves up
      assert.equal(row[2], t.seen:find "\27%[%d+A" ~= nil, row[1] .. t.seen:sub(1, 300))
      t:close()
    end
  end)

  it("keeps the least and the largest of each four of more than 4096 points", function()
    local live = plot.live {out = sink()}
    for step = 1, 4096 do
      local k = step % 4
      live:add(step, {a = k == 2 and 5 or k == 3 and -5 or 0})
    end
    assert.equal(4096, #live.by_name.a.x)
    live:add(4097, {a = 1})
    local a = live.by_name.a
    assert.equal(2049, #a.x)
    assert.equal(2049, #a.y)
    assert.same({2, 3, 6, 7}, {unpack(a.x, 1, 4)})
    assert.same({5, -5, 5, -5}, {unpack(a.y, 1, 4)})
    assert.same({4097, 1}, {a.x[2049], a.y[2049]})
    local flat = plot.live {out = sink()}
    for step = 1, 4097 do flat:add(step, {a = 1}) end
    assert.same({1, 4, 5, 8}, {unpack(flat.by_name.a.x, 1, 4)})
  end)

  it("has its options, and its curves sorted by name", function()
    local live = plot.live {title = "t", ylabel = "y", yscale = "log", out = sink()}
    live:add(1, {b = 1})
    live:add(2, {a = 2, c = moth.tensor(3)})
    local figure = live:figure()
    local names = {}
    for i, layer in ipairs(figure.layers) do
      names[i] = layer.name
      assert.equal(i, layer.series)
    end
    assert.same({"a", "b", "c"}, names)
    assert.same({"t", "step", "y", "log"},
      {figure.title, figure.xlabel, figure.ylabel, figure.yscale})
  end)

  it("goes up over its own lines before it writes again", function()
    local out = sink()
    local live = plot.live {out = out, rows = 2, share = 1}
    live.in_place, live.last = true, 0
    live:add(1, {a = 1})
    local first = out.text
    local _, lines = first:gsub("\n", "")
    assert.is_nil(first:find("\27[", 1, true) and first:find("A\r", 1, true))
    live.spent = 0
    live:add(2, {a = 2})
    local rest = out.text:sub(#first + 1)
    assert.equal(("\27[%dA\r\27[J"):format(lines), rest:match "^\27%[%d+A\r\27%[J")
  end)

  it("writes nothing without points", function()
    local out = sink()
    plot.live({out = out}):close()
    assert.equal("", out.text)
  end)
end)
