-- data.csv one option at a time: integers at the ends of int64, kinds of columns, missing numbers,
-- quotes, delimiters, and every refusal with its line.

local moth = require "moth"
local files = require "spec.support.files"

local csv = moth.data.csv

setup(files.setup)
teardown(files.teardown)

local function read(text, options)
  options = options or {}
  options[1] = files.write("t.csv", text)
  return csv(options)
end

local function check(wanted, f, ...)
  local ok, problem = pcall(f, ...)
  assert.is_false(ok, "was taken: " .. wanted)
  local message = tostring(type(problem) == "table" and problem.message or problem)
  if not message:find(wanted, 1, true) then error(message .. "\nlacks: " .. wanted, 2) end
end

-- The first column of rows without a header.
local function column(...)
  return read(table.concat({...}, "\n") .. "\n", {header = false}):column(1)
end

describe("a column of a table", function()
  it("is int64 up to its ends, then floats", function()
    for _, text in ipairs {"0", "-1", "+7", " 12 ", "007", "9007199254740992", "9007199254740993",
      "-9007199254740993", "9223372036854775807", "-9223372036854775808",
        "0009223372036854775807"} do
      local x = column(text)
      assert.equal(moth.int64, x.dtype, text)
      local wanted = text:gsub("[%s+]", ""):gsub("^(-?)0+(%d)", "%1%2")
      local value = x[1]:item()
      local shown = type(value) == "number" and ("%.0f"):format(value) or tostring(value)
      assert.equal(wanted, (shown:gsub("LL$", "")))
    end
    for _, text in ipairs {"9223372036854775808", "-9223372036854775809", "18446744073709551616",
      "99999999999999999999", "1e3", "1.0", ".5", "5.", "-1.5e-3", "+2.", "inf", "-Infinity"} do
      local x = column(text)
      assert.equal(moth.float32, x.dtype, text)
    end
    assert.near(0.5, column(".5")[1]:item(), 0)
    assert.near(-0.0015, column("-1.5e-3")[1]:item(), 1e-9)
    assert.equal(math.huge, column("inf")[1]:item())
    assert.equal(-math.huge, column("-Infinity")[1]:item())
    assert.equal(moth.float32, column("1", "9223372036854775808").dtype)
  end)

  it("is a list of texts if one field is no number", function()
    for _, text in ipairs {"a", "1a", "0x10", "--1", "1-", "1 2", "e5", ".", "+", "1,5", "infin"} do
      assert.same({"1", text}, read("h;\n1;\n" .. text .. ";\n", {delimiter = ";"}):column "h",
        text)
    end
  end)

  it("is NaN where a number is missing, which makes it one of floats", function()
    for _, text in ipairs {"NA", "N/A", "nan", "NaN", "null", '""'} do
      local x = read("h\n1\n" .. text .. "\n3\n"):column "h"
      assert.equal(moth.float32, x.dtype, text)
      assert.same({1, 3}, {x[1]:item(), x[3]:item()})
      assert.is_true(x[2]:item() ~= x[2]:item())
    end
    assert.same({"1", "na"}, read("h\n1\nna\n"):column "h")
    local own = read("h,k\n1,2\n?,NA\n", {missing = {"?"}})
    assert.is_true(own:column "h"[2]:isnan():item())
    assert.same({"2", "NA"}, own:column "k")
    assert.same({"", ""}, read('h\n""\n""\n'):column "h") -- only missing ones: texts
  end)

  it("has the dtype that is given, by name or position, or of all with fractions", function()
    local t = read("a,b,c\n1,2.5,3\n", {dtype = moth.float64, dtypes = {a = moth.float32,
      [3] = "string"}})
    assert.equal(moth.float32, t:column("a").dtype)
    assert.equal(moth.float64, t:column("b").dtype)
    assert.same({"3"}, t:column "c")
    assert.equal(moth.int32, t:column("a", moth.int32).dtype)
    assert.equal(moth.uint8, t:column("c", moth.uint8).dtype)
    assert.same({"1"}, t:column("a", "string"))
    assert.equal(moth.float32, read("a\n0.5\n"):column("a").dtype)
    assert.equal(moth.float16, t:tensor({"a"}, moth.float16).dtype)
  end)

  it("is found by its name, or by its position from both ends", function()
    local t = read("a,b,c\n1,2,3\n4,5,6\n")
    for at, wanted in pairs {[1] = 1, [3] = 3, [-1] = 3, [-3] = 1, b = 2} do
      assert.equal(wanted, tonumber(t:column(at)[1]:item()))
    end
    assert.same({{1, 2, 3}, {4, 5, 6}}, t:tensor():tolist())
    assert.same({{3, 1}, {6, 4}}, t:tensor({"c", 1}):tolist())
    assert.same({{2}, {5}}, t:tensor("b"):tolist())
    for _, at in ipairs {0, 4, -4} do
      check(("has no column %d; they are 1 to 3"):format(at), t.column, t, at)
    end
    check("has no column 'B'", t.column, t, "B")
    check("has no column 'weigth'; did you mean 'weight'", function()
      read("weight\n1\n"):tensor {"weigth"}
    end)
    assert.equal("Table of 2 rows: a, b, c", tostring(t))
  end)
end)

