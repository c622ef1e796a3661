-- Cases: pickles and archives byte by byte: each instruction of a pickle, each builder with wrong
-- arguments, the 64-bit records of archives.

local moth = require "moth"
local files = require "spec.support.files"

setup(files.setup)
teardown(files.teardown)

local pth = files.pth
local function le(n, width) return files.le8(n):sub(1, width) end
local function word(text) return "X" .. le(#text, 4) .. text end
local function load(bytes) return moth.load(files.write("case.pth", bytes)) end

local function refused(bytes, text)
  local ok, message = pcall(load, bytes)
  assert.is_false(ok, "was read")
  assert.matches("bad argument 'path' to 'load'", message, 1, true)
  assert.matches(text, message, 1, true)
end

local zeros = ("\0"):rep(6)

describe("an instruction of a pickle", function()
  -- name, bytes, value
  local ROWS = {
    {"K", "K\255.", 255}, {"M", "M\1\2.", 513}, {"J", "J\255\255\255\255.", -1},
      {"J, the least", "J\0\0\0\128.", -2 ^ 31},
    {"J, the largest", "J\255\255\255\127.", 2 ^ 31 - 1}, {"LONG1 of no bytes", "\138\0.", 0},
      {"LONG1", "\138\1\255.", -1},
    {"LONG1 of two bytes", "\138\2\255\127.", 32767},
      {"LONG1, exact", "\138\7\255\255\255\255\255\255\31.", 2 ^ 53 - 1},
    {"LONG1, an int64", "\138\7" .. zeros .. "\32.", 2LL ^ 53},
      {"LONG1, negative", "\138\7" .. zeros .. "\224.", -(2LL ^ 53)},
    {"LONG1, the least", "\138\8\0" .. zeros .. "\128.", -9223372036854775807LL - 1LL},
      {"LONG4", "\139\1\0\0\0\5.", 5},
    {"G", "G\63\248\0" .. zeros:sub(2) .. ".", 1.5}, {"G, negative", "G\192\4" .. zeros .. ".",
      -2.5},
    {"G, infinite", "G\255\240" .. zeros .. ".", -math.huge}, {"true", "\136.", true},
      {"false", "\137.", false},
    {"X", "X\3\0\0\0abc.", "abc"}, {"SHORT_BINUNICODE", "\140\3abc.", "abc"},
      {"BINUNICODE8", "\141\3\0" .. zeros .. "abc.", "abc"},
    {"U", "U\3abc.", "abc"}, {"T", "T\3\0\0\0abc.", "abc"}, {"B", "B\3\0\0\0abc.", "abc"},
      {"C", "C\3abc.", "abc"},
    {"POP", "K\1K\0020.", 1}, {"LIST", "(K\1K\2l.", {1, 2}}, {"TUPLE", "(K\1K\2K\3t.", {1, 2, 3}},
      {"EMPTY_TUPLE", ").", {}},
    {"TUPLE1", "K\7\133.", {7}}, {"TUPLE2", "K\7K\8\134.", {7, 8}},
      {"TUPLE3", "K\7K\8K\9\135.", {7, 8, 9}},
    {"APPEND", "]K\1aK\2a.", {1, 2}}, {"APPENDS", "](K\1K\2e.", {1, 2}},
      {"SETITEM", "}" .. word "a" .. "K\1s.", {a = 1}},
    {"SETITEMS", "}(" .. word "a" .. "K\1" .. word "b" .. "K\2u.", {a = 1, b = 2}},
      {"None as a value", "}" .. word "a" .. "Ns.", {}},
    {"BINPUT and BINGET", "]q\5K\1a0h\5.", {1}},
      {"LONG_BINPUT and LONG_BINGET", "]r\0\1\0\0K\1a0j\0\1\0\0.", {1}},
    {"MEMOIZE", "]\148}\148K\1K\2s00h\0.", {}},
      {"MEMOIZE, the second", "]\148}\148" .. word "a" .. "K\2s00h\1.", {a = 2}},
    {"STACK_GLOBAL", word "torch" .. word "Size" .. "\147K\2K\3\134\133R.", {2, 3}},
    {"GLOBAL", "ctorch\nSize\nK\2K\3\134\133R.", {2, 3}},
      {"NEWOBJ", "ctorch\nSize\nK\2K\3\134\133\129.", {2, 3}},
    {"FRAME", "\149\3\0" .. zeros .. "K\4.", 4},
    {"an OrderedDict of pairs",
      "ccollections\nOrderedDict\n](" .. word "a" .. "K\1\134" .. word "b" .. "K\2\134e\133R.",
      {a = 1, b = 2}},
    {"a Counter", "ccollections\nCounter\n}(K\5K\1K\3K\2u\133R.", {3, 3, 5}},
    {"a Counter of texts", "ccollections\nCounter\n}" .. word "a" .. "K\2s\133R.", {a = 2}},
    {"a complex number", "c__builtin__\ncomplex\nK\1K\2\134R.", {1, 2}},
    {"bytes", "c_codecs\nencode\n" .. word "a\195\191\194\128" .. word "latin1" .. "\134R.",
      "a\255\128"},
    {"a path", "cpathlib\nPosixPath\n" .. word "/" .. word "a" .. word "b" .. "\135R.", "/a/b"},
    {"a device", "ctorch\ndevice\n" .. word "cuda" .. "K\1\134R.", "cuda:1"},
    {"BUILD of a number", "K\5}" .. word "a" .. "K\1sb.", 5},
    {"BUILD of a text", word "x" .. "}" .. word "a" .. "K\1sb.", "x"},
    {"BUILD by a number", "ccollections\nOrderedDict\n)RK\1b.", {}},
    {"BUILD by None", "ccollections\nOrderedDict\n)RNb.", {}},
    {"BUILD by a text", "}" .. word "a" .. "K\1s" .. word "b" .. "b.", {a = 1}},
    {"a device without an index", "ctorch\ndevice\n" .. word "cpu" .. "\133R.", "cpu"},
  }
  for _, row in ipairs(ROWS) do
    it("has its value: " .. row[1], function() assert.same(row[3], load(pth(row[2]))) end)
  end

  it("has NaN", function()
    local x = load(pth("G\127\248\0" .. zeros:sub(2) .. "."))
    assert.is_true(x ~= x)
  end)

  it("has integers of any size as a text", function()
    local numbers = {["18446744073709551616"] = ("\0"):rep(8) .. "\1",
      ["-18446744073709551616"] = ("\0"):rep(8) .. "\255",
      ["9223372036854775808"] = ("\0"):rep(7) .. "\128\0",
        ["-1208925819614629174706176"] = ("\0"):rep(10) .. "\255",
      ["4722366482869645213696"] = ("\0"):rep(9) .. "\0\1" and ("\0"):rep(9) .. "\1"}
    for text, bytes in pairs(numbers) do
      local value = load(pth("\138" .. string.char(#bytes) .. bytes .. "."))
      assert.matches("an integer of more than 64 bits, " .. text .. ">", tostring(value), 1, true)
      assert.has_error(function() return value + 1 end)
      assert.has_error(function() return value.x end)
    end
  end)
end)

describe("a pickle is refused if", function()
  local size = "K\2\133"
  local function tensor(class, id, rest)
    return "ctorch._utils\n_rebuild_tensor_v2\n((" .. word "storage" .. "ctorch\n" .. class .. "\n"
      .. id .. "tQ" .. rest
      .. "\137ccollections\nOrderedDict\n)RtR."
  end
  local id = word "0" .. word "cpu" .. "K\2"
  -- name, bytes, the text of the message
  local ROWS = {
    {"it pops nothing", "0.", "takes too much"}, {"a tuple takes too much", "K\1\134.",
      "takes too much"},
    {"a text is too long", "X\9\0\0\0abc.", "ends too early"},
      {"a line does not end", "ctorch", "ends too early"},
    {"an OrderedDict has no pairs", "ccollections\nOrderedDict\n]K\1a\133R.",
      "an OrderedDict of something else than pairs"},
    {"an OrderedDict has triples", "ccollections\nOrderedDict\n]K\1K\2K\3\135a\133R.",
      "an OrderedDict of something else than pairs"},
    {"a Counter counts by texts", "ccollections\nCounter\n}K\1" .. word "a" .. "s\133R.",
      "a collections.Counter of something else"},
    {"a Counter counts to millions", "ccollections\nCounter\n}K\1J\255\255\255\127s\133R.",
      "a collections.Counter of very many"},
    {"a complex number has texts", "c__builtin__\ncomplex\nK\1" .. word "a" .. "\134R.",
      "a complex number of something else than numbers"},
    {"a complex number begins with a text", "c__builtin__\ncomplex\n" .. word "a" .. "K\1\134R.",
      "a complex number of something else"},
    {"bytes have another encoding", "c_codecs\nencode\n" .. word "a" .. word "utf8" .. "\134R.",
      "bytes in an unknown way"},
    {"bytes are above 255", "c_codecs\nencode\n" .. word "\196\128" .. word "latin1" .. "\134R.",
      "bytes in an unknown way"},
    {"a path has numbers", "cpathlib\nPosixPath\n" .. word "a" .. "K\1\134R.",
      "a path of something else than texts"},
    {"a device has no name", "ctorch\ndevice\nK\1\133R.", "a device without a name"},
    {"a dtype of NumPy has no name", "cnumpy\ndtype\nK\1\133R.", "a dtype of NumPy without a name"},
    {"a NumPy scalar has no dtype", "cnumpy.core.multiarray\nscalar\nK\1K\2\134R.",
      "a NumPy scalar in an unknown way"},
    {"a NumPy scalar has too few bytes",
      "cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\n" .. word "f8" .. "\133RC\3abc\134R.",
      "a NumPy scalar in an unknown way"},
    {"an array is of another class",
      "cnumpy.core.multiarray\n_reconstruct\n" .. word "x" .. "\133R.",
      "an array of an unknown class"},
    {"a parameter has no tensor", "ctorch._utils\n_rebuild_parameter\nK\1\133R.",
      "a parameter without a tensor"},
    {"a size is a text", "ctorch\nSize\n" .. word "a" .. "\133\133R.", "a size that is no count"},
    {"a size is negative", "ctorch\nSize\nJ\255\255\255\255\133\133R.", "a size that is no count"},
    {"a size is a fraction", "ctorch\nSize\nG\63\248\0" .. zeros:sub(2) .. "\133\133R.",
      "a size that is no count"},
    {"there are nine sizes", "ctorch\nSize\n(" .. ("K\1"):rep(9) .. "t\133R.",
      "more than 8 dimensions"},
    {"it calls a number", "K\1)R.", "calls a value that is not a function"},
    {"it calls without a tuple", "ctorch\nSize\nK\1R.", "calls a value that is not a function"},
    {"a storage is no tuple", "K\1Q.", "refers to data in an unknown way"},
    {"a storage has a negative count",
      tensor("FloatStorage", word "0" .. word "cpu" .. "J\255\255\255\255",
      "K\0" .. size .. "K\1\133"),
      "is broken: storage '0' has -1 elements"},
    {"a storage is of an unknown class", tensor("StringStorage", id, "K\0" .. size .. "K\1\133"),
      "names torch.StringStorage, which is code"},
    {"a storage has other bytes", tensor("FloatStorage", word "0" .. word "cpu" .. "K\3",
      "K\0" .. size .. "K\1\133"),
      "storage '0' has 8 bytes, 3 float32 elements are announced"},
    {"a storage is not there", tensor("FloatStorage", word "9" .. word "cpu" .. "K\2",
      "K\0" .. size .. "K\1\133"),
      "storage '9' has no bytes, 2 float32 elements are announced"},
    {"a tensor has another number of strides", tensor("FloatStorage", id, "K\0" .. size .. ")"),
      "a tensor is described wrongly"},
    {"a tensor's offset is a text", tensor("FloatStorage", id, word "a" .. size .. "K\1\133"),
      "a tensor is described wrongly"},
    {"a tensor begins before its storage",
      tensor("FloatStorage", id, "J\255\255\255\255" .. size .. "K\1\133"),
      "reaches beyond its storage"},
    {"a tensor ends one element later", tensor("FloatStorage", id, "K\1" .. size .. "K\1\133"),
      "reaches beyond its storage"},
    {"a tensor strides beyond", tensor("FloatStorage", id, "K\0" .. size .. "K\2\133"),
      "reaches beyond its storage"},
  }
  for _, row in ipairs(ROWS) do
    it(row[1], function() refused(pth(row[2]), row[3]) end)
  end

  it("its protocol is not 2 to 5", function()
    for protocol, fits in pairs {[1] = false, [2] = true, [5] = true, [6] = false} do
      local bytes = files.archive {{"a/data.pkl", "\128" .. string.char(protocol) .. "K\1."}}
      if fits then assert.equal(1, load(bytes))
      else refused(bytes, ("has a pickle of protocol %d; 2 to 5 are read"):format(protocol)) end
    end
  end)

  it("a part of a tensor fits", function()
    local data = "\0\0\128\63\0\0\0\64" -- 1, 2
    assert.same({1, 2},
      load(pth(tensor("FloatStorage", id, "K\0" .. size .. "K\1\133"), data)):tolist())
    assert.same({2, 2},
      load(pth(tensor("FloatStorage", id, "K\1" .. size .. "K\0\133"), data)):tolist())
    assert.same({}, load(pth(tensor("FloatStorage", id, "K\9K\0\133K\1\133"), data)):tolist())
    assert.equal(2, load(pth(tensor("FloatStorage", id, "K\1))"), data)):item())
    local pairs_in = tensor("ComplexFloatStorage", word "0" .. word "cpu" .. "K\1",
      "K\0K\1\133K\1\133")
    assert.same({{1, 2}}, load(pth(pairs_in, data)):tolist())
  end)

  it("a NumPy array is odd", function()
    local function array(shape, dtype, fortran, bytes)
      return pth("cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\133C\1b\135R(K\1" ..
        shape .. "cnumpy\ndtype\n"
        .. word(dtype) .. "\137\136\135R(K\3" .. word "<" ..
          "NNNJ\255\255\255\255J\255\255\255\255K\0tb" .. fortran .. bytes .. "tb.")
    end
    local six = "C\6" .. "\1\2\3\4\5\6"
    assert.same({{1, 2, 3}, {4, 5, 6}}, load(array("K\2K\3\134", "u1", "\137", six)):tolist())
    assert.same({{1, 3, 5}, {2, 4, 6}}, load(array("K\2K\3\134", "u1", "\136", six)):tolist())
    assert.same({0, 3}, {unpack(load(array("K\0K\3\134", "f4", "\137", "C\0")).shape)})
    assert.same({513, 1027, 1541}, load(array("K\3\133", "u2", "\137", six)):tolist())
    refused(array("K\2K\2\134", "u1", "\137", six), "a NumPy array in an unknown way")
    refused(array("J\255\255\255\255\133", "u1", "\137", six), "a NumPy array of impossible sizes")
    refused(array("K\1", "u1", "\137", six), "a NumPy array in an unknown way")
    assert.matches("more than 8 dimensions",
      tostring(load(array("(" .. ("K\1"):rep(9) .. "t", "u1", "\137", "C\1a"))), 1, true)
    assert.matches("NumPy's dtype 'O8'", tostring(load(array("K\1\133", "O8", "\137", six))), 1,
      true)
  end)
end)

describe("an archive with 64-bit records", function()
  local FULL = "\255\255\255\255"

  -- A zip of one stored member whose sizes and offset are in extra fields.
  local function wide(change)
    local code = "\128\2K\7."
    local plain = files.archive {{"a/data.pkl", code}}
    local start = plain:find("PK\1\2", 1, true)
    local body = plain:sub(1, start - 1)
    local crc = plain:sub(start + 16, start + 19)
    local c = {extra = "\9\0\2\0ab" .. "\1\0\24\0" .. le(#code, 8) .. le(#code, 8) .. le(0, 8),
      record = "PK\6\6",
      locator = "PK\6\7", count = 1, sizes = FULL .. FULL, offset = FULL}
    for key, value in pairs(change or {}) do c[key] = value end
    local entry = "PK\1\2" .. le(45, 2) .. le(45, 2) .. le(0, 8) .. crc .. c.sizes .. le(10,
      2) .. le(#c.extra, 2) .. ("\0"):rep(10)
      .. c.offset .. "a/data.pkl" .. c.extra
    local record = c.record .. le(44, 8) .. le(45, 2) .. le(45, 2) .. le(0, 8) .. le(c.count,
      8) .. le(c.count, 8) .. le(#entry, 8)
      .. le(#body, 8)
    local locator = c.locator .. le(0, 4) .. le(#body + #entry, 8) .. le(1, 4)
    return body .. entry .. record .. locator .. "PK\5\6" .. le(0,
      4) .. "\255\255\255\255" .. FULL .. FULL .. le(0, 2)
  end

  it("is read", function()
    assert.equal(7, load(wide()))
    local code = "\128\2K\7."
    assert.equal(7,
      load(wide {sizes = le(#code, 4) .. le(#code, 4), extra = "\1\0\8\0" .. le(0, 8)}))
    assert.equal(7,
      load(wide {sizes = le(#code, 4) .. FULL, offset = le(0, 4),
      extra = "\1\0\8\0" .. le(#code, 8)}))
  end)

  it("is refused if a record is wrong", function()
    refused(wide {record = "PK\6\5"}, "its zip64 record is wrong")
    refused(wide {locator = "PK\6\6"}, "is broken: 65535 members in 4294967295 bytes")
    refused(wide {extra = "\1\0\4\0" .. le(5, 4)}, "a zip64 field is too short")
    refused(wide {count = 3}, "is broken: 3 members in")
    refused("PK\5\6" .. le(0, 4) .. "\255\255\255\255" .. FULL .. FULL .. le(0, 2),
      "its zip64 record is missing")
  end)
end)

describe("a name in a header of safetensors", function()
  local function open(name)
    local header = ('{"%s":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'):format(name)
    return moth.load(files.write("name.safetensors", files.safetensors(header, "\7")))
  end
  -- the text of the header, the name
  local ROWS = {
    {[[\u0041]], "A"}, {[[\u00e4\u00E4]], "ää"}, {[[\u07ff]], "\223\191"},
      {[[\u0800]], "\224\160\128"},
    {[[\u20ac]], "€"}, {[[\uffff]], "\239\191\191"}, {[[\ud83d\ude00]], "😀"},
    {[[\uD800\uDC00]], "\240\144\128\128"}, {[[\udbff\udfff]], "\244\143\191\191"},
    {[[\"\\\/\b\f\n\r\t]], '"\\/\b\f\n\r\t'}, {"a b\127", "a b\127"},
  }
  for _, row in ipairs(ROWS) do
    it("is read: " .. row[1], function() assert.equal(7, open(row[1])[row[2]]:item()) end)
  end

  for _, name in ipairs {[[\ud800]], [[\ud800\u0041]], [[\ud800\ud800]], [[\udc00\ud800]],
    [[\u12g4]],
    [[\u12]], [[\x41]], [[\]], "a\nb", "\1", [[\ud800\ue000]], [[\ud800x]]} do
    it("is refused: " .. (name:gsub("%c", "?")),
      function() assert.is_false((pcall(open, name))) end)
  end
end)
