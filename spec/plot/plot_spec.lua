-- moth.plot: ticks, the forms of arguments, what each output shows, readable without color; live
-- plots that take at most their share of the time.

local moth = require "moth"
local files = require "spec.support.files"
local graphics = require "moth.plot.graphics"
local ticks = require "moth.plot.ticks"
local sink = require "spec.support.sink"

local plot = moth.plot

setup(files.setup)
teardown(files.teardown)

local function labels(list)
  local out = {}
  for i, tick in ipairs(list) do out[i] = tick.label end
  return table.concat(out, " ")
end

local function text(figure, columns, rows)
  return figure:text {columns = columns or 60, rows = rows or 8, color = "none"}
end

-- The number of times that a plain text is in another.
local function count(whole, part)
  local n, at = 0, 1
  while true do
    at = whole:find(part, at, true)
    if not at then return n end
    n, at = n + 1, at + #part
  end
end

-- ---- axes ----

describe("ticks", function()
  it("are at round numbers", function()
    assert.equal("0 2 4 6 8 10", labels(ticks.scale(0, 10).ticks(5)))
    assert.equal("-0.2 0 0.2 0.4", labels(ticks.scale(-0.3, 0.5).ticks(5)))
    assert.equal("97.35 97.40 97.45", labels(ticks.scale(97.31, 97.47).ticks(4)))
    assert.equal("0 5e5 1e6 1.5e6", labels(ticks.scale(0, 1.7e6).ticks(4)))
    assert.equal("0 2e-5 4e-5", labels(ticks.scale(0, 5e-5).ticks(3)))
  end)

  it("of a logarithmic scale are powers of ten", function()
    assert.equal("0.001 0.01 0.1 1", labels(ticks.scale(1e-3, 2, true).ticks(5)))
    assert.equal("1e-8 1e-6 1e-4 0.01 1", labels(ticks.scale(1e-8, 1, true).ticks(5)))
    assert.equal("1 2 5 10", labels(ticks.scale(0.9, 12, true).ticks(6)))
    local scale = ticks.scale(1, 100, true)
    assert.equal(0.5, scale.map(10))
    assert.is_true(scale.map(0) ~= scale.map(0))
  end)

  it("exist for equal limits", function()
    assert.is_true(#ticks.scale(3, 3).ticks(4) >= 2)
    assert.is_true(#ticks.scale(0, 0).ticks(4) >= 2)
    assert.is_true(#ticks.scale(5, 5, true).ticks(4) >= 2)
  end)
end)

-- ---- arguments ----

describe("lines", function()
  local function series(figure)
    local out = {}
    for i, layer in ipairs(figure.layers) do
      out[i] = {layer.name or "", table.concat(layer.x, " "), table.concat(layer.y, " ")}
    end
    return out
  end

  it("takes vectors, lists, matrices, pairs and names", function()
    local y = moth.tensor {5, 6, 7}
    assert.same({{"", "1 2 3", "5 6 7"}}, series(plot.lines(y)))
    assert.same({{"", "1 2 3", "5 6 7"}}, series(plot.lines {5, 6, 7}))
    assert.same({{"", "1 2 3", "5 6 7"}}, series(plot.lines({5, 6, 7}, {title = "t"})))
    assert.same({{"", "2 4 6", "5 6 7"}}, series(plot.lines(moth.tensor {2, 4, 6}, y)))
    assert.same({{"", "2 4 6", "5 6 7"}}, series(plot.lines {y, x = {2, 4, 6}}))
    assert.same({{"1", "1 2", "1 3"}, {"2", "1 2", "2 4"}},
      series(plot.lines(moth.tensor {{1, 2}, {3, 4}})))
    assert.same({{"a", "1 2 3", "5 6 7"}, {"b", "3 4", "1 2"}},
      series(plot.lines {b = {x = {3, 4}, y = {1, 2}}, a = y, title = "t"}))
    assert.same({{"1", "1 2", "1 2"}, {"2", "1 2", "3 4"}},
      series(plot.lines({{1, 2}, {3, 4}})))
    assert.same({{"", "2 4 6", "5 6 7"}}, series(plot.lines {x = {2, 4, 6}, y = y, title = "t"}))
    assert.same({{"", "10 20", "1 2"}}, series(plot.lines {step = {10, 20}, value = {1, 2}}))
    assert.same({{"loss", "10 20", "1 2"}},
      series(plot.lines {loss = {step = {10, 20}, value = {1, 2}, wall_time = {0, 0}}}))
    assert.equal("t", plot.lines {y, title = "t"}.title)
    assert.same({{"", "1", "3"}}, series(plot.lines(moth.tensor(3))))
  end)

  it("names the argument that is wrong", function()
    assert.has_error_like(function() plot.lines() end, "'lines'")
    assert.has_error_like(function() plot.lines("abc") end, "bad argument 'y' to 'lines'")
    assert.has_error_like(function() plot.lines({1, "a"}) end,
      "bad argument 'y' to 'lines' %(element 2")
    assert.has_error_like(function() plot.lines({1, 2}, {1, 2, 3}) end,
      "bad argument 'x' to 'lines' %(2 values for 3")
    assert.has_error_like(function() plot.lines(moth.ones(2, 2, 2)) end,
      "bad argument 'y' to 'lines' %(a vector")
    assert.has_error_like(function() plot.lines {{1, 2}, titel = "t"} end, "did you mean 'title'")
    assert.has_error_like(function() plot.lines {{1, 2}, yscale = "logg"} end, "'yscale'")
    assert.has_error_like(function() plot.lines {{1, 2}, xlim = {2, 1}} end,
      "bad argument 'xlim' to 'lines'")
    assert.has_error_like(function() plot.lines {{1, 2}, ylim = {0, 1}, yscale = "log"} end,
      "a logarithmic axis begins above 0")
  end)
end)

-- ---- text ----

describe("a plot as text", function()
  it("has a title, a legend, axes and dots", function()
    local got = text(plot.lines {{0, 1, 2, 3}, title = "rise", xlabel = "step", ylabel = "height"},
      30, 6)
    assert.is_truthy(got:find("^ +rise\n"), got)
    assert.is_truthy(got:find("\nheight\n", 1, true))
    assert.is_truthy(got:find("0 ┤", 1, true))
    assert.is_truthy(got:find("└─", 1, true))
    assert.is_truthy(got:find("step", 1, true))
    assert.is_true(count(got, "⠤") + count(got, "⡠") + count(got, "⠊") > 0, got)
  end)

  it("has no codes for colors off a terminal, and no line longer than its columns", function()
    for _, figure in ipairs {
      plot.lines {a = {1, 2}, b = {2, 1}, title = ("long "):rep(30)},
      plot.hist(moth.arange(100)), plot.heatmap(moth.eye(3)), plot.imshow(moth.rand(3, 50, 80)),
      plot.confusion_matrix(moth.eye(3)), plot.scatter(moth.arange(9), moth.arange(9)),
    } do
      assert.is_nil(tostring(figure):find "\27")
      if not figure.title then
        for line in (text(figure, 40) .. "\n"):gmatch "([^\n]*)\n" do
          assert.is_true(select(2, line:gsub("[^\128-\191]", "")) <= 40, line)
        end
      end
    end
  end)

  it("has codes for colors on demand, unless NO_COLOR is set", function()
    local figure = plot.lines {a = {1, 2}, b = {2, 1}}
    assert.is_truthy(figure:text {color = "16"}:find("\27[36m", 1, true))
    local getenv = os.getenv
    os.getenv = function(name) -- luacheck: ignore 122
      return name == "NO_COLOR" and "1" or getenv(name)
    end
    local ok, got = pcall(figure.text, figure)
    os.getenv = getenv -- luacheck: ignore 122
    assert(ok, got)
    assert.is_nil(got:find "\27")
  end)

  it("differs between series without color: dashes and characters", function()
    local line = plot.lines {a = {1, 1}, b = {2, 2}, ylim = {0, 3}}
    local dense, sparse = 0, 0
    for row in (text(line, 60, 9) .. "\n"):gmatch "([^\n]*)\n" do
      if row:find "│" or row:find "┤" then
        local dots = count(row, "\226\160") + count(row, "\226\161") + count(row, "\226\163")
          + count(row, "\226\162")
        if dots > dense then dense, sparse = dots, dense elseif dots > sparse then sparse = dots end
      end
    end
    assert.is_true(dense > 40 and sparse > 15 and sparse < dense - 5, dense .. " " .. sparse)
    local points = text(plot.scatter {a = {x = {1}, y = {1}}, b = {x = {2}, y = {2}}})
    assert.equal(2, count(points, "●")) -- one is in the legend
    assert.equal(2, count(points, "■"))
  end)

  it("shows bars in eighths of a row", function()
    local got = text(plot.hist({0, 0, 0, 1, 1, 2}, {bins = 3, ylim = {0, 3}}), 40, 3)
    assert.is_true(count(got, "█") > 20, got)
    assert.is_truthy(got:find("count", 1, true))
  end)

  it("shows a matrix in shades, with numbers where they are wanted", function()
    local got = text(plot.heatmap(moth.tensor {{0, 1}, {0.5, 0 / 0}}), 40, 2)
    assert.is_truthy(got:find("1 ┤" .. (" "):rep(18) .. ("█"):rep(18) .. "\n", 1, true), got)
    assert.is_truthy(got:find("2 ┤" .. ("▒"):rep(18) .. "\n", 1, true), got)
    assert.is_truthy(got:find("0   ░░░░▒▒▒▒▓▓▓▓██ 1", 1, true), got)
    local numbers = text(plot.confusion_matrix(moth.tensor {{9, 1}, {2, 8}},
      {labels = {"cat", "dog"}}), 40, 6)
    for _, part in ipairs {"cat ┤", "dog ┤", " 9 ", " 1", " 2 ", " 8 ", "predicted", "true"} do
      assert.is_truthy(numbers:find(part, 1, true), part .. " in\n" .. numbers)
    end
    local shares = text(plot.confusion_matrix {moth.tensor {{9, 1}, {2, 8}}, normalize = true})
    assert.is_truthy(shares:find("0.90", 1, true), shares)
  end)

  it("interrupts a curve at NaN and shows a point between two", function()
    local nan = 0 / 0
    local whole = text(plot.lines {1, 1, 1, 1, 1, 1, 1}, 60, 4)
    local gap = text(plot.lines {1, 1, nan, nan, 1, 1, 1}, 60, 4)
    local function dots(s) return count(s, "⠉") + count(s, "⠒") + count(s, "⠤") + count(s, "⣀") end
    assert.is_true(dots(gap) < dots(whole) - 10 and dots(gap) > 10, gap)
    local alone = text(plot.lines {nan, 1, nan, nan}, 40, 4)
    assert.is_truthy(alone:find "\226[\160-\163][\128-\191]", alone)
    assert.is_truthy(text(plot.lines {nan, nan}))
    assert.is_truthy(text(plot.lines {{0, 1, 10}, yscale = "log"}))
  end)

  it("of many points shows extremes", function()
    local y = moth.zeros(100000)
    y[50001] = 1
    local got = text(plot.lines(y), 60, 6)
    assert.is_truthy(got:match "\n1[.0]* ┤[^\n]*\226" or got:match "│[^\n]*\226[^\n]*\n", got)
  end)
end)

describe("a plot of unusual values", function()
  local inf, nan = math.huge, 0 / 0
  local LISTS = {{}, {1}, {nan}, {-inf, inf}, {0, 0}, {-1, -2}, {1e300, -1e300}, {1e-300, 2e-300},
    {1e308, -1e308, 1e308}, {5e-324, 0}, {1, 2, inf}, {1e16, 1e16 + 2}, {3, 3}}

  it("has finite numbers in SVG, and ends", function()
    for _, list in ipairs(LISTS) do
      for _, yscale in ipairs {"linear", "log"} do
        for _, kind in ipairs {"lines", "scatter"} do
          local figure = plot[kind] {list, x = list, yscale = yscale, xscale = yscale}
          local got = figure:svg()
          assert.is_nil(got:find "nan" or got:find "inf", kind)
          assert.is_truthy(text(figure))
        end
      end
    end
    assert.is_truthy(plot.hist({1e308, -1e308}):svg())
    assert.is_truthy(plot.heatmap(moth.full({2, 2}, nan)):svg())
    assert.is_truthy(plot.heatmap(moth.tensor {{inf, 1}, {2, -inf}}):svg())
  end)

  it("has at most 400 bars, whatever the outliers", function()
    local x = moth.randn(1000)
    x[1] = 1e6
    assert.is_true(#plot.hist(x).layers[1].heights <= 400)
  end)

  it("that is empty is refused where there is nothing to show", function()
    assert.has_error_like(function() plot.hist {{nan}} end, "there are no finite values")
    assert.has_error_like(function() plot.imshow(moth.ones(0, 3)) end, "there are no pixels")
    assert.has_error_like(function() plot.heatmap(moth.ones(0, 3)) end, "a matrix is needed")
  end)
end)

-- ---- SVG ----

-- Raises unless a text is well-formed XML of tags, attributes and texts.
local function check_xml(s)
  local open = {}
  for slash, name, rest in s:gmatch "<(/?)([%w:]+)([^<>]*)>" do
    if slash == "/" then
      assert.equal(table.remove(open), name)
    elseif rest:sub(-1) ~= "/" then
      open[#open + 1] = name
    end
    local attributes = rest:gsub('%s+[%w:-]+="[^"<>]*"', "")
    assert.is_truthy(attributes:find "^%s*/?$", name .. ": " .. attributes)
  end
  assert.equal(0, #open)
  assert.is_nil(s:gsub("<[^<>]*>", ""):find "[<>]")
  assert.is_nil(s:gsub("&%a+;", ""):find "&")
end

describe("a plot as SVG", function()
  it("is well-formed, with escaped names", function()
    for _, figure in ipairs {
      plot.lines {["a<b"] = {1, 2}, ["c&d"] = {2, 1}, title = "x \"y\" <z> \1"},
      plot.hist {a = {1, 2, 3}, b = {2, 3, 4}}, plot.heatmap(moth.randn(5, 6)),
      plot.imshow(moth.rand(3, 40, 40)), plot.confusion_matrix(moth.eye(4)),
      plot.scatter(moth.randn(20, 2)),
    } do check_xml(figure:svg()) end
  end)

  it("has a shape a line: text that can be compared", function()
    local got = plot.lines {{1, 3}, title = "two", width = 200, height = 120, grid = false}:svg()
    assert.is_truthy(got:find('<title>two</title>', 1, true))
    local lines = {}
    for line in got:gmatch '<polyline points="([^"]*)" fill="none" stroke="#0072b2"' do
      lines[#lines + 1] = line
    end
    assert.equal(1, #lines)
    assert.equal(2, select(2, lines[1]:gsub(",", "")))
    assert.equal(got, plot.lines {{1, 3}, title = "two", width = 200, height = 120,
                                  grid = false}:svg())
  end)

  it("differs between series without color", function()
    local got = plot.lines {a = {1, 2}, b = {2, 1}, c = {1, 1}}:svg()
    local dashes = {}
    for dash in got:gmatch 'stroke%-dasharray="([^"]*)"' do dashes[dash] = true end
    local n = 0
    for _ in pairs(dashes) do n = n + 1 end
    assert.equal(2, n)
    local points = plot.scatter {a = {1}, b = {2}, c = {3}}:svg()
    assert.is_truthy(points:find("<circle", 1, true))
    assert.is_truthy(points:find("<polygon", 1, true))
  end)
end)

-- ---- PNG ----

describe("a plot as pixels", function()
  it("has the size, a white ground and the color of the series", function()
    local figure = plot.lines {{1, 1}, width = 200, height = 100, grid = false}
    local pixels = figure:image(1)
    assert.equal("(3, 100, 200)", tostring(pixels.shape))
    assert.equal(moth.uint8, pixels.dtype)
    assert.same({255, 255, 255}, pixels:select(3, 200):select(2, 1):tolist())
    local blue = moth.tensor {0, 114, 178}:view(3, 1, 1)
    assert.is_true(pixels:eq(blue):all(1):sum():item() > 100)
    assert.equal("(3, 200, 400)", tostring(figure:image().shape))
  end)

  it("shows a picture's own pixels", function()
    local x = moth.zeros(3, 2, 2):to(moth.uint8)
    x[1][1][1], x[2][2][2] = 255, 255
    local pixels = plot.imshow(x):image(1)
    local red = moth.tensor {255, 0, 0}:view(3, 1, 1)
    local green = moth.tensor {0, 255, 0}:view(3, 1, 1)
    local a, b = pixels:eq(red):all(1):sum():item(), pixels:eq(green):all(1):sum():item()
    assert.equal(a, b)
    assert.is_true(a > 200 * 200)
  end)
end)

describe("save", function()
  it("chooses by the ending", function()
    local figure = plot.lines {1, 2}
    assert.equal(figure, figure:save(files.path "a.svg"))
    figure:save(files.path "a.PNG")
    figure:save(files.path "a.txt")
    assert.equal("<svg", files.read(files.path "a.svg"):sub(1, 4))
    assert.equal("\137PNG", files.read(files.path "a.PNG"):sub(1, 4))
    assert.is_truthy(files.read(files.path "a.txt"):find "└")
    assert.has_error_like(function() figure:save(files.path "a.pdf") end,
      "bad argument 'path' to 'save'")
    assert.has_error_like(function() figure.save("a.svg") end, "figure:save")
  end)
end)

-- ---- graphics of terminals ----

describe("graphics", function()
  it("understands the answers of terminals", function()
    assert.equal("kitty", graphics.meaning "\27_Gi=31;OK\27\\\27[?62;c")
    assert.equal("sixel", graphics.meaning "\27[?63;1;2;4;6;22c")
    assert.equal("none", graphics.meaning "\27[?64;1;2;44c")
    assert.equal("none", graphics.meaning "")
    assert.equal("none", graphics.meaning(nil))
  end)

  it("writes kitty's commands in pieces of base64", function()
    local got = graphics.kitty(("x"):rep(5000))
    assert.is_truthy(got:find("^\27_Ga=T,f=100,m=1;eHh4"))
    assert.is_truthy(got:find("\27_Gm=0;[%w+/=]+\27\\$"))
    assert.equal("YQ==", require("moth.plot.base64") "a")
    assert.equal("YWI=", require("moth.plot.base64") "ab")
    assert.equal("YWJj", require("moth.plot.base64") "abc")
  end)

  it("writes sixels: a red picture of 2 x 7", function()
    local pixels = moth.zeros(7, 2, 3):to(moth.uint8)
    pixels:select(3, 1):fill_(255)
    local got = graphics.sixel(pixels)
    assert.equal('\27P0;1q"1;1;2;7', got:sub(1, 14))
    assert.is_truthy(got:find("#180;2;100;0;0", 1, true))
    assert.equal("#180~~-#180@@-\27\\", got:match "#215;2;100;100;100(.*)$")
  end)
end)

-- ---- live ----

describe("live", function()
  it("writes the curves once in a log", function()
    local out = sink()
    local live = plot.live {title = "loss", out = out}
    for step = 1, 50 do live:add(step, {train = 1 / step, valid = moth.tensor(2 / step)}) end
    assert.equal("", out.text)
    live:close()
    live:close()
    assert.equal(1, count(out.text, "loss"))
    assert.is_truthy(out.text:find("train", 1, true) and out.text:find("valid", 1, true))
  end)

  it("redraws in place for at most its share of the time", function()
    local out = sink()
    local live = plot.live {out = out, share = 0.05}
    live.in_place, live.last = true, 0.001
    local start, n = moth.time(), 0
    while moth.time() - start < 0.5 do
      n = n + 1
      live:add(n, {a = math.sin(n / 1e4)})
    end
    assert.is_true(live.spent <= 0.05 * (moth.time() - start) + live.last + 0.02, live.spent)
    assert.is_true(count(out.text, "\27[J") >= 1, n)
    assert.is_true(#live.by_name.a.x <= 4096)
  end)

  it("writes its file", function()
    local path = files.path "live.svg"
    local live = plot.live {path = path, out = sink()}
    live:add(1, {a = 1})
    live:add(2, {a = 2})
    live:close()
    check_xml(files.read(path))
    assert.has_error_like(function() live:add(3, {a = "x"}) end, "'a' is no number")
    assert.has_error_like(function() live:add({a = 1}) end, "bad argument 'step' to 'add'")
  end)
end)

describe("the prompt", function()
  it("defines plot, hist and imshow", function()
    require("moth.repl.plots").define()
    local names = {"plot", "hist", "imshow"}
    for _, name in ipairs(names) do
      local figure = rawget(_G, name)(moth.rand(4, 4))
      assert.equal("Figure", moth.typename(figure))
      rawset(_G, name, nil)
    end
  end)
end)
