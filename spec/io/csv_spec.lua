-- data.csv: the forms of a table of text, the types of its columns, and errors that name the place.

local moth = require "moth"
local data = moth.data

local path

local function write(text)
  path = os.tmpname()
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  return path
end

local function read(text, options)
  return data.csv(write(text), options)
end

local function columns(t)
  local list = {}
  for i, name in ipairs(t.names) do
    local column = t:column(name)
    list[i] = moth.is_tensor(column) and column:tolist() or column
  end
  return list
end

describe("data.csv", function()
  after_each(function()
    if path then os.remove(path) end
    path = nil
  end)

  it("has columns of any length, and fields", function()
    local t = read("s,n\n" .. ("ann,1\n"):rep(20000))
    assert.equal(20000, #t:column("s"))
    assert.equal("ann", t:get(20000).s)
    local digits = ("1"):rep(2e5)
    assert.same({digits .. "x"}, read("a\n" .. digits .. "x\n"):column(1)) -- a second, or an hour
    assert.same({"1-2", "1e5+3"}, read("a\n1-2\n1e5+3\n"):column(1))
  end)

  it("makes i64, f32 or lists of strings of columns, by their contents", function()
    local t = read "id,size,name\n1,2.5,ann\n-2,1e3,bob\n"
    assert.same({"id", "size", "name"}, t.names)
    assert.equal(2, t:len())
    assert.equal(moth.int64, t:column("id").dtype)
    assert.equal(moth.float32, t:column("size").dtype)
    assert.same({{1, -2}, {2.5, 1000}, {"ann", "bob"}}, columns(t))
    assert.equal(moth.float64, read("a\n1.5\n", {dtype = moth.float64}):column(1).dtype)
    assert.equal("Table of 2 rows: id, size, name", tostring(t))
  end)

  it("reads quotes, line ends in them, CRLF, a byte order mark, empty lines", function()
    local t = read '\239\187\191a,"b ""c"""\r\n"1,5","x\r\ny"\r\n\r\n"",z'
    assert.same({"a", 'b "c"'}, t.names)
    assert.same({{"1,5", ""}, {"x\r\ny", "z"}}, columns(t))
    assert.same({{1, 2}}, columns(read "a\n1\n2"))
    assert.same({{1}, {""}}, columns(read "a,b\n1,\n"))
  end)

  it("accepts other delimiters, runs of blanks, lines to skip, no header", function()
    assert.same({{1}, {2}}, columns(read("a;b\n1;2\n", {delimiter = ";"})))
    assert.same({{1}, {2}}, columns(read("a]b\n1]2\n", {delimiter = "]"})))
    assert.same({{1, 3}, {2, 4}}, columns(read("  1  2 \n3\t4\n",
      {delimiter = "space", header = false})))
    local t = read("made, by, someone\n1,2\n3,4\n", {header = false, skip = 1})
    assert.same({"column1", "column2"}, t.names)
    assert.same({{1, 3}, {2, 4}}, columns(t))
  end)

  it("returns a matrix of columns, by name and position", function()
    local t = read "a,b,c\n1,2.5,x\n3,4.5,y\n"
    assert.same({{2.5, 1}, {4.5, 3}}, t:tensor({"b", 1}):tolist())
    assert.equal(moth.float64, t:tensor({1, 2}, moth.float64).dtype)
    assert.same({{"x", "y"}, {1, 3}}, columns(read("a,b,c\n1,2.5,x\n3,4.5,y\n",
      {columns = {"c", "a"}})))
  end)

  it("reads missing numbers as NaN, keeps 64 bits, and uses given dtypes", function()
    local t = read("a,b,c\n1,9007199254740993,7\nNA,-9223372036854775807,8\n",
      {dtypes = {c = "string"}})
    assert.equal(moth.float32, t:column("a").dtype)
    assert.is_true(t:column("a"):isnan():tolist()[2])
    assert.equal(9007199254740993LL, t:column("b")[1]:item())
    assert.equal("-9223372036854775807LL", tostring(t:column("b")[2]:item()))
    assert.same({"7", "8"}, t:column("c"))
    assert.same({1, 2}, read("a\n1\n2\n", {dtypes = {moth.float64}}):column(1):tolist())
    assert.is_true(read("a\n-\n1\n", {missing = {"-"}}):column(1):isnan():tolist()[1])
  end)

  it("is a dataset of its rows", function()
    local t = read "x,y,name\n1.5,1,a\n2.5,2,b\n"
    assert.equal(2.5, t:get(2).x:item())
    local batch = data.DataLoader {t, batch_size = 2}:iter()()
    assert.same({1.5, 2.5}, batch.x:tolist())
    assert.same({"a", "b"}, batch.name)
  end)

  it("reads gzip files", function()
    write "a,b\n1,2\n"
    assert.equal(0, os.execute("gzip -f " .. path))
    path = path .. ".gz"
    assert.same({{1}, {2}}, columns(data.csv(path)))
  end)

  it("names the file, line and column of a mistake", function()
    local function fails(text, options, wanted)
      assert.has_error_like(function() read(text, options):tensor() end,
        wanted)
      os.remove(path)
    end
    fails("a,b\n1,2\n3\n", nil, ": line 3 has 1 field, the first row 2")
    fails('a,b\n"1\n",2\n3,4,5\n', nil, ": line 4 has 3 fields, the first row 2")
    fails('a,b\n1,"2\n', nil, ": line 2: a quoted field does not end")
    fails('a\n"1"x\n', nil, ": line 2, field 1: 'x' follows its closing quote")
    fails("a,b\n1,2\n3,4x\n", nil, ": line 3, column 2 %('b'%): '4x' is not a number")
    fails("1,2\n3,0x10\n", {header = false}, ": line 2, column 2: '0x10' is not a number")
    fails("a,a\n1,2\n", nil, "columns 1 and 2 are both named 'a'")
    fails("\n\n", nil, "has no rows")
    fails("", nil, "is empty")
    fails("a\n", {skip = 3}, "has 2 lines, fewer than the 3 to skip")
    fails("a\n1\n", {columns = {"b"}}, "has no column 'b'")
    fails("a\n1\n", {delimiter = ",,"}, "one character or \"space\" is needed")
    assert.has_error_like(function() data.csv "no/such.csv" end, "cannot open .no/such.csv.: ")
    assert.has_error_like(function() read("a\n1.5\n"):column(1, moth.int64) end,
      "line 2, column 1 %('a'%): '1.5' is not a value of moth.int64")
    fails("a,b\n1,2\n3,1e60\n", nil, "': line 3, column 2 %('b'%): '1e60' does not fit")
    local t = read "a\n255\n300\n"
    assert.same({255, 300}, t:column(1, moth.int16):tolist())
    assert.has_error_like(function() t:column(1, moth.uint8) end,
      "line 3, column 1 %('a'%): '300' does not fit moth.uint8")
  end)
end)
