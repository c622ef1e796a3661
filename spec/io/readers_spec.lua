-- The bounds of data.csv, data.idx, data.mnist, JSON lines, folders of files, WebDataset and
-- sources: empty files, one row, numbers at the ends of their types, and whole messages.

local lfs = require "lfs"
local moth = require "moth"
local files = require "spec.support.files"
local data = moth.data

setup(files.setup)
teardown(files.teardown)

local count = 0

-- Writes a file under a new name and returns its path.
local function written(text, ending)
  count = count + 1
  return files.write(("f%d%s"):format(count, ending or ""), text)
end

local function csv(text, options) return data.csv(written(text), options) end

local function refuses(f, text)
  local fine, problem = pcall(f)
  assert.is_false(fine)
  problem = tostring(problem)
  assert.is_true(problem:find(text, 1, true) ~= nil, problem .. "\ndoes not contain\n" .. text)
end

describe("data.csv", function()
  it("infers i64, a dtype of numbers, or strings, by all fields of a column", function()
    local dtypes = {[moth.int64] = "i64", [moth.float32] = "f32"}
    local function kind(...)
      local column = csv("a\n" .. table.concat({...}, "\n") .. "\n",
        {missing = {"NA"}}):column(1)
      return type(column) == "table" and not moth.is_tensor(column) and "string"
        or dtypes[column.dtype]
    end
    for _, case in ipairs {
      {"i64", "1", "2"}, {"i64", " +1 ", "-2"}, {"f32", "1", "2.5"}, {"f32", "2.5", "1"},
      {"f32", "1", "NA"}, {"f32", "NA", "1"}, {"string", "NA", "NA"}, {"string", "1", "x"},
      {"string", "x", "1"}, {"string", "1.5", "x"}, {"f32", "nan", "1"}, {"f32", "inf", "-inf"},
      {"f32", "Infinity", "-INFINITY"}, {"f32", "+nan", "-nan"}, {"f32", ".5", "+.5e-3"},
      {"string", "0x10", "1"}, {"string", "1e", "1"}, {"string", "--1", "1"},
      {"i64", "9223372036854775807", "-9223372036854775808"},
      {"f32", "9223372036854775808", "1"}, {"f32", "-9223372036854775809", "1"},
      {"f32", "99999999999999999999", "1"},
    } do
      assert.equal(case[1], kind(unpack(case, 2)), table.concat(case, " "))
    end
  end)

  it("keeps each int64 exactly", function()
    local texts = {"0", "-1", "9007199254740991", "9007199254740992", "9007199254740993",
                   "-9007199254740993", "9223372036854775807", "-9223372036854775808",
                   "0009223372036854775807", "+9223372036854775806"}
    local wanted = {0, -1, 9007199254740991LL, 9007199254740992LL, 9007199254740993LL,
                    -9007199254740993LL, 9223372036854775807LL, -9223372036854775807LL - 1LL,
                    9223372036854775807LL, 9223372036854775806LL}
    local column = csv("a\n" .. table.concat(texts, "\n")):column("a")
    assert.equal(moth.int64, column.dtype)
    for i, value in ipairs(wanted) do assert.is_true(column[i]:item() == value, texts[i]) end
  end)

  it("reads NaN and infinite numbers by their names", function()
    local x = csv "a\ninf\n-Inf\n+INF\nnan\nInfinity\n-infinity\nNA\nnull\nN/A\n\"\"\n1\n":column(1)
    local inf = math.huge
    local values = x:tolist()
    assert.same({inf, -inf, inf}, {unpack(values, 1, 3)})
    assert.same({inf, -inf}, {unpack(values, 5, 6)})
    assert.same({false, false, false, true, false, false, true, true, true, true, false},
      x:isnan():tolist())
  end)

  it("names columns from both ends, and the ends of the positions", function()
    local t = csv "a,b,c\n1,2,3\n"
    assert.same({1}, t:column(-3):tolist())
    assert.same({3}, t:column(-1):tolist())
    for _, k in ipairs {0, 4, -4} do
      refuses(function() t:column(k) end, ("has no column %d; they are 1 to 3)"):format(k))
    end
    refuses(function() t:column "aa" end, "bad argument 'column' to 'column' (")
    refuses(function() t:column "aa" end, "has no column 'aa'")
    refuses(function() t:tensor {"x"} end, "bad argument 'column' to 'tensor' (")
    refuses(function() t:column(1, "f32") end, "a dtype or 'string' is needed")
    assert.same({"1"}, t:column("a", "string"))
    assert.same({{2}}, t:tensor("b"):tolist())
    assert.same({{1, 2, 3}}, t:tensor():tolist())
    assert.equal(moth.float32, t:tensor().dtype)
    assert.equal(moth.float64, csv("a\n1\n", {dtype = moth.float64}):tensor().dtype)
  end)

  it("has one row, or only a header", function()
    local t = csv "a,b\n"
    assert.equal(0, t:len())
    assert.same({}, t:column(1))
    assert.same({0}, {unpack(t:column(1, moth.int64).shape)})
    assert.equal("Table of 0 rows: a, b", tostring(t))
    t = csv("1,x", {header = false})
    assert.equal(1, t:len())
    assert.same({1}, t:column(1):tolist())
    assert.same({"x"}, t:column "column2")
  end)

  it("ends rows at LF, CRLF, a last CR and the end of the file", function()
    for _, text in ipairs {"a,b\n1,2", "a,b\r\n1,2\r\n", "a,b\n1,2\r", "a,b\n\n\r\n1,2\n\n",
                           '"a","b"\r\n"1","2"\r\n', '"a","b"\n"1","2"\r',
                           "\239\187\191a,b\n1,2"} do
      local t = csv(text)
      assert.equal(1, t:len())
      assert.same({"a", "b"}, t.names)
      assert.same({{1, 2}}, t:tensor():tolist())
    end
  end)

  it("counts lines that are skipped, empty or inside quotes", function()
    for _, case in ipairs {
      {"a\n1\n2,3\n", {}, "line 3 has 2 fields, the first row 1"},
      {"x\ny\na\n1\n2,3\n", {skip = 2}, "line 5 has 2 fields, the first row 1"},
      {"a\n\n1\r\n\r\n2,3\n", {}, "line 5 has 2 fields, the first row 1"},
      {'a\n"1\n\n"\n2,3\n', {}, "line 5 has 2 fields, the first row 1"},
      {"a,b,c\n1\n", {}, "line 2 has 1 field, the first row 3"},
      {'a\n"1"2\n', {}, "line 2, field 1: '2' follows its closing quote"},
      {'a,b\n1,"1"\r2\n', {}, "line 2, field 2: '\\x0d' follows its closing quote"},
      {'a\n"1\n', {}, "line 2: a quoted field does not end"},
      {"x\n", {skip = 2}, "has 2 lines, fewer than the 2 to skip"},
      {"", {}, "is empty"}, {"\n\n\r\n", {}, "has no rows"},
      {"a,a\n1,2\n", {}, "line 1: columns 1 and 2 are both named 'a'"},
    } do
      refuses(function() csv(case[1], case[2]) end, case[3])
    end
  end)

  it("takes each character as a delimiter except quotes and line ends", function()
    for _, delimiter in ipairs {";", "\t", "|", "]", "^", "-", "%", " ", ":", ".", "[", "a"} do
      assert.same({{1, 2}, {3, 4}}, csv(("1%s2\n3%s4\n"):format(delimiter, delimiter),
        {header = false, delimiter = delimiter}):tensor():tolist(), delimiter)
    end
    for _, delimiter in ipairs {"", ",,", '"', "\n", "\r"} do
      refuses(function() csv("1\n", {delimiter = delimiter}) end,
        "bad argument 'delimiter' to 'csv' (one character or \"space\" is needed")
    end
    assert.same({{1, 2}, {3, 4}}, csv(" 1 \t 2\t\r\n\t3  4 ",
      {header = false, delimiter = "space"}):tensor():tolist())
  end)

  it("reads chosen columns, in their order, with their dtypes", function()
    local text = "a,b,c\n1,2,x\n3,4,y\n"
    local t = csv(text, {columns = {-1, "a"}})
    assert.same({"c", "a"}, t.names)
    assert.same({1, 3}, t:column(2):tolist())
    refuses(function() csv(text, {columns = "a"}) end,
      "bad argument 'columns' to 'csv' (a list of names or positions is needed, got")
    refuses(function() csv(text, {columns = {"d"}}) end, "bad argument 'column' to 'csv' (")
    t = csv(text, {dtypes = {a = moth.float64, [2] = "string"}})
    assert.equal(moth.float64, t:column(1).dtype)
    assert.same({"2", "4"}, t:column "b")
    assert.same({a = 3, b = "4", c = "y"}, {a = t:get(-1).a:item(), b = t:get(2).b, c = t:get(2).c})
  end)

  it("names the first field that does not fit a dtype", function()
    local t = csv "a,b\n1,1\n300,2.5\n-400,x\n"
    refuses(function() t:column("a", moth.uint8) end,
      "line 3, column 1 ('a'): '300' does not fit moth.uint8")
    refuses(function() t:column("b", moth.int64) end,
      "line 3, column 2 ('b'): '2.5' is not a value of moth.int64")
    refuses(function() t:column("b", moth.float64) end,
      "line 4, column 2 ('b'): 'x' is not a number")
    refuses(function() csv("1,x\n", {header = false}):tensor() end,
      "line 1, column 2: 'x' is not a number")
  end)
end)