describe("a table is read", function()
  it("with quotes, which contain delimiters, line ends and doubled quotes", function()
    local t = read('a,b\n"x,y","1\n2"\n"say ""no""",\n"",""""\n')
    assert.same({"x,y", 'say "no"', ""}, t:column "a")
    assert.same({"1\n2", "", '"'}, t:column "b")
  end)

  it("with every line end, and with or without a last one", function()
    for _, text in ipairs {"a,b\n1,2\n3,4\n", "a,b\r\n1,2\r\n3,4\r\n", "a,b\n1,2\n3,4",
      "a,b\r\n1,2\r\n3,4", "a,b\n\n1,2\n\n\n3,4\n", "\239\187\191a,b\n1,2\n3,4\n",
      "a,b\r\n\r\n1,2\r\n3,4\r", '"a","b"\r\n"1","2"\r\n3,4'} do
      local t = read(text)
      assert.same({"a", "b"}, t.names, ("%q"):format(text))
      assert.same({{1, 2}, {3, 4}}, t:tensor():tolist())
      assert.equal(2, t:len())
    end
  end)

  it("with each delimiter", function()
    for _, mark in ipairs {";", "\t", "|", "^", "]", "-", "%", ".", "a", " "} do
      local t = read(("x%sy\n1%s2\n"):format(mark, mark), {delimiter = mark})
      assert.same({"x", "y"}, t.names, mark)
      assert.same({{1, 2}}, t:tensor():tolist())
    end
    local t = read("  x   y \n 1\t \t2  \n3 4", {delimiter = "space"})
    assert.same({"x", "y"}, t.names)
    assert.same({{1, 2}, {3, 4}}, t:tensor():tolist())
    for _, mark in ipairs {"", ",,", '"', "\n", "\r", "spaces"} do
      check('bad argument \'delimiter\' to \'csv\' (one character or "space" is '
      .. 'needed', read, "x\n",
        {delimiter = mark})
    end
  end)

  it("after lines that are skipped, without a header, and in parts", function()
    local t = read("note\nmore\na,b\n1,2\n", {skip = 2})
    assert.same({{1, 2}}, t:tensor():tolist())
    t = read("1,2\n3,4\n", {header = false})
    assert.same({"column1", "column2"}, t.names)
    assert.equal(2, t:len())
    t = read("a,b,c\n1,2,3\n", {columns = {"c", 1}})
    assert.same({"c", "a"}, t.names)
    assert.same({{3, 1}}, t:tensor():tolist())
    check("has 2 lines, fewer than the 2 to skip", read, "a\nb", {skip = 2})
    check("has 1 line, fewer than the 1 to skip", read, "a", {skip = 1})
    assert.equal(0, read("a\nb", {skip = 1}):len())
  end)

  it("as rows of its columns, for a header alone, too", function()
    local t = read("a,b\n1,x\n2,y\n")
    local row = t:get(-1)
    assert.same({2, "y"}, {tonumber(row.a:item()), row.b})
    check("position 3 of 2 samples", t.get, t, 3)
    local none = read "a,b\n"
    assert.equal(0, none:len())
    assert.same({}, none:column "a")
    assert.same({0}, {none:column("a", moth.float32):size(1)})
  end)

  for _, row in ipairs {
    {"", "is empty"}, {"\n\n", "has no rows"},
    {"a,b\n1,2\n3\n", "line 3 has 1 field, the first row 2"},
    {"a,b\n1,2,3\n", "line 2 has 3 fields, the first row 2"},
    {"a,b\n\n\"1\n\n\",2\n3\n", "line 6 has 1 field, the first row 2"},
    {"a,a\n1,2\n", "line 1: columns 1 and 2 are both named 'a'"},
    {'a\n"x"y\n', "line 2, field 1: 'y' follows its closing quote"},
    {'a,b\n1,"x"y\n', "line 2, field 2: 'y' follows its closing quote"},
  } do
    it("not from " .. ("%q"):format(row[1]), function() check(row[2], read, row[1]) end)
  end

  it("not with fields that do not fit, whose line and column are named", function()
    local t = read("a,b\n1,2\n300,x\n\n5,1.5\n")
    check("line 3, column 1 ('a'): '300' does not fit moth.uint8", t.column, t, "a", moth.uint8)
    check("line 3, column 2 ('b'): 'x' is not a number", t.column, t, "b", moth.float32)
    check("line 3, column 2 ('b'): 'x' is not a value of moth.int64", t.column, t, "b", moth.int64)
    check("line 3, column 2 ('b'): 'x' is not a number", t.tensor, t)
    check("line 1, column 1: 'x' is not a number", function()
      read("x\n", {header = false}):column(1, moth.float32)
    end)
    check("bad argument 'dtype' to 'column' (a dtype or 'string' is needed, got 3", t.column, t,
      "a",
      3)
    check("bad argument 'columns' to 'csv' (a list of names or positions is needed, got 3", read,
      "a\n1\n", {columns = 3})
    check("bad argument 'column' to 'csv'", read, "a\n1\n", {columns = {"b"}})
  end)
end)
