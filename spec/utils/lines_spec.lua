-- moth.utils.lines, the files of loggers: which lines of an existing file stay, when lines are
-- written, the file of a forked process, the end of a program, what a failed write leaves.

local Lines = require "moth.utils.lines"
local files = require "spec.support.files"
local machine = require "moth.base.machine"
local moth = require "moth"
local programs = require "spec.support.process"
local fails = require("spec.support.refusals").fails

local time, process = machine.time, machine.process

before_each(files.setup)
after_each(function()
  machine.time, machine.process = time, process
  files.teardown()
end)

local function open(name, max_queue, flush_secs, keep)
  return Lines(files.path(name or "a.csv"), max_queue or 1, flush_secs or 1000, "Logger", keep)
end

local function content(name) return Lines.content(files.path(name or "a.csv")) end

describe("a file of lines", function()
  it("keeps the complete lines of an existing file, or those that a function keeps", function()
    local function upper(text) return text:gsub("b\n", "") .. "!\n" end
    for _, row in ipairs {
      {"", "", ""}, {"a", "", "!\n"}, {"a\n", "a\n", "a\n!\n"}, {"a\nb", "a\n", "a\n!\n"},
      {"\n", "\n", "\n!\n"}, {"\nb", "\n", "\n!\n"}, {"a\nb\n", "a\nb\n", "a\n!\n"},
      {"a\r\nb\0\nc", "a\r\nb\0\n", "a\r\nb\0\n!\n"},
    } do
      files.write("a.csv", row[1])
      open():close()
      assert.equal(row[2], content())
      files.write("a.csv", row[1])
      local lines = open(nil, 1, 1000, upper)
      lines:add "new"
      lines:close()
      assert.equal(row[3] .. "new\n", content())
    end
    assert.is_nil(content "absent")
    open "absent":close()
    assert.equal("", content "absent")
  end)

  it("is written when max_queue lines have come", function()
    for _, most in ipairs {1, 2, 3} do
      local lines, wanted = open("q" .. most, most), ""
      for i = 1, 7 do
        assert.is_false(lines:add("line " .. i))
        wanted = wanted .. "line " .. i .. "\n"
        local written = i - i % most
        assert.equal(wanted:match(("[^\n]*\n"):rep(written)), content("q" .. most))
      end
      lines:close()
      assert.equal(wanted, content("q" .. most))
    end
  end)

  it("is written by the first line later than flush_secs after the last write", function()
    local now = 100
    machine.time = function() return now end
    local lines = open(nil, 100, 5)
    local function add(at, text)
      now = at
      lines:add(text)
      return content()
    end
    assert.equal("", add(100, "a"))
    assert.equal("", add(105, "b"))
    assert.equal("a\nb\nc\n", add(105.5, "c"))
    assert.equal("a\nb\nc\n", add(110.5, "d"))
    now = 110
    lines:flush()
    assert.equal("a\nb\nc\nd\n", content())
    assert.equal("a\nb\nc\nd\n", add(115, "e"))
    lines:flush()
    now = 200
    lines:flush() -- nothing to write, but it counts
    assert.equal("a\nb\nc\nd\ne\n", add(205, "f"))
    assert.equal("a\nb\nc\nd\ne\nf\ng\n", add(206, "g"))
    lines:close()
  end)

  it("of a forked process has its id in the name, and none of the parent's lines", function()
    assert(require("lfs").mkdir(files.path "run.1"))
    for name, own in pairs {["a.csv"] = "a.777.csv", ["run.1/m.json.txt"] = "run.1/m.json.777.txt",
                            ["run.1/.csv"] = "run.1/.777.csv"} do
      local lines = open(name, 2)
      lines:add "of the parent"
      machine.process = function() return 777 end
      lines:flush()
      assert.is_true(lines:add "one")
      assert.is_false(lines:add "two")
      lines:add "three"
      assert.equal("one\ntwo\n", content(own))
      lines:close()
      machine.process = process
      assert.equal("", content(name))
      assert.equal("one\ntwo\nthree\n", content(own))
    end
  end)

  it("is rewritten with the lines that were collected, and goes on", function()
    local lines, given = open(nil, 3), nil
    lines:add "a"
    lines:rewrite(function(text)
      given = text
      return "head\n" .. text
    end)
    assert.equal("a\n", given)
    assert.equal("head\na\n", content())
    lines:add "b"
    os.remove(files.path "a.csv")
    lines.list = {}
    lines:rewrite(function(text) return text .. "new\n" end)
    lines:add "c"
    lines:close()
    assert.equal("new\nc\n", content())
    lines:close()
  end)

  it("is completed when a logger is collected, but not by another process", function()
    local calls = 0
    local function left(text, closed)
      local lines = open(nil, 100)
      lines:add(text)
      function lines.before_end() calls = calls + 1 end
      if closed then lines:close() end
    end
    local function collect()
      for _ = 1, 2 do collectgarbage() end
    end
    left "one"
    collect()
    assert.equal("one\n", content())
    calls = 0
    os.remove(files.path "a.csv")
    open(nil, 100):add "one" -- without before_end
    collect()
    assert.equal("one\n", content())
    left("two", true)
    collect()
    assert.equal(0, calls)
    left "three"
    machine.process = function() return 777 end
    collect()
    assert.equal("one\ntwo\n", content())
    assert.equal(0, calls)
  end)

  it("is completed at the end of a program, also after it was rewritten", function()
    local path = files.path "a.csv"
    for _, rewritten in ipairs {"", "lines:rewrite(function(text) return text .. '2\\n' end) "} do
      os.remove(path)
      assert.equal("rc=0\n", programs.lua(("local Lines = require 'moth.utils.lines' "
        .. "local lines = Lines(%q, 9, 99, 'Logger') lines:add '1' %s lines:add '3'"):format(path,
        rewritten)))
      assert.equal(rewritten == "" and "1\n3\n" or "1\n2\n3\n", content())
    end
  end)

  it("whose folder is gone cannot be replaced: the error names the logger", function()
    local lfs = require "lfs"
    assert(lfs.mkdir(files.path "gone"))
    local lines = open "gone/a.csv"
    local function remove()
      os.remove(files.path "gone/a.csv")
      lfs.rmdir(files.path "gone")
      return "new\n"
    end
    fails("bad argument 'path' to 'Logger' (", lines.rewrite, lines, remove)
    lines:close()
    assert(lfs.mkdir(files.path "gone"))
    files.write("gone/a.csv", "old\n")
    fails("bad argument 'path' to 'Logger' (", open, "gone/a.csv", 1, 1, remove)
  end)

  it("that cannot be written raises; the lines are kept for the next write", function()
    local path = files.path "no/a.csv"
    fails(("Logger: the file cannot be written: %s: No such file or directory"):format(path), open,
      "no/a.csv")
    assert.equal("E_IO", moth.errcode())
    local full = io.open("/dev/full", "wb")
    if not full then return pending "no /dev/full" end
    full:setvbuf "no"
    local lines = open(nil, 2)
    local own = lines.file
    lines.file = full
    lines:add "a"
    fails(("Logger: '%s': No space left on device"):format(files.path "a.csv"), lines.add, lines,
      "b")
    assert.equal("E_IO", moth.errcode())
    lines.file = own
    full:close()
    lines:add "c"
    lines:close()
    assert.equal("a\nb\nc\n", content())
  end)
end)
