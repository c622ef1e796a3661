-- A bad safetensors file raises an error with a code, which says what is wrong and where. Reading
-- ends quickly and leaves nothing behind.

local errors = require "moth.error"
local json = require "moth.json"
local moth = require "moth"
local files = require "spec.support.files"

local path_of, write, le8, file_of, entry, round =
  files.path, files.write, files.le8, files.safetensors, files.entry, files.round

setup(files.setup)
teardown(files.teardown)

local one = entry("a", "F32", 2, 0, 8)
local eight = ("\0"):rep(8)

-- name, bytes, the text of the message, the code if it is not E_FORMAT
local hostile = {
  { "empty file", "", "is empty" },
  { "seven bytes", "\2\0\0\0\0\0\0", "7 bytes are too few" },
  { "zip", "PK\3\4" .. ("x"):rep(60), "is no complete zip archive" },
  { "pickle", "\128\2}q\1." .. ("x"):rep(60), "is a pickle that torch.save did not write" },
  { "length beyond the limit", le8(100000001) .. "{}", "a header of 100000001 bytes, at most" },
  { "length of 2^64 - 1", ("\255"):rep(8) .. "{}", "a header of 18446744073709551615 bytes" },
  { "length beyond the file", le8(3) .. "{}", "a header of 3 bytes in a file of 10" },
  { "length 0", le8(0) .. "{}", "a header of 0 bytes" },
  { "leading space", file_of(" {}"), "does not begin with '{'" },
  { "a list", file_of("[]"), "does not begin with '{'" },
  { "cut header", file_of('{"a":{"dtype":"F32"'), "broken at byte 27 .*expected ',' or '}'" },
  { "two headers", file_of("{}{}"), "expected the end of the header" },
  { "trailing NUL", file_of("{}\0"), "expected the end of the header" },
  { "trailing comma", file_of("{" .. one .. ",}", eight), "expected a string" },
  { "single quotes", file_of("{'a':{}}"), "expected a string" },
  { "a comment", file_of("{/**/}"), "expected a string" },
  { "control character", file_of('{"a\1":{}}'), "a valid character" },
  { "bad UTF-8", file_of('{"a\255":{}}'), "a valid character" },
  { "overlong UTF-8", file_of('{"\192\128":{}}'), "a valid character" },
  { "lone surrogate", file_of('{"\\ud800":{}}'), "a valid character" },
  { "bad escape", file_of('{"\\x41":{}}'), "a valid character" },
  { "open string", file_of('{"aaaa'), "the end of a string" },
  { "entry is a number", file_of('{"a":1}'), "the fields of a tensor" },
  { "entry is empty", file_of('{"a":{}}'), "expected a string" },
  { "deep nesting", file_of('{"a":' .. ('{"a":'):rep(100000)), "unknown field 'a'" },
  { "deep lists", file_of('{"a":{"shape":' .. ("["):rep(100000)), "expected an integer" },
  { "same name twice", file_of("{" .. one .. "," .. entry("a", "F32", 2, 8, 16) .. "}",
    eight .. eight), "two tensors are called 'a'" },
  { "same name by escape", file_of("{" .. one .. "," .. entry("\\u0061", "F32", 2, 8, 16) .. "}",
    eight .. eight), "two tensors are called 'a'" },
  { "field twice", file_of('{"a":{"dtype":"U8","dtype":"U8","shape":[]}}', "x"),
    "tensor 'a' has a second field 'dtype'" },
  { "unknown field", file_of('{"a":{"dtype":"U8","code":"x","shape":[]}}'),
    "tensor 'a' has the unknown field 'code'" },
  { "no dtype", file_of('{"a":{"shape":[],"data_offsets":[0,1]}}', "x"), "lacks its dtype" },
  { "no shape", file_of('{"a":{"dtype":"U8","data_offsets":[0,1]}}', "x"), "lacks its shape" },
  { "no offsets", file_of('{"a":{"dtype":"U8","shape":[]}}', "x"), "lacks its data_offsets" },
  { "unknown dtype", file_of("{" .. entry("a", "F128", 1, 0, 8) .. "}", eight),
    "tensor 'a' has the unknown dtype 'F128'" },
  { "lower-case dtype", file_of("{" .. entry("a", "f32", 2, 0, 8) .. "}", eight), "unknown dtype" },
  { "negative size", file_of("{" .. entry("a", "F32", "-2", 0, 8) .. "}", eight),
    "a number that is not negative" },
  { "fraction", file_of("{" .. entry("a", "F32", "2.0", 0, 8) .. "}", eight), "an integer" },
  { "exponent", file_of("{" .. entry("a", "F32", "2e0", 0, 8) .. "}", eight), "an integer" },
  { "leading zero", file_of("{" .. entry("a", "F32", "02", 0, 8) .. "}", eight), "an integer" },
  { "size of 2^63", file_of("{" .. entry("a", "U8", "9223372036854775808", 0, 8) .. "}", eight),
    "a number below 2%^63" },
  { "overflowing shape", file_of("{" .. entry("a", "F32", "4294967296,4294967296", 0, 8) .. "}",
    eight), "tensor 'a' is too large" },
  { "shape that wraps to 8 bytes", file_of("{" .. entry("a", "F32", "4611686018427387904,2,2,1", 0,
    8) .. "}", eight), "tensor 'a' is too large" },
  { "huge and empty", file_of("{" .. entry("a", "F32", "0,9223372036854775807,9", 0, 0) .. "}"),
    "tensor 'a' is too large" },
  { "nine dimensions", file_of("{" .. entry("a", "U8", "1,1,1,1,1,1,1,1,1", 0, 1) .. "}", "x"),
    "more than 8 dimensions", "E_UNSUPPORTED" },
  { "offsets beyond the data", file_of("{" .. entry("a", "F32", 4, 0, 16) .. "}", eight),
    "tensor 'a' ends at byte 16 of the data, but there are only 8" },
  { "inverted offsets", file_of("{" .. entry("a", "F32", 2, 8, 0) .. "}", eight),
    "ends at byte 0, before its start at 8" },
  { "three offsets", file_of('{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1,2]}}', "x"),
    "after two offsets" },
  { "too few bytes for the shape", file_of("{" .. entry("a", "F32", 2, 0, 4) .. "}", "1234"),
    "takes 8 bytes, but its offsets give 4" },
  { "hole", file_of("{" .. entry("a", "U8", 2, 0, 2) .. "," .. entry("b", "U8", 2, 4, 6) .. "}",
    "123456"), "a hole before tensor 'b': bytes 2 to 3" },
  { "hole at the start", file_of("{" .. entry("a", "U8", 2, 1, 3) .. "}", "123"), "a hole before" },
  { "overlap", file_of("{" .. entry("a", "U8", 4, 0, 4) .. "," .. entry("b", "U8", 4, 2, 6) .. "}",
    "123456"), "tensor 'b' overlaps tensor 'a' at byte 2" },
  { "the same bytes twice", file_of("{" .. entry("a", "U8", 2, 0, 2) .. ","
    .. entry("b", "U8", 2, 0, 2) .. "}", "12"), "overlaps" },
  { "trailing garbage", file_of("{" .. one .. "}", eight .. "x"),
    "no tensor holds the last 1 byte" },
  { "data of nobody", file_of("{}", "x"), "no tensor holds the last 1 byte" },
  { "metadata number", file_of('{"__metadata__":{"a":1}}'), "expected a string" },
  { "metadata nested", file_of('{"__metadata__":{"a":{}}}'), "expected a string" },
  { "metadata string", file_of('{"__metadata__":"x"}'), "'{' after \"__metadata__\"" },
  { "metadata null", file_of('{"__metadata__":null}'), "'{' after \"__metadata__\"" },
  { "metadata twice", file_of('{"__metadata__":{},"__metadata__":{}}'), "two entries" },
  { "metadata key twice", file_of('{"__metadata__":{"k":"1","k":"2"}}'), "the key 'k' twice" },
  { "half a byte", file_of("{" .. entry("a", "F4", 1, 0, 1) .. "}", "x"), "at a whole byte" },
}

