-- The history of the prompt: its lines in memory and in the file, over several prompts.

local files = require "spec.support.files"
local history = require "moth.repl.history"

setup(files.setup)
teardown(files.teardown)

local path, kept = nil, history.path

before_each(function()
  path = files.path "state/history"
  os.remove(path)
  history.path = function() return path end
end)
after_each(function() history.path = kept end)

local function content()
  local file = io.open(path)
  if not file then return nil end
  local text = file:read "*a"
  file:close()
  return text
end

describe("the history of the prompt", function()
  it("adds each input to its lines and to the file, but no blank and no repeated one", function()
    local past = history.open()
    assert.is_nil(content())
    for _, row in ipairs {{"a", true}, {"b", true}, {"b", false}, {" \t", false}, {"", false},
        {"a", true}, {"for i = 1, 2 do\n  f(i)\nend", true}} do
      assert.equal(row[2], past:add(row[1]), row[1])
    end
    assert.same({"a", "b", "a", "for i = 1, 2 do\n  f(i)\nend"}, past.lines)
    assert.equal("a\nb\na\nfor i = 1, 2 do\31  f(i)\31end\n", content())
    assert.same(past.lines, history.open().lines)
  end)

  it("is shared by prompts that are open at once", function()
    local one, two = history.open(), history.open()
    one:add "a"
    two:add "b"
    one:add "c"
    assert.same({"a", "c"}, one.lines)
    assert.same({"b"}, two.lines)
    assert.same({"a", "b", "c"}, history.open().lines)
  end)

  it("keeps the last 2000 lines, and cuts a file of 4000", function()
    for _, n in ipairs {1999, 2000, 2001, 3999, 4000} do
      local list = {}
      for i = 1, n do list[i] = "x = " .. i end
      history.open()
      local file = assert(io.open(path, "w"))
      file:write(table.concat(list, "\n"), "\n")
      file:close()
      local lines = history.open().lines
      assert.equal(math.min(n, 2000), #lines)
      assert.equal("x = " .. n, lines[#lines])
      assert.equal("x = " .. math.max(1, n - 1999), lines[1])
      local count = select(2, content():gsub("\n", ""))
      assert.equal(n < 4000 and n or 2000, count)
    end
  end)
end)
