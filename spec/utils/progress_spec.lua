-- moth.progress: its sources, its output on a terminal, and plain lines in a file.

local moth = require "moth"
local data = moth.data

-- A file object that collects its output.
local function sink()
  local out = {text = "", flushes = 0}
  function out.write(_, ...)
    for i = 1, select("#", ...) do out.text = out.text .. tostring((select(i, ...))) end
    return out
  end
  function out.flush() out.flushes = out.flushes + 1 end
  function out.lines()
    local list = {}
    for line in out.text:gmatch "([^\n]*)\n" do list[#list + 1] = line end
    return list
  end
  return out
end

local function collect(bar)
  local list = {}
  for v in bar do list[#list + 1] = v end
  return list
end

describe("progress", function()
  it("passes on the values of its source: numbers, lists, functions, loaders", function()
    assert.same({1, 2, 3}, collect(moth.progress(3, {out = sink()})))
    assert.same({"a", "b"}, collect(moth.progress {{"a", "b"}, out = sink()}))
    assert.same({4, 5}, collect(moth.progress((function()
      local i = 3
      return function()
        i = i + 1
        return i < 6 and i or nil
      end
    end)(), {out = sink()})))
    local set = data.TensorDataset(moth.ones(5, 2), moth.arange(1, 6))
    local sizes = {}
    for x, y in moth.progress(data.DataLoader {set, batch_size = 2}, {out = sink()}) do
      sizes[#sizes + 1] = x:size(1) + 10 * y:size(1)
    end
    assert.same({22, 22, 11}, sizes)
  end)

  it("also iterates with :iter(), once each", function()
    local bar, list = moth.progress({"a", "b"}, {out = sink()}), {}
    local next_of = bar:iter()
    for v in next_of do list[#list + 1] = v end
    assert.same({"a", "b"}, list)
    assert.is_nil(next_of())
    for v in bar:iter() do list[#list + 1] = v end
    assert.same({"a", "b", "a", "b"}, list)
  end)

  it("writes one line at the end, and no control characters off a terminal", function()
    local out = sink()
    collect(moth.progress(5, {desc = "few", out = out}))
    assert.equal(1, #out:lines())
    assert.is_truthy(out.text:find("^few: 100%% 5/5 %[00:00, [%d%?.e+]+ it/s%]\n$"), out.text)
    assert.is_nil(out.text:find "[%z\1-\9\11-\31\127]")
    assert.is_true(out.flushes > 0)
  end)

  it("writes plain lines at the given interval", function()
    local out = sink()
    local bar = moth.progress(4, {desc = "slow", every = 0, out = out})
    for _ in bar do end -- luacheck: ignore
    local lines = out:lines()
    assert.equal(5, #lines)
    assert.is_truthy(lines[1]:find("^slow:  25%% 1/4 %[%d%d:%d%d<%d%d:%d%d, .* it/s%]$"), lines[1])
    assert.is_nil(out.text:find("\r", 1, true))
  end)

  it("shows values in the order of their first use, and removes them", function()
    local out = sink()
    local bar = moth.progress(2, {every = 0, out = out})
    for i in bar do
      if i == 1 then
        bar:set {loss = 0.123456}
        bar:set {acc = "81 %"}
      else
        bar:set {loss = 2}
      end
    end
    local lines = out:lines()
    assert.is_truthy(lines[1]:find(", loss=0.1235, acc=81 %]", 1, true), lines[1])
    assert.is_truthy(lines[2]:find(", loss=2, acc=81 %]", 1, true), lines[2])
  end)

  it("counts samples of batches, not batches, for its rate", function()
    local out, clock = sink(), os.clock
    local bar = moth.progress(data.DataLoader {moth.ones(1000, 2), batch_size = 100}, {out = out})
    for _ in bar do
      local stop = clock() + 0.002
      while clock() < stop do end -- luacheck: ignore
    end
    local rate = tonumber(out.text:match ", (%d+) samples/s%]")
    assert.is_truthy(out.text:find("10/10", 1, true), out.text)
    assert.is_true(rate and rate > 1000 and rate < 51000, out.text)
  end)

  it("shows the given unit", function()
    local out = sink()
    collect(moth.progress(data.DataLoader {moth.ones(4, 2)}, {unit = "images", out = out}))
    assert.is_truthy(out.text:find("images/s]", 1, true))
  end)

  it("works without a total", function()
    local out, i = sink(), 0
    collect(moth.progress(function()
      i = i + 1
      return i < 4 and i or nil
    end, {desc = "stream", out = out}))
    assert.is_truthy(out.text:find("^stream: 3 %["), out.text)
  end)

  it("accepts a total", function()
    local out, i = sink(), 0
    collect(moth.progress(function()
      i = i + 1
      return i < 3 and i or nil
    end, {total = 2, out = out}))
    assert.is_truthy(out.text:find("100% 2/2", 1, true), out.text)
  end)

  it("writes lines of the user above its own line", function()
    local out = sink()
    local bar = moth.progress(1, {out = out})
    for _ in bar do bar:print("half", 5) end
    assert.equal("half\t5", out:lines()[1])
    assert.equal(2, #out:lines())
  end)

  it("ends with close after a break, once, and can run again", function()
    local out = sink()
    local bar = moth.progress(5, {out = out})
    for i in bar do
      if i == 3 then break end
    end
    bar:close()
    bar:close()
    assert.equal(1, #out:lines())
    assert.is_truthy(out.text:find("2/5", 1, true), out.text)
    assert.same({1, 2, 3, 4, 5}, collect(bar))
    assert.is_truthy(out:lines()[2]:find("5/5", 1, true))
  end)

  it("handles an empty source", function()
    local out = sink()
    assert.same({}, collect(moth.progress({}, {out = out})))
    assert.same({}, collect(moth.progress(0, {out = out})))
  end)

  it("passes on errors of the source and the loop body", function()
    assert.has_error_like(function()
      for _ in moth.progress(function() error "no more" end, {out = sink()}) do error "none" end
    end, "no more")
    assert.has_error_like(function()
      for _ in moth.progress(3, {out = sink()}) do error "stop" end
    end, "stop")
  end)

  it("fills a terminal's line, with a bar of 5 to 40 columns or none", function()
    local getenv, width, widths = os.getenv, 0, {}
    os.getenv = function(name) -- luacheck: ignore 122
      if name == "COLUMNS" then return tostring(width) end
      return getenv(name)
    end
    local ok, problem = pcall(function()
      for columns = 40, 120 do
        width = columns
        local out = sink()
        local bar = moth.progress(7, {desc = "word", out = out, ascii = true})
        bar.live, bar.step, bar.count, bar.start = true, 3, 3, -math.huge
        bar.values, bar.names = {loss = 0.25}, {"loss"}
        bar:close()
        local line = out.text:sub(2, -2)
        local cells = line:match "^word:  42%%|(#* *)| 3/7 %["
        assert.is_true(#line <= columns - 1, line)
        if not cells then
          assert.is_true(#line > columns - 9, line) -- too narrow for a bar of 5
        else
          widths[#widths + 1] = #cells
          assert.equal(math.floor(3 / 7 * #cells), select(2, cells:gsub("#", "")))
          assert.is_true(#cells == 40 or #line == columns - 1, line)
        end
      end
    end)
    os.getenv = getenv -- luacheck: ignore 122
    assert(ok, problem)
    assert.equal(5, widths[1])
    assert.equal(40, widths[#widths])
  end)

  it("draws eighths of a column where the locale is UTF-8", function()
    local out = sink()
    local bar = moth.progress(16, {out = out, ncols = 100, ascii = false})
    bar.live, bar.step = true, 3
    bar:refresh()
    local cells = out.text:match "|(.*)|"
    assert.equal(("█"):rep(7) .. "▌" .. (" "):rep(32), cells)
  end)

  it("cuts a line that is too long between two characters", function()
    local out = sink()
    local bar = moth.progress(5, {out = out, ncols = 20, desc = ("é"):rep(30)})
    bar.live = true
    bar:refresh()
    assert.equal("\r" .. ("é"):rep(19), out.text)
  end)

  it("reads a tensor of set_postfix at most ten times a second", function()
    local out = sink()
    local bar = moth.progress(3, {out = out, every = 0})
    bar:set_postfix {loss = moth.tensor(1)}
    bar:set_postfix {loss = moth.tensor(2)}
    assert.equal(1, bar.values.loss)
    bar.read = -1
    bar:set_postfix {loss = moth.tensor {3}}
    assert.equal(3, bar.values.loss)
    bar:set_postfix {acc = moth.tensor(4)} -- a new name is read at once
    assert.equal(4, bar.values.acc)
  end)

  it("counts steps by update", function()
    local out = sink()
    local bar = moth.progress(10, {out = out, unit = "files"})
    bar:update(4)
    bar:update()
    bar:close()
    assert.is_truthy(out.text:find("^ 50%% 5/10 %[00:00, [%d?]+ files/s%]\n$"), out.text)
  end)

  it("writes nothing when it is disabled, and clears a line that is not left", function()
    local out = sink()
    collect(moth.progress(3, {out = out, disable = true}))
    assert.equal("", out.text)
    local bar = moth.progress(3, {out = out, leave = false, ascii = true, ncols = 60})
    bar.live = true
    for _ in bar do end -- luacheck: ignore
    assert.is_truthy(out.text:find("\r +\r$"))
    assert.is_nil(out.text:find "\n")
  end)

  it("draws at its position below the line of another bar", function()
    local out = sink()
    local bar = moth.progress(3, {out = out, position = 2, ascii = true, ncols = 60})
    bar.live = true
    bar:refresh()
    assert.is_truthy(out.text:find("^\n\r.*\27%[A$"))
    assert.is_false(bar.leave)
  end)

  it("shows seconds a step when a step takes longer than a second", function()
    local out = sink()
    local bar = moth.progress(4, {out = out})
    bar.step, bar.count, bar.start = 2, 2, bar.start - 10
    bar:close()
    assert.is_truthy(out.text:find("[00:10, 5 s/it]", 1, true), out.text)
  end)

  it("allocates nothing in a step that draws nothing", function()
    local bar = moth.progress(1e6, {out = sink()})
    local before
    for i in bar do
      if i == 2000 then
        collectgarbage()
        collectgarbage "stop"
        before = collectgarbage "count"
      elseif i == 3000 then
        break
      end
    end
    local grown = collectgarbage "count" - before
    collectgarbage "restart"
    assert.is_true(grown < 40, grown) -- KiB for 1000 steps: a table each would be more
  end)

  it("raises for other values and says what it accepts", function()
    assert.has_error_like(function() moth.progress("abc") end,
      "bad argument 'source' to 'progress' %(a DataLoader, a list, a number or a func")
    assert.has_error_like(function() moth.progress(moth.ones(3)) end, "got f32 %(3%)")
    assert.has_error_like(function() moth.progress(3, {desk = "x"}) end, "did you mean 'desc'%?")
  end)
end)
