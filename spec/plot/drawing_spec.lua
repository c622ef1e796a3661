-- What a plot draws, exactly: places of marks, SVG and text of small figures.

local moth = require "moth"
local machine = require "moth.base.machine"
local scene_of = require("moth.plot.scene").of
local ticks = require "moth.plot.ticks"

local plot = moth.plot

local function labels(list)
  local out = {}
  for i, tick in ipairs(list) do out[i] = tick.label end
  return table.concat(out, " ")
end

local function scene(figure, columns)
  return scene_of(figure, {columns = columns or 200, x = 5, y = 5})
end

local function text(figure, columns, rows, color)
  return "\n" .. figure:text {columns = columns, rows = rows, color = color or "none"} .. "\n"
end

local function near_list(wanted, got)
  assert.equal(#wanted, #got, table.concat(got, " "))
  for i, x in ipairs(wanted) do assert.near(x, got[i], 1e-9, i) end
end

-- ---- ticks ----

describe("ticks", function()
  it("have as many digits as their step", function()
    assert.equal("0 0.5 1.0", labels(ticks.scale(0, 1).ticks(3)))
    assert.equal("0 0.2 0.4 0.6 0.8 1.0", labels(ticks.scale(0, 1).ticks(5)))
    assert.equal("0 10 20 30", labels(ticks.scale(0, 30).ticks(3)))
    assert.equal("-1 0 1", labels(ticks.scale(-1, 1).ticks(2)))
    assert.equal("0 500000", labels(ticks.scale(0, 999999).ticks(3)))
    assert.equal("0 5e5 1e6", labels(ticks.scale(0, 1e6).ticks(3)))
    assert.equal("0 0.0001 0.0002", labels(ticks.scale(0, 2e-4).ticks(2)))
    assert.equal("0 5e-5 1e-4", labels(ticks.scale(0, 1e-4).ticks(2)))
    assert.equal("1.05e6 1.1e6", labels(ticks.scale(1.04e6, 1.11e6).ticks(2)))
  end)

  it("have places from 0 at the lower to 1 at the upper limit", function()
    local list = ticks.scale(-10, 30).ticks(4)
    assert.equal("-10 0 10 20 30", labels(list))
    for i, tick in ipairs(list) do assert.near((i - 1) / 4, tick.at, 1e-12) end
    local powers = ticks.scale(1, 1e4, true).ticks(4)
    assert.equal("1 10 100 1000 10000", labels(powers))
    for i, tick in ipairs(powers) do assert.near((i - 1) / 4, tick.at, 1e-12) end
  end)

  it("of powers have exponents below 0.001 and above 10000", function()
    assert.equal("1e-4 0.001 0.01", labels(ticks.scale(1e-4, 1e-2, true).ticks(4)))
    assert.equal("1000 10000 1e5", labels(ticks.scale(1e3, 1e5, true).ticks(4)))
    assert.equal("2.0 2.5 3.0 3.5 4.0", labels(ticks.scale(2, 4, true).ticks(5)))
  end)

  it("are at most 101", function()
    assert.equal(101, #ticks.scale(0, 1000).ticks(1000))
  end)

  it("widen equal limits by a tenth, a half or a factor of 2", function()
    local function limits(...)
      local scale = ticks.scale(...)
      return {scale.low, scale.high}
    end
    assert.same({27, 33}, limits(30, 30))
    assert.same({-0.5, 0.5}, limits(0, 0))
    assert.same({1.5, 2.5}, limits(2, 2))
    assert.same({2.5, 10}, limits(5, 5, true))
    assert.same({3, 4}, limits(3, 4))
    assert.same({1e-300, 1e300}, limits(0, math.huge, true))
  end)

  it("write short numbers", function()
    local short = {[0] = "0", [-3] = "-3", [12] = "12", [999999] = "999999", [1e6] = "1e6",
      [1.25e7] = "1.25e7", [0.12346] = "0.1235", [2.5] = "2.5", [1e-9] = "1e-9"}
    for value, wanted in pairs(short) do assert.equal(wanted, ticks.short(value)) end
    assert.equal("nan", ticks.short(0 / 0))
  end)
end)

-- ---- places ----

describe("a scene", function()
  local function path(options)
    local paths = scene(plot.lines(options)).marks[1].paths
    local all = {}
    for i, one in ipairs(paths) do all[i] = one end
    return all
  end

  it("leaves 4 % of the range free at both ends", function()
    local all = path {{0, 10, 5}, x = {0, 100, 50}}
    local low, high = 0.04 / 1.08, 1.04 / 1.08
    near_list({low, low, high, high, 0.5, 0.5}, {all[1][1], all[1][2], all[1][3], all[1][4],
      all[1][#all[1] - 1], all[1][#all[1]]})
    local log = path {{1, 100}, x = {1, 100}, xscale = "log", yscale = "log"}
    near_list({low, low, high, high}, log[1])
  end)

  it("of bars begins at 0", function()
    local mark = scene(plot.hist {{0, 0, 0, 3}, bins = {0, 1, 2, 4}}).marks[1]
    local w = 1 / 1.08
    near_list({0.04 * w, 0, w / 4, 3 / 3.12, (0.04 + 0.25) * w, 0, w / 4, 0,
      (0.04 + 0.5) * w, 0, w / 2, 1 / 3.12}, mark.rects)
    local log = scene(plot.hist {{0, 0, 0, 3}, bins = {0, 2, 4}, yscale = "log", ylim = {0.1, 10}})
    near_list({0.04 * w, 0, w / 2, (math.log10(3) + 1) / 2, 0.54 * w, 0, w / 2, 0.5},
      log.marks[1].rects)
  end)

  it("clips curves at the limits, from all sides", function()
    local limits = {xlim = {2, 8}, ylim = {4, 6}}
    local function clipped(x, y)
      return path {y, x = x, xlim = limits.xlim, ylim = limits.ylim}
    end
    near_list({1 / 3, 0, 2 / 3, 1}, clipped({0, 10}, {0, 10})[1])
    near_list({2 / 3, 1, 1 / 3, 0}, clipped({10, 0}, {10, 0})[1])
    near_list({0, 0.5, 1, 0.5}, clipped({0, 10}, {5, 5})[1])
    near_list({0.5, 0, 0.5, 1}, clipped({5, 5}, {0, 10})[1])
    near_list({0, 0.5, 0.5, 0.5}, clipped({0, 5}, {5, 5})[1])
    near_list({0.5, 0.5, 0.5, 1}, clipped({5, 5}, {5, 10})[1])
    assert.equal(0, #clipped({0, 1}, {5, 5}))
    assert.equal(0, #clipped({5, 5}, {7, 9}))
    assert.equal(0, #clipped({0, 2.5}, {5, 9}))
    -- A curve that leaves and comes back is two paths.
    local two = clipped({3, 5, 7}, {5, 9, 5})
    assert.equal(2, #two)
    near_list({1 / 6, 0.5, 1 / 4, 1}, two[1])
    near_list({3 / 4, 1, 5 / 6, 0.5}, two[2])
  end)

  it("interrupts a curve at NaN, and shows a value between two", function()
    local nan = 0 / 0
    local all = path {{1, nan, 1, nan, 1, 1}, xlim = {1, 6}, ylim = {0, 2}}
    assert.equal(3, #all)
    near_list({0, 0.5, 0, 0.5}, all[1])
    near_list({0.4, 0.5, 0.4, 0.5}, all[2])
    near_list({0.8, 0.5, 1, 0.5}, all[3])
    assert.equal(1, #path {{1, math.huge, 1, 1}, xlim = {2, 4}, ylim = {0, 2}})
  end)

  it("keeps the first, least, largest and last of many values in a column", function()
    local y, x = {}, {}
    for i = 1, 40 do x[i], y[i] = (i - 1) / 39, 0.5 end
    y[3], y[5], y[22], y[24] = 0.9, 0.1, 0.2, 0.8
    local thin = scene(plot.lines {y, x = x, xlim = {0, 1}, ylim = {0, 1}}, 2).marks[1].paths[1]
    near_list({0, 0.5, 2 / 39, 0.9, 4 / 39, 0.1, 19 / 39, 0.5, 20 / 39, 0.5, 21 / 39, 0.2,
      23 / 39, 0.8, 38 / 39, 0.5, 1, 0.5}, thin)
    -- Values that do not ascend are all drawn.
    x[10], x[11] = x[11], x[10]
    local all = scene(plot.lines {y, x = x, xlim = {0, 1}, ylim = {0, 1}}, 2).marks[1].paths[1]
    assert.equal(80, #all)
  end)

  it("shows one of the points in a cell, and those inside the limits only", function()
    local points = scene(plot.scatter {{0, 0.001, 1, 2, -0.1}, x = {0, 0.001, 1, 0.5, 0.5},
      xlim = {0, 1}, ylim = {0, 1}}, 100).marks[1].points
    near_list({0, 0, 1, 1}, points)
  end)

  it("names rows and columns, every second one if there are too many", function()
    local names = {}
    for i = 1, 11 do names[i] = "c" .. i end
    local one = scene(plot.heatmap {moth.zeros(2, 11), xticks = names, yticks = {"a", "b"}})
    assert.equal("c1 c3 c5 c7 c9 c11", labels(one.xticks))
    assert.near(0.5 / 11, one.xticks[1].at, 1e-12)
    assert.equal("a b", labels(one.yticks))
    assert.near(0.75, one.yticks[1].at, 1e-12)
    assert.near(0.25, one.yticks[2].at, 1e-12)
    assert.equal(10, #scene(plot.heatmap(moth.zeros(2, 10))).xticks)
  end)

  it("has the numbers of a matrix at their cells, dark on light ones", function()
    local one = scene(plot.heatmap {moth.tensor {{0, 1.5, 2}, {3, 4, 5}}, annotate = true,
      map = "gray"})
    local list = one.marks[2]
    assert.equal(6, #list)
    assert.same({"0", "1.5", "5"}, {list[1][3], list[2][3], list[6][3]})
    near_list({1 / 6, 0.75}, {list[1][1], list[1][2]})
    near_list({5 / 6, 0.25}, {list[6][1], list[6][2]})
    local dark = {}
    for i = 1, 6 do dark[i] = list[i].dark end
    assert.same({false, false, false, true, true, true}, dark) -- above 0.55
  end)

  it("has no numbers for more than 900 cells", function()
    assert.equal(2, #plot.heatmap {moth.zeros(30, 30), annotate = true}.layers)
    assert.equal(1, #plot.heatmap {moth.zeros(17, 53), annotate = true}.layers)
  end)

  it("names at most 64 rows one by one", function()
    assert.equal(64, #plot.heatmap(moth.zeros(64, 2)).yticks)
    assert.same({1, 2, 3}, plot.heatmap(moth.zeros(3, 2)).yticks)
    assert.is_nil(plot.heatmap(moth.zeros(65, 2)).yticks)
  end)

  it("has a legend, unless it is not wanted", function()
    local one = scene(plot.lines {a = {1}, b = {2}})
    assert.same({{name = "a", series = 1, kind = "line"}, {name = "b", series = 2, kind = "line"}},
      one.legend)
    assert.same({}, scene(plot.lines {a = {1}, b = {2}, legend = false}).legend)
    assert.same({}, scene(plot.lines {1, 2}).legend)
  end)
end)

-- ---- arguments ----

describe("a figure", function()
  it("takes the layers of another, whose series come after its own", function()
    local one = plot.lines {a = {1, 2}, b = {2, 1}}
    local other = plot.scatter {{1, 3}}
    assert.equal(one, one:add(other))
    local kinds, series = {}, {}
    for i, layer in ipairs(one.layers) do kinds[i], series[i] = layer.kind, layer.series end
    assert.same({"line", "line", "points"}, kinds)
    assert.same({1, 2, 3}, series)
    assert.equal(1, other.layers[1].series)
    one:add(plot.imshow(moth.zeros(2, 2)))
    assert.is_nil(one.layers[4].series)
  end)

  it("has the size 640 x 400 by default", function()
    assert.same({640, 400}, {plot.lines({1}).width, plot.lines({1}).height})
    local matrix = plot.confusion_matrix(moth.eye(2))
    assert.same({480, 440}, {matrix.width, matrix.height})
    local wide = plot.imshow(moth.zeros(3, 30, 60))
    assert.same({504, 264}, {wide.width, wide.height})
    local tall = plot.imshow {moth.zeros(3, 60, 2), title = "t"}
    assert.same({84, 525}, {tall.width, tall.height})
  end)

  it("of counts names the axis, and joins series by name in all forms", function()
    local forms = {plot.hist {a = {1, 2}, b = {2, 3}, bins = 2},
      plot.hist({a = {1, 2}, b = {2, 3}}, {bins = 2}),
      plot.hist {values = {a = {1, 2}, b = {2, 3}}, bins = 2}}
    for _, figure in ipairs(forms) do
      assert.equal("count", figure.ylabel)
      assert.equal(2, #figure.layers)
      for i, name in ipairs {"a", "b"} do
        local layer = figure.layers[i]
        assert.equal(name, layer.name)
        assert.same({1, 2, 3}, layer.edges)
        assert.same(i == 1 and {1, 1} or {0, 2}, layer.heights)
        assert.is_true(layer.light)
      end
    end
    local listed = plot.hist {{1, 2}, {2, 3}}
    assert.same({"1", "2"}, {listed.layers[1].name, listed.layers[2].name})
    local alone = plot.hist {{1, 2}}
    assert.is_nil(alone.layers[1].name)
    assert.is_false(alone.layers[1].light)
    assert.equal("n", plot.hist {{1, 2}, ylabel = "n"}.ylabel)
    local both = plot.hist {{1, 2}, a = {2, 2}}
    assert.same({"1", "a"}, {both.layers[1].name, both.layers[2].name})
    assert.same({1, 2}, plot.hist({1, 2}, 1).layers[1].edges)
  end)

  it("of a matrix has its range and colors", function()
    local one = plot.heatmap(moth.tensor {{1, 2}, {0 / 0, 5}})
    assert.same({low = 1, high = 5, map = "viridis"}, one.bar)
    local pixels = one.layers[1].pixels:tolist()
    assert.same({68, 1, 84}, pixels[1][1])
    assert.same({200, 200, 200}, pixels[2][1])
    assert.same({253, 231, 37}, pixels[2][2])
    local set = plot.heatmap {moth.tensor {{1, 2}, {3, 9}}, vmin = 2, vmax = 4, map = "gray",
      colorbar = false}
    assert.is_nil(set.bar)
    local shades = set.layers[1].pixels:select(3, 1):tolist()
    assert.same({{0, 0}, {128, 255}}, shades)
    assert.same({{0, 0}, {0.5, 1}}, set.layers[1].shares)
    assert.same({0, 1}, {plot.heatmap(moth.full({2, 2}, 0 / 0)).bar.low,
      plot.heatmap(moth.full({2, 2}, 0 / 0)).bar.high})
    local shares = plot.confusion_matrix {moth.tensor {{3, 1}, {0, 0}}, normalize = true}
    assert.same({{0.75, 0.25}, {0, 0}}, shares.layers[1].shares)
    assert.same({"predicted", "true"}, {shares.xlabel, shares.ylabel})
    assert.equal("0.75", shares.layers[2].list[1][3])
    assert.equal("x", plot.confusion_matrix {moth.eye(2), xlabel = "x"}.xlabel)
  end)

  it("of a picture of numbers goes from the least to the largest value", function()
    local pixels = plot.imshow(moth.tensor {{1, 2}, {3, 5}}).layers[1].pixels
    assert.same({{0, 64}, {128, 255}}, pixels:select(3, 1):tolist())
    local bytes = plot.imshow(moth.tensor({{1, 2}, {3, 5}}, {dtype = moth.uint8}))
    assert.same({{1, 2}, {3, 5}}, bytes.layers[1].pixels:select(3, 2):tolist())
    local set = plot.imshow {{{1, 2}, {3, 5}}, vmin = 1, vmax = 3}
    assert.same({{0, 128}, {255, 255}}, set.layers[1].pixels:select(3, 1):tolist())
    local last = plot.imshow {moth.ones(2, 4, 3), dataformats = "HWC"}
    assert.equal("(2, 4, 3)", tostring(last.layers[1].pixels.shape))
  end)

  local function refuses(pattern, f)
    local ok, problem = pcall(f)
    assert.is_false(ok)
    assert.is_truthy(tostring(problem):find(pattern, 1, true), tostring(problem))
  end

  it("refuses what it cannot draw", function()
    refuses("bad argument 'x' to 'heatmap' (a matrix is needed, got 3",
      function() plot.heatmap {x = 3} end)
    refuses("bad argument 'x' to 'heatmap' (a matrix is needed, got f32 (3)",
      function() plot.heatmap(moth.ones(3)) end)
    refuses("bad argument 'xticks' to 'heatmap' (3 names for 2 rows or columns",
      function() plot.heatmap {moth.ones(3, 2), xticks = {"a", "b", "c"}} end)
    refuses("bad argument 'yticks' to 'heatmap' (1 name for 3 rows or columns",
      function() plot.heatmap {moth.ones(3, 2), yticks = {"a"}} end)
    refuses("bad argument 'labels' to 'confusion_matrix' (1 name for 2 rows",
      function() plot.confusion_matrix {moth.eye(2), labels = {"a"}} end)
    refuses("bad argument 'matrix' to 'confusion_matrix' (a square matrix is needed, got (2, 3)",
      function() plot.confusion_matrix(moth.ones(2, 3)) end)
    refuses("bad argument 'values' to 'hist' (there is nothing to count",
      function() plot.hist() end)
    refuses("bad argument 'y' to 'lines' (there is nothing to draw",
      function() plot.lines {title = "t"} end)
    refuses("bad argument 'xlim' to 'lines' ({first, last} with first < last is needed",
      function() plot.lines {{1}, xlim = {1, 1}} end)
    refuses("bad argument 'ylim' to 'lines' ({first, last} with first < last is needed",
      function() plot.lines {{1}, ylim = {1, 2, 3}} end)
    refuses("bad argument 'xlim' to 'scatter' (a logarithmic axis begins above 0",
      function() plot.scatter {{1}, xlim = {0, 1}, xscale = "log"} end)
    refuses("bad argument 'ylim' to 'hist' (a logarithmic axis begins above 0",
      function() plot.hist {{1, 2}, ylim = {0, 1}, yscale = "log"} end)
    refuses("bad argument 'path' to 'save' (a name that ends in .svg, .png or .txt is needed",
      function() plot.lines({1}):save "a" end)
    refuses("bad argument 'step' to 'add' (a number is needed, got a string ('a')",
      function() plot.live():add("a", {}) end)
  end)
end)

-- ---- text ----

describe("a plot as text", function()
  it("is this, of one curve", function()
    assert.equal([[

  │                       ⡠⠔
  │                    ⢀⠔⠊
5 ┤                 ⢀⠤⠊⠁
  │             ⢀⡠⠤⠒⠁
  │         ⢀⡠⠤⠒⠁
0 ┤ ⠤⠤⠔⠒⠒⠒⠉⠉⠁
  └─┬──────────────┬─────────
    0              2
]], text(plot.lines {{0, 1, 4, 9}, x = {0, 1, 2, 3}}, 30, 6))
  end)

  it("is this, of two curves with names", function()
    local figure = plot.lines {a = {0, 1, 4, 9}, b = {9, 4, 1, 0}, title = "two", xlabel = "step",
      ylabel = "height"}
    assert.equal([[

              two
   ⠒⠒⠒⠒⠒⠒ a   ⠒⠒⠒⠂ ⠒ b
height
  │ ⠢⢄                    ⡠⠔
  │   ⠉ ⣀              ⢀⠔⠊
5 ┤     ⠈⠢⠄         ⢀⠤⠊⠁
  │        ⠈⠒⠤⣀ ⢀⡠⠤⠒⠁
  │         ⢀⡠⠤⠒⠑⠢⢄
0 ┤ ⠤⠤⠔⠒⠒⠒⠉⠉⠁       ⠈⠉⠑⠒ ⠢⠤⠤
  └─────────┬──────────────┬─
            2              4
              step
]], text(figure, 30, 6))
  end)

  it("has a color for each series", function()
    local figure = plot.lines {a = {1, 1}, b = {2, 2}, ylim = {0, 3}, title = "t"}
    local got = text(figure, 24, 3, "16"):gsub("\27", "E")
    assert.equal("E[1m         tE[0m", got:match "\n%s*(E[^\n]*)")
    assert.is_truthy(got:find("E[36m⠒⠒⠒⠒⠒⠒E[0m a   E[33m⠒⠒⠒⠂E[0m E[33m⠒E[0m b\n", 1, true), got)
  end)

  it("has bars of eighths, and outlines of several series", function()
    -- 3, 2 and 1 of 3.12: 31, 21 and 10 of 32 eighths.
    assert.equal([[

count
  │ ▇▇▇▇▇▇▇▇
2 ┤ ████████▅▅▅▅▅▅▅▅
  │ ████████████████▂▂▂▂▂▂▂▂
0 ┤ ████████████████████████
  └─┬───────────┬──────────┬─
    0           1          2
]], text(plot.hist {{0, 0, 0, 1, 1, 2}, bins = 3}, 30, 4))
    assert.equal([[

   ⠒⠒⠒⠒⠒⠒ a   ⠒⠒⠒⠂ ⠒ b
count
  │ ⠒⠒⠒⠒⠒⠒⠒⠒⡆      ⢰⠂⠐⠒⠒⠒ ⠐⠒
  │         ⡇      ⠸
2 ┤         ⠉⠉⠉⠉⠉⠉⠉⢹
  │                ⢸
  │         ⡏⠁⠈⠉⠉⠉ ⠈⠉⠉⠉⠉⠉⠉⠉⠉
0 ┤ ⣀⣀⣀⡀⢀⣀⣀⣀⠁
  └─┬───────────┬──────────┬─
    0           1          2
]], text(plot.hist {a = {0, 0, 0, 1, 1, 2}, b = {1, 2, 2, 2}, bins = 3}, 30, 6))
  end)

  it("has a character for each of up to 200 points, a dot for more", function()
    assert.equal([[

2 ┤            ●
  │
  │                        ●
  │
0 ┤●
  └─┬───────────┬──────────┬─
    0           1          2
]], text(plot.scatter({0, 1, 2}, {0, 2, 1}), 30, 5))
    local function dots(n)
      local x = moth.linspace(0, 1, n)
      return select(2, text(plot.scatter(x, x), 60, 20):gsub("●", ""))
    end
    assert.is_true(dots(200) > 20)
    assert.equal(0, dots(201))
  end)

  it("has shades of a matrix, and a bar with its range", function()
    assert.equal([[

                   map
  │            ░░░░░░░░░░░░▒▒▒▒▒▒▒▒▒▒▒▒
1 ┤            ░░░░░░░░░░░░▒▒▒▒▒▒▒▒▒▒▒▒
  │▒▒▒▒▒▒▒▒▒▒▒▒▓▓▓▓▓▓▓▓▓▓▓▓████████████
2 ┤▒▒▒▒▒▒▒▒▒▒▒▒▓▓▓▓▓▓▓▓▓▓▓▓████████████
  └──────┬───────────┬──────────┬──────
         1           2          3
   0   ░░░░▒▒▒▒▓▓▓▓██ 5
]], text(plot.heatmap {moth.tensor {{0, 1, 2}, {3, 4, 5}}, title = "map"}, 40, 4))
    assert.equal([[

true
    │████████
cat ┤███ 8 ██    1
    │░░░░░░░░████████
dog ┤░░░ 2 ░░███ 9 ██
    └────┬──────┬────
        cat    dog
        predicted
]], text(plot.confusion_matrix {moth.tensor {{8, 1}, {2, 9}}, labels = {"cat", "dog"}}, 40, 4))
  end)

  it("has the colors of a matrix where the terminal can show them", function()
    local figure = plot.heatmap(moth.tensor {{0, 1}, {3, 4}})
    local function rows(color)
      local got = text(figure, 12, 2, color):gsub("\27", "E")
      return got:match "\n(1[^\n]*)\n(2[^\n]*)\n"
    end
    -- Of 6 levels each: 68, 1, 84 is 1, 0, 2 and so on.
    local first, second = rows "256"
    assert.equal("1 ┤E[38;5;54;48;5;54m▀▀▀▀E[0mE[38;5;67;48;5;67m▀▀▀▀E[0m", first)
    assert.equal("2 ┤E[38;5;114;48;5;114m▀▀▀▀E[0mE[38;5;227;48;5;227m▀▀▀▀E[0m", second)
    first, second = rows "true"
    assert.equal("1 ┤E[38;2;68;1;84;48;2;68;1;84m▀▀▀▀E[0mE[38;2;59;82;138;48;2;59;82;138m▀▀▀▀E[0m",
      first)
    assert.equal("2 ┤E[38;2;94;200;97;48;2;94;200;97m▀▀▀▀E[0mE[38;2;253;231;37;48;2;253;231;37m"
      .. "▀▀▀▀E[0m", second)
    local bar = text(figure, 12, 2, "true"):gsub("\27", "E"):match "\n +(0 [^\n]*)\n$"
    assert.equal("0 E[48;2;68;1;84m E[48;2;71;24;106m ", bar:sub(1, 36))
    assert.equal("E[48;2;253;231;37m E[0m 4", bar:sub(-25))
    assert.equal(16, select(2, bar:gsub("E%[48", "")))
    local counts = text(plot.confusion_matrix(moth.tensor {{8, 1}, {2, 9}}), 30, 4, "true")
    assert.is_truthy(counts:find("\27[97;48;2;8;77;150m8\27[0m", 1, true))
    assert.is_truthy(counts:find("\27[30;48;2;225;237;248m1\27[0m", 1, true))
  end)

  it("has the pixels of a picture, in its shape", function()
    local rows = {}
    for line in plot.imshow(moth.arange(16):view(4, 4) / 15):text({columns = 16, color = "none"})
      :gmatch "[^\n]*" do if line ~= "" then rows[#rows + 1] = line end end
    assert.equal(8, #rows)
    assert.equal("        ░░░░░░░░", rows[1])
    assert.equal("▒▒▒▒▒▒▒▒▓▓▓▓▓▓▓▓", rows[5])
    assert.equal("▓▓▓▓▓▓▓▓████████", rows[8])
    local function size(h, w, columns)
      local got = plot.imshow(moth.full({h, w}, 255, {dtype = moth.uint8}))
        :text {columns = columns, color = "none"}
      local first = got:match "^[^\n]*"
      return #first / 3, select(2, got:gsub("\n", "")) + 1
    end
    assert.same({48, 24}, {size(48, 48, 100)})
    assert.same({60, 15}, {size(30, 60, 100)})
    assert.same({20, 10}, {size(48, 48, 20)})
    assert.same({45, 3}, {size(2, 15, 80)})
    assert.same({20, 40}, {size(200, 50, 100)})
  end)

  it("leaves out labels that would touch", function()
    local got = text(plot.lines {{1, 2}, x = {0, 1e6}, xlim = {0, 1e6}}, 20, 2)
    local last = got:match "([^\n]*)\n$"
    assert.is_truthy(last:find "%d e?", last)
    assert.is_nil(last:find "%de%d%d", last)
  end)

  local function with(stubs, f)
    local getenv, is_terminal = os.getenv, machine.is_terminal
    os.getenv = function(name) return stubs[name] end -- luacheck: ignore 122
    machine.is_terminal = function() return stubs.terminal ~= false end
    local ok, result = pcall(f)
    os.getenv, machine.is_terminal = getenv, is_terminal -- luacheck: ignore 122
    assert.is_true(ok, tostring(result))
    return result
  end

  it("has the colors that the environment names", function()
    local colors = require("moth.plot.terminal").colors
    for _, row in ipairs {
      {"16", {TERM = "xterm"}}, {"256", {TERM = "xterm-256color"}}, {"16", {}},
      {"true", {TERM = "xterm", COLORTERM = "truecolor"}}, {"true", {COLORTERM = "24bit"}},
      {"16", {COLORTERM = "yes"}}, {"none", {TERM = "dumb", COLORTERM = "truecolor"}},
      {"none", {NO_COLOR = "1"}}, {"16", {NO_COLOR = ""}}, {"none", {terminal = false}},
    } do
      assert.equal(row[1], with(row[2], colors))
    end
  end)

  it("is a picture where the terminal shows them", function()
    local figure, curve = plot.imshow(moth.zeros(2, 2)), plot.lines {1, 2}
    local protocol_of = require("moth.plot.graphics").protocol
    local function forget() -- the terminal is asked once
      for i = 1, 9 do
        local name = debug.getupvalue(protocol_of, i)
        if name == "known" then debug.setupvalue(protocol_of, i, nil) end
      end
    end
    for protocol, start in pairs {kitty = "^\27_Ga=T", sixel = "^\27P0;1q", none = "^ "} do
      forget()
      local got = with({MOTH_GRAPHICS = protocol, NO_COLOR = "1"}, function()
        return tostring(figure) .. "|" .. tostring(curve)
      end)
      local first, second = got:match "^(.*)|([^|]*)$"
      if protocol ~= "none" then assert.is_truthy(first:find(start), protocol) end
      assert.is_truthy(protocol ~= "none" or not first:find "\27")
      assert.is_truthy(second:find "└")
    end
    forget()
    assert.equal("none", with({TERM = "dumb"}, protocol_of))
    forget()
  end)
end)

-- ---- SVG ----

local AXES = 'fill="none" stroke="#282828" stroke-width="1"/>'
local GRID = 'fill="none" stroke="#e4e4e4" stroke-width="1"/>'

local function shapes_of(figure)
  local list = {}
  for line in figure:svg():gmatch "[^\n]+" do
    line = line:gsub((AXES:gsub("%p", "%%%0")), "axis"):gsub((GRID:gsub("%p", "%%%0")), "grid")
      :gsub(' fill="#282828">', ">")
    list[#list + 1] = line
  end
  return list
end

describe("a plot as SVG", function()
  it("is this, of a line", function()
    local list = shapes_of(plot.lines {{0, 10}, x = {0, 10}, title = "t", xlabel = "x",
      ylabel = "y", width = 300, height = 200})
    -- The area: 48 to 280 and 33 to 153; 0 and 10 are at 0.04 and 1.04 of 1.08.
    assert.same({
      '<svg xmlns="http://www.w3.org/2000/svg" width="300" height="200" viewBox="0 0 300 200" '
        .. 'font-family="Helvetica, Arial, sans-serif" role="img">',
      "<title>t</title>",
      '<rect width="300" height="200" fill="#ffffff"/>',
      '<polyline points="56.59,33 56.59,153" grid',
      '<polyline points="164,33 164,153" grid',
      '<polyline points="271.41,33 271.41,153" grid',
      '<polyline points="48,148.56 280,148.56" grid',
      '<polyline points="48,93 280,93" grid',
      '<polyline points="48,37.44 280,37.44" grid',
      '<polyline points="56.59,148.56 271.41,37.44" fill="none" stroke="#0072b2" '
        .. 'stroke-width="1.8"/>',
      '<polyline points="48,33 48,153 280,153" axis',
      '<polyline points="56.59,153 56.59,157" axis',
      '<text x="56.59" y="170" font-size="11" text-anchor="middle">0</text>',
      '<polyline points="164,153 164,157" axis',
      '<text x="164" y="170" font-size="11" text-anchor="middle">5</text>',
      '<polyline points="271.41,153 271.41,157" axis',
      '<text x="271.41" y="170" font-size="11" text-anchor="middle">10</text>',
      '<polyline points="44,148.56 48,148.56" axis',
      '<text x="41" y="152.52" font-size="11" text-anchor="end">0</text>',
      '<polyline points="44,93 48,93" axis',
      '<text x="41" y="96.96" font-size="11" text-anchor="end">5</text>',
      '<polyline points="44,37.44 48,37.44" axis',
      '<text x="41" y="41.4" font-size="11" text-anchor="end">10</text>',
      '<text x="150" y="21" font-size="15" text-anchor="middle">t</text>',
      '<text x="164" y="193" font-size="12" text-anchor="middle">x</text>',
      '<text transform="translate(17.63 93) rotate(-90)" font-size="12" text-anchor="middle">y'
        .. "</text>",
      "</svg>",
    }, list)
    local bare = shapes_of(plot.lines {{0, 10}, grid = false})
    for _, line in ipairs(bare) do assert.is_nil(line:find "grid") end
  end)

  it("has these markers and this legend", function()
    local names, options = {"a", "b", "c", "d", "e", "f", "g"}, {width = 400, height = 300}
    for i, name in ipairs(names) do options[name] = {x = {i}, y = {i}} end
    local list = shapes_of(plot.scatter(options))
    local marks = {unpack(list, 9, 15)}
    assert.same({
      '<circle cx="32.52" cy="262.74" r="3.25" fill="#0072b2"/>',
      '<rect x="85.92" y="225.4" width="5.85" height="5.85" fill="#d55e00"/>',
      '<polygon points="145.17,190.01 141.6,196.51 148.75,196.51" fill="#009e73"/>',
      '<polygon points="201.5,155.44 205.56,159.5 201.5,163.56 197.44,159.5" fill="#cc79a7"/>',
      '<path d="M254.58 121.84L261.08 128.34M254.58 128.34L261.08 121.84" stroke="#56b4e9" '
        .. 'stroke-width="1.8"/>',
      '<path d="M310.25 90.67L318.05 90.67M314.15 86.77L314.15 94.57" stroke="#e69f00" '
        .. 'stroke-width="1.8"/>',
      '<circle cx="370.48" cy="56.26" r="3.25" fill="none" stroke="#5a5a5a" stroke-width="1.5"/>',
    }, marks)
    assert.same({
      '<circle cx="34" cy="16.8" r="3.25" fill="#0072b2"/>',
      '<text x="55" y="21" font-size="12" text-anchor="start">a</text>',
      '<rect x="92.92" y="13.88" width="5.85" height="5.85" fill="#d55e00"/>',
      '<text x="116.84" y="21" font-size="12" text-anchor="start">b</text>',
    }, {unpack(list, 29, 32)})
    -- The second row begins again at the left.
    assert.equal('<path d="M30.1 34.8L37.9 34.8M34 30.9L34 38.7" stroke="#e69f00" '
      .. 'stroke-width="1.8"/>', list[#list - 4])
    local many = plot.scatter {moth.rand(2001), x = moth.arange(2001), width = 5000, height = 5000}
    assert.is_truthy(many:svg():find('r="1.95"', 1, true))
    local curves = shapes_of(plot.lines {a = {1, 2}, b = {2, 1}, width = 400, height = 300})
    assert.equal('<polyline points="30,16.8 60,16.8" fill="none" stroke="#0072b2" '
      .. 'stroke-width="1.8"/>', curves[#curves - 4])
    assert.equal('<polyline points="91.84,16.8 121.84,16.8" fill="none" stroke="#d55e00" '
      .. 'stroke-width="1.8" stroke-dasharray="9 5.4"/>', curves[#curves - 2])
  end)

  it("is this, of a matrix", function()
    local list = shapes_of(plot.heatmap(moth.tensor {{0, 1}, {2, 3}}, {width = 200, height = 150}))
    assert.same({
      '<g shape-rendering="crispEdges">',
      '<rect x="19" y="12" width="68" height="54.5" fill="#440154"/>',
      '<rect x="87" y="12" width="68" height="54.5" fill="#31678d"/>',
      '<rect x="19" y="66.5" width="68" height="54.5" fill="#39b777"/>',
      '<rect x="87" y="66.5" width="68" height="54.5" fill="#fde725"/>',
      "</g>",
      '<polyline points="19,12 19,121 155,121" axis',
    }, {unpack(list, 3, 9)})
    -- The bar of 64 colors, from the bottom.
    assert.equal('<rect x="167" y="119.3" width="14" height="1.7" fill="#440154"/>', list[18])
    assert.equal('<rect x="167" y="117.59" width="14" height="2.2" fill="#450659"/>', list[19])
    assert.equal('<rect x="167" y="12" width="14" height="2.2" fill="#fde725"/>', list[81])
    local GREY = 'fill="none" stroke="#6e6e6e" stroke-width="1"/>'
    assert.same({
      '<polyline points="181,121 184,121" ' .. GREY,
      '<text x="187" y="124.96" font-size="11" text-anchor="start">0</text>',
      '<polyline points="181,84.67 184,84.67" ' .. GREY,
    }, {unpack(list, 82, 84)})
    assert.equal('<text x="187" y="15.96" font-size="11" text-anchor="start">3</text>',
      list[#list - 1])
  end)

  it("has a rectangle for equal pixels in a row, and PNG above 400 pixels", function()
    local function cells(h, w) return plot.imshow(moth.zeros(3, h, w)):svg() end
    assert.equal(3, select(2, cells(2, 5):gsub("<rect", "")))
    assert.is_nil(cells(20, 20):find("<image", 1, true))
    assert.is_truthy(cells(1, 401):find('<image x="6" y="44" width="486" height="1" ', 1, true))
  end)

  it("keeps the shape of a picture, in the middle", function()
    local function area(h, w)
      local svg = plot.imshow {moth.zeros(3, h, w), width = 224, height = 224}:svg()
      return svg:match 'crispEdges">\n(<rect [^>]*>)'
    end
    assert.equal('<rect x="6" y="64" width="206" height="103" fill="#000000"/>', area(1, 2))
    assert.equal('<rect x="58" y="12" width="103" height="103" fill="#000000"/>', area(2, 1))
    assert.equal('<rect x="6" y="12" width="206" height="206" fill="#000000"/>', area(1, 1))
  end)
end)

it("the outline of bars of several series is along their tops, from axis to axis", function()
  local vector = require "moth.plot.vector"
  local shapes = vector.shapes(plot.hist {a = {0, 0, 1, 2}, b = {1, 2}, bins = 3}, 300, 200)
  local wanted, outlines, rects = nil, 0, 0
  for _, shape in ipairs(shapes) do
    if shape[1] == "rect" and shape[7] == 0.2 then
      local left, top, w, h = unpack(shape, 2, 5)
      wanted = wanted or {left, top + h}
      local n = #wanted
      wanted[n + 1], wanted[n + 2], wanted[n + 3], wanted[n + 4] = left, top, left + w, top
      rects = rects + 1
      if rects % 3 == 0 then wanted[n + 5], wanted[n + 6] = left + w, top + h end
    elseif shape[1] == "line" and wanted then
      near_list(wanted, shape[2])
      wanted, outlines = nil, outlines + 1
    end
  end
  assert.equal(2, outlines)
  assert.equal(6, rects)
end)