local function with_text(text)
  return file_of('{"__metadata__":{"moth":' .. json.string(text) .. "}}")
end

for _, case in ipairs {
  { "structure is no JSON", "{", "metadata 'moth': expected" },
  { "structure has a null", "[null]", "it has a null" },
  { "structure runs code", '{"$lua":"os.exit()"}', "unknown entry '$lua'" },
  { "structure has a mixed tag", '{"$i64":"1","a":1}', "unknown entry '$i64'" },
  { "structure names no tensor", '{"$tensor":"nobody"}', "the tensor 'nobody' is missing" },
  { "integer of 2^63", '{"$i64":"9223372036854775808"}', "unknown entry '$i64'" },
  { "table with NaN for a key", '{"$table":[[{"$number":"nan"},1]]}', "unknown entry '$table'" },
  { "table with a key twice", '{"$table":[[1,1],[1,2]]}', "unknown entry '$table'" },
  { "table of three", '{"$table":[[1,1,1]]}', "unknown entry '$table'" },
  { "odd bytes", '{"$bytes":"abc"}', "unknown entry '$bytes'" },
  { "deep structure", ("["):rep(100000), "at most 1000 levels" },
} do hostile[#hostile + 1] = { case[1], with_text(case[2]), case[3] } end

for _, case in ipairs {
  { "tied to nobody", '{"b":"c"}', "wrong entry 'b'" },
  { "tied name taken", '{"a":"a"}', "wrong entry 'a'" },
  { "tied is a list", '["a"]', "wrong entry" },
  { "tied is null", "null", "an object is needed" },
} do
  hostile[#hostile + 1] = { case[1], file_of('{"__metadata__":{"moth.tied":' .. json.string(case[2])
    .. "}," .. one .. "}", eight), case[3] }