-- An IDX file.
local function idx(kind, sizes, elements)
  local parts = {"\0\0", string.char(kind, #sizes)}
  for _, size in ipairs(sizes) do
    parts[#parts + 1] = string.char(math.floor(size / 2 ^ 24) % 256,
      math.floor(size / 2 ^ 16) % 256, math.floor(size / 256) % 256, size % 256)
  end
  return written(table.concat(parts) .. elements)
end

describe("data.idx", function()
  it("reads each type, from its most significant byte on", function()
    for _, case in ipairs {
      {0x08, "uint8", "\1\255", {1, 255}}, {0x09, "int8", "\1\255", {1, -1}},
      {0x0B, "int16", "\1\2\255\254", {258, -2}},
      {0x0C, "int32", "\1\2\3\4\255\255\255\254", {16909060, -2}},
      {0x0D, "float32", "\63\192\0\0\192\0\0\0", {1.5, -2}},
      {0x0E, "float64", "\63\248\0\0\0\0\0\0\192\0\0\0\0\0\0\0", {1.5, -2}},
    } do
      local x = data.idx(idx(case[1], {2}, case[3]))
      assert.equal(moth[case[2]], x.dtype)
      assert.same(case[4], x:tolist())
    end
  end)

  it("reads sizes of two bytes, 1 to 8 dimensions, and size 0", function()
    assert.same({258}, {unpack(data.idx(idx(8, {258}, ("x"):rep(258))).shape)})
    assert.same({65537}, {unpack(data.idx(idx(8, {65537}, ("x"):rep(65537))).shape)})
    assert.equal(8, data.idx(idx(8, {1, 1, 1, 1, 1, 1, 1, 1}, "x")):dim())
    assert.same({2, 0, 3}, {unpack(data.idx(idx(8, {2, 0, 3}, "")).shape)})
    for _, sizes in ipairs {{}, {1, 1, 1, 1, 1, 1, 1, 1, 1}} do
      refuses(function() data.idx(idx(8, sizes, "x")) end,
        ("has %d dimensions; 1 to 8 are possible"):format(#sizes))
    end
  end)

  it("says what is wrong with a header", function()
    for _, case in ipairs {
      {written "\0\0\8", "is too short for an IDX file"},
      {written "\1\0\8\1\0\0\0\1x", "it begins with the bytes 1, 0 instead of 0, 0"},
      {written "\0\2\8\1\0\0\0\1x", "it begins with the bytes 0, 2 instead of 0, 0"},
      {written "\0\0\10\1\0\0\0\1x", "has elements of the unknown type 0x0A"},
      {written "\0\0\8\2\0\0\0\1\0\0\0", "ends within its sizes"},
      {idx(8, {2 ^ 20, 2 ^ 17}, ""), "claims the shape (1048576, 131072), more than 64 GiB"},
    } do
      refuses(function() data.idx(case[1]) end, case[2])
    end
    refuses(function() data.idx(idx(8, {2 ^ 20, 2 ^ 16}, "")) end, "elements")
  end)

  it("mnist has images of bytes and as many labels, which become classes from 1", function()
    local function set(images, labels)
      count = count + 1
      local name = "mnist" .. count
      assert(lfs.mkdir(files.path(name)))
      for _, part in ipairs {"train", "t10k"} do
        for ending, path in pairs {["-images-idx3-ubyte"] = images,
                                   ["-labels-idx1-ubyte"] = labels} do
          files.write(name .. "/" .. part .. ending, files.read(path))
        end
      end
      return files.path(name)
    end
    local images, labels = idx(8, {2, 1, 2}, "\0\1\2\255"), idx(8, {2}, "\0\9")
    local read = data.mnist(set(images, labels))
    assert.same({{{0, 1}}, {{2, 255}}}, read.test_images:tolist())
    assert.same({1, 10}, read.train_labels:tolist())
    assert.equal(moth.int64, read.test_labels.dtype)
    for _, case in ipairs {
      {idx(8, {2, 2}, "\0\1\2\3"), labels, "holds u8 (2, 2), not u8 images"},
      {idx(9, {2, 1, 1}, "\0\1"), labels, "holds i8 (2, 1, 1), not u8 images"},
      {idx(9, {2, 1, 1}, "\0\1"), idx(9, {2}, "\0\1"), "holds i8 (2, 1, 1), not u8 images"},
      {images, idx(8, {2, 1}, "\0\1"), "holds u8 (2, 1), not one label per image"},
      {images, idx(8, {3}, "\0\1\2"), "has 3 labels for 2 images"},
    } do
      refuses(function() data.mnist(set(case[1], case[2])) end, case[3])
    end
  end)
end)

describe("files of JSON lines", function()
  it("are read from both ends; blanks are no lines", function()
    local set = data.JSONLines(written "1\n  \n\t\r\n2\n\n3")
    assert.equal(3, set:len())
    assert.same({1, 2, 3}, {set:get(1), set:get(2), set:get(-1)})
    for _, i in ipairs {0, 4, -4} do
      refuses(function() set:get(i) end, ("position %d of 3 samples"):format(i))
    end
  end)

  it("have 256, 257 and 1001 lines", function()
    for _, n in ipairs {1, 255, 256, 257, 999, 1000, 1001, 2000} do
      local rows = {}
      for i = 1, n do rows[i] = i end
      local path = files.path "n.jsonl"
      assert.equal(n, data.write_json_lines(rows, path))
      assert.equal(table.concat(rows, "\n") .. "\n", files.read(path))
      local set = data.JSONLines(path)
      assert.equal(n, set:len())
      for i = 1, n do assert.equal(i, set:get(i)) end
    end
  end)

  it("name the line of a fault, and the row that cannot be written", function()
    refuses(function() data.JSONLines(written "{\n1"):get(1) end, "line 1: ")
    refuses(function() data.JSONLines(written "1\n\n\n]\n"):get(2) end, "line 4: ")
    refuses(function() data.write_json_lines({1, 2, print}, files.path "x") end,
      "bad argument 'rows' to 'write_json_lines' (row 3: a function cannot be written as JSON")
  end)
end)

describe("folders of files", function()
  local function folder(names, contents)
    count = count + 1
    local root = "folder" .. count
    assert(lfs.mkdir(files.path(root)))
    for _, name in ipairs(names) do assert(lfs.mkdir(files.path(root .. "/" .. name))) end
    for _, name in ipairs(contents or {}) do files.write(root .. "/" .. name, "x") end
    return files.path(root)
  end

  local function texts(root, options)
    options = options or {extensions = {".txt"}}
    options[1], options[2] = root, function(path) return path:match "[^/]*$" end
    return data.DatasetFolder(options)
  end

  it("name at most 10 classes without files", function()
    local names = {}
    for i = 1, 11 do
      names[i] = ("c%02d"):format(i)
      local list = table.concat(names, ", ", 1, math.min(i, 10))
      refuses(function() texts(folder(names)) end, ("there is no file for the class%s %s%s that "
        .. "ends in .txt; allow_empty = true permits it"):format(i == 1 and "" or "es", list,
        i > 10 and ", ..." or ""))
    end
    local set = texts(folder(names), {extensions = {".txt"}, allow_empty = true})
    assert.equal(0, set:len())
    assert.equal(11, #set.classes)
    refuses(function() texts(folder {"a"}, {is_valid_file = function() return true end}) end,
      "there is no file for the class a; allow_empty = true permits it")
  end)

  it("take one ending or several, in any case, also of two parts", function()
    local root = folder({"a"}, {"a/1.txt", "a/2.TXT", "a/3.tar.gz", "a/4.gz", "a/txt", "a/.txt",
                                "a/5.txt.bak"})
    local function names(extensions)
      local list = {}
      local set = texts(root, {extensions = extensions})
      for i = 1, set:len() do list[i] = (set:get(i)) end
      return list
    end
    assert.same({".txt", "1.txt", "2.TXT"}, names ".txt")
    assert.same({"3.tar.gz"}, names {".tar.GZ"})
    assert.same({"3.tar.gz", "4.gz"}, names {".gz"})
    assert.same({".txt", "1.txt", "2.TXT", "4.gz", "3.tar.gz"}, (function()
      local list = names {".gz", ".txt"}
      table.sort(list, function(a, b)
        local x, y = a:match "[^.]*$":lower(), b:match "[^.]*$":lower()
        if x ~= y then return x > y end
        return #a < #b or #a == #b and a < b
      end)
      return list
    end)())
  end)

  it("need either endings or a function", function()
    local root = folder({"a"}, {"a/1.txt"})
    refuses(function() texts(root, {}) end,
      "either extensions or is_valid_file is needed, got neither")
    refuses(function()
      texts(root, {extensions = {".txt"}, is_valid_file = function() return true end})
    end, "either extensions or is_valid_file is needed, got both")
    for _, name in ipairs {"transform", "target_transform"} do
      refuses(function() texts(root, {extensions = {".txt"}, [name] = 3}) end,
        ("bad argument '%s' to 'DatasetFolder' (a function is needed, got 3)"):format(name))
    end
    refuses(function() texts(root, {is_valid_file = 3}) end,
      "bad argument 'is_valid_file' to 'DatasetFolder' (a function is needed, got 3)")
  end)

  it("are listed the same with slashes at the end; classes are int64s", function()
    local root = folder({"a", "b"}, {"a/1.txt", "b/2.txt"})
    for _, ending in ipairs {"", "/", "//"} do
      local set = texts(root .. ending)
      assert.equal(root .. "/b/2.txt", set.samples[2][1])
      local name, label = set:get(-1)
      assert.equal("2.txt", name)
      assert.equal("2LL", tostring(label))
      refuses(function() set:get(3) end, "position 3 of 2 samples")
    end
    local _, label = texts(root, {extensions = ".txt",
      target_transform = function(k) return k * 2 end}):get(2)
    assert.equal(4, label)
  end)

  it("are read to a depth of 40 folders", function()
    local path, names = "", {}
    for i = 1, 41 do
      path = path .. (i > 1 and "/" or "") .. "d"
      names[i] = path
    end
    local deepest = folder({unpack(names, 1, 40)}, {names[40] .. "/1.txt"})
    assert.equal(1, texts(deepest):len())
    refuses(function() texts(folder(names, {names[41] .. "/1.txt"})) end,
      "is 40 folders deep; a link may lead back to a folder above it")
  end)
end)

describe("a source", function()
  it("calls a function or a field of a module, with its arguments last", function()
    assert.equal("  a", data.source("string:format", "a")("%3s"))
    assert.equal(3, data.source("math:max", 1, 3)(2))
    assert.equal("string:format", tostring(data.source("string:format")))
    assert.equal("moth", tostring(data.source("moth")))
    assert.is_true(moth.nn.isinstance(data.source("moth:nn.Linear", 2, 3)(), moth.nn.Linear))
    local seen = {data.source("string:rep", nil, nil)("x", 2)}
    assert.same({"xx"}, seen)
  end)

  it("says what it cannot find", function()
    refuses(function() data.source("no_such_module_x")() end,
      "source: there is no module 'no_such_module_x' on package.path")
    refuses(function() data.source("string:nothing")() end,
      "source: string:nothing is nil, not a function or a class")
    refuses(function() data.source("string")() end, "source: string is ")
    refuses(function() data.source("string")() end, "; name its field: \"string:Name\"")
    refuses(function() data.source("math:pi.x")() end, "'math' has no field 'x', it is 3.14")
    refuses(function() data.source("")() end,
      "bad argument 'module' to 'source' (a module's name is")
  end)
end)

describe("data.WebDataset", function()
  it("refuses arguments at their ends", function()
    local path = files.path "a.tar"
    local writer = data.TarWriter(path)
    writer:write {__key__ = "1", cls = "3"}
    writer:close()
    local two = {path, path}
    for _, case in ipairs {
      {{path, shuffle = -1}, "'shuffle' to 'WebDataset' (a number from 0 on is needed, got -1)"},
      {{two, shard = {2, 2}}, "{rank, count} with rank from 0 to count - 1 is needed"},
      {{two, shard = {-1, 2}}, "{rank, count} with rank from 0 to count - 1 is needed"},
      {{two, shard = {0, 0}}, "{rank, count} with rank from 0 to count - 1 is needed"},
      {{two, shard = {0.5, 2}}, "{rank, count} with rank from 0 to count - 1 is needed"},
      {{two, shard = {0, 1.5}}, "{rank, count} with rank from 0 to count - 1 is needed"},
      {{two, shard = {0}}, "{rank, count} with rank from 0 to count - 1 is needed"},
      {{two, shard = 3}, "{rank, count} with rank from 0 to count - 1 is needed"},
      {{two, shard = {0, 3}}, "2 archives cannot be shared out to 3 processes; shard = {0, 1}"},
      {{path, map = 3}, "'map' to 'WebDataset' (a function or a data.source is needed, got 3)"},
      {{path, decode = 3}, "'decode' to 'WebDataset' (a bool or a table of functions is needed"},
      {{path, to_tuple = "cls"}, "'to_tuple' to 'WebDataset' (a list of endings is needed"},
      {{urls = {}}, "'urls' to 'WebDataset' (a path, or a list of paths, is needed"},
      {{{3, 3}}, "'urls' to 'WebDataset' (paths are needed, got {3, 3}"},
      {{"s3://x.tar"}, "only files are read, got 's3://x.tar'"},
      {{"{0..1000000}.tar"}, "{0..1000000} makes more than 1000000 paths"},
    } do
      refuses(function() data.WebDataset(case[1]) end, case[2])
    end
    assert.equal("WebDataset of 2 archives", tostring(data.WebDataset {two, shard = {1, 2}}))
    local function first(options)
      return data.WebDataset(options):iter()()
    end
    assert.equal("3", first {two, shard = {1, 2}}.cls)
    assert.equal("1", first {path}.__key__)
    assert.equal(path, first {path}.__url__)
    assert.equal("4LL", tostring(first {path, decode = true}.cls))
    assert.equal("3", first {path, to_tuple = {"x;cls"}})
    assert.equal("33", first {path, map = function(sample) return sample.cls .. sample.cls end})
    assert.equal("3x", first {path, to_tuple = {"cls"}, map = function(c) return c .. "x" end})
    assert.equal(1, first {path, decode = {cls = function(bytes) return #bytes end}}.cls)
    refuses(function() first {path, to_tuple = {"png;jpg"}} end,
      "sample '1' has no file .'png;jpg'")
  end)

  it("expands numbers with zeros, alternatives, and several pairs of braces", function()
    local expand = require("moth.data.webdataset").expand
    assert.same({"a"}, expand "a")
    assert.same({"0", "1"}, expand "{0..1}")
    assert.same({"08", "09", "10"}, expand "{08..10}")
    assert.same({"8", "9", "10"}, expand "{8..10}")
    assert.same({"x"}, expand "{x}")
    assert.same({"a-1", "a-2", "-1", "-2"}, expand "{a,}-{1..2}")
    assert.same({"5"}, expand "{5..5}")
    assert.same({"a", "b0", "b1"}, expand {"a", "b{0,1}"})
  end)
end)