end

describe("a hostile file", function()
  for _, case in ipairs(hostile) do
    it("raises an error: " .. case[1], function()
      local path = write("hostile.st", case[2])
      for _, mmap in ipairs { true, false } do
        assert.has_error_like(function() moth.load(path, { mmap = mmap }) end,
          "bad argument 'path' to 'load' %(.*" .. case[3])
        assert.equal(case[4] or "E_FORMAT", errors.code())
      end
      assert.equal(2, round(moth.ones(2)):sum():item())
    end)
  end

  it("needs neither time nor memory", function()
    local parts = {}
    for i = 1, 20000 do parts[i] = entry("t" .. i, "U8", "0", 0, 0) end
    local path = write("many.st", file_of("{" .. table.concat(parts, ",") .. "}", "x"))
    local start = os.clock()
    assert.has_error_like(function() moth.load(path) end, "no tensor holds the last 1 byte")
    assert.is_true(os.clock() - start < 1)
  end)

  it("is named if it does not exist", function()
    assert.has_error_like(function() moth.load(path_of("nobody.st")) end,
      "bad argument 'path' to 'load' %(cannot open '.*nobody.st': No such file")
    assert.equal("E_IO", errors.code())
    assert.has_error_like(function() moth.load(files.folder) end, "is a directory, not a file")
    assert.has_error_like(function() moth.load("/dev/zero") end, "is a device or a pipe")
    if os.execute(("mkfifo '%s'"):format(path_of("pipe.st"))) == 0 then -- opening it would wait
      assert.has_error_like(function() moth.load(path_of("pipe.st")) end, "is a device or a pipe")
    end
    assert.has_error_like(function() moth.load("a\0b") end, "a path cannot hold a NUL")
    assert.has_error_like(function() moth.load("") end, "an empty path")
    assert.has_error_like(function() moth.load(7) end, "bad argument 'path' to 'load'")
  end)
end)

