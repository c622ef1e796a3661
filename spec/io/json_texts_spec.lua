-- JSON texts one by one: what is read, which byte a message names, what is written. The values are
-- those of RFC 8259, as other readers have them.

local moth = require "moth"
local json = require "moth.json"

describe("JSON is read:", function()
  local READ = {
    ["0"] = 0, ["-0"] = 0, ["12"] = 12, ["-7"] = -7, ["1.5"] = 1.5, ["-0.25"] = -0.25,
      ["1e3"] = 1000,
    ["1E3"] = 1000, ["1e+3"] = 1000, ["1e-3"] = 0.001, ["2.5e2"] = 250, ["0.0"] = 0, ["0e5"] = 0,
    ["1.7976931348623157e308"] = 1.7976931348623157e308, ["5e-324"] = 5e-324, ["1e-400"] = 0,
    ["9007199254740993"] = 9007199254740992, ["true"] = true, ["false"] = false, ['""'] = "",
    ['"a"'] = "a", ['"\\""'] = '"', ['"\\\\"'] = "\\", ['"\\/"'] = "/", ['"\\b\\f\\n\\r\\t"'] =
    "\b\f\n\r\t", ['"\\u0041"'] = "A", ['"\\u00e9"'] = "é", ['"\\u20ac"'] = "€",
      ['"\\u0000"'] = "\0",
    ['"\\u07ff\\u0800\\uffff"'] = "\223\191\224\160\128\239\191\191", ['"\127"'] = "\127",
    ['"a\127b\127"'] = "a\127b\127", ['"\\ud83d\\ude00"'] = "\240\159\152\128",
    ['"\\ud800\\udc00\\udbff\\udfff"'] = "\240\144\128\128\244\143\191\191", ['"\\uD83D\\uDE00x"'] =
    "\240\159\152\128x", ["[]"] = {}, ["{}"] = {}, [" [ ] "] = {}, ["\t\r\n{ }\n"] = {},
    ["[1]"] = {1}, ["[1,2 , 3]"] = {1, 2, 3}, ["[[],[[]]]"] = {{}, {{}}}, ['{"a":1}'] = {a = 1},
    ['{ "a" : { "b" : [ true ] } , "c" : "" }'] = {a = {b = {true}}, c = ""},
      ['{"":0}'] = {[""] = 0},
    ["[true,false]"] = {true, false}, ['{"1":1}'] = {["1"] = 1}, ['["\\u005b"]'] = {"["},
  }
  for text, wanted in pairs(READ) do
    it(("%q"):format(text), function()
      local value, problem = json.decode(text)
      assert.is_nil(problem)
      assert.same(wanted, value)
    end)
  end

  it("null, alone and inside", function()
    assert.equal(json.null, json.decode "null")
    local list = json.decode "[null, 1]"
    assert.same({json.null, 1, 2}, {list[1], list[2], #list})
    assert.equal(json.null, json.decode('{"a":null}').a)
    assert.equal("null", tostring(json.null))
  end)

  it("1000 levels, not 1001", function()
    for _, brackets in ipairs {{"[", "]", ""}, {'{"a":', "}", "1"}} do
      local function nested(n) return brackets[1]:rep(n) .. brackets[3] .. brackets[2]:rep(n) end
      assert.is_table((json.decode(nested(1000))))
      assert.same({nil, ("expected at most 1000 levels of nesting at byte %d"):format(
        #brackets[1] * 1000 + 1)}, {json.decode(nested(1001))})
    end
  end)
end)

describe("JSON is refused at its byte:", function()
  local REFUSED = {
    [""] = "a value at byte 1", ["  "] = "a value at byte 3", ["01"] = "a value at byte 1",
    ["-"] = "a value at byte 1", ["+1"] = "a value at byte 1", [".5"] = "a value at byte 1",
    ["1."] = "a value at byte 1", ["1.e5"] = "a value at byte 1", ["1e"] = "a value at byte 1",
    ["1e+"] = "a value at byte 1", ["-01"] = "a value at byte 1", ["1e999"] = "a value at byte 1",
    ["0x10"] = "the end at byte 2", ["1 2"] = "the end at byte 3", ["nan"] = "a value at byte 1",
    ["Infinity"] = "a value at byte 1", ["tru"] = "a value at byte 1", ["True"] = "a value at "
      .. "byte 1",
    ["truex"] = "the end at byte 5", ["nul"] = "a value at byte 1", ["[1,]"] = "a value at byte 4",
    ["[,1]"] = "a value at byte 2", ["[1 2]"] = "',' or ']' at byte 4", ["[1"] = "',' or ']' at "
      .. "byte 3",
    ["["] = "a value at byte 2", ["]"] = "a value at byte 1", ["{"] = "a key at byte 2",
    ["{1:2}"] = "a key at byte 2", ['{"a"}'] = "':' at byte 5", ['{"a":}'] = "a value at byte 6",
    ['{"a":1,}'] = "a key at byte 8", ['{"a":1 "b":2}'] = "',' or '}' at byte 8",
    ['{"a":1,"a":2}'] = "a key that was not there before at byte 8", ["{a:1}"] = "a key at byte 2",
    ['"a'] = "the end of a string at byte 3", ['"'] = "the end of a string at byte 2",
    ['"\\x"'] = "a valid escape at byte 2", ['"\\u12"'] = "four hexadecimal digits at byte 4",
    ['"\\ud800"'] = "a pair of surrogates at byte 4", ['"\\udc00"'] = "a pair of surrogates at "
      .. "byte 4",
    ['"\\ud800\\u0041"'] = "a pair of surrogates at byte 4", ['"\\'] = "a valid escape at byte 2",
    ['"a\nb"'] = "no control character in a string at byte 3", ["'a'"] = "a value at byte 1",
    ['"\0"'] = "no control character in a string at byte 2", ["[1] //"] = "the end at byte 5",
    ["/**/1"] = "a value at byte 1", ['["a",\n"b",]'] = "a value at byte 11",
  }
  for text, wanted in pairs(REFUSED) do
    it(("%q"):format(text), function()
      local value, problem = json.decode(text)
      assert.is_nil(value)
      assert.equal("expected " .. wanted, problem)
    end)
  end

  it("bytes that are not UTF-8", function()
    assert.same({nil, "invalid UTF-8 at byte 3"}, {json.decode '["\255"]'})
  end)
end)

describe("JSON is written:", function()
  it("values, with the fewest digits that are read again", function()
    for _, row in ipairs {{0, "0"}, {-0.0, "0"}, {1, "1"}, {-12, "-12"}, {0.1, "0.1"},
      {1 / 3, "0.3333333333333333"}, {1e15, "1000000000000000"},
      {2 ^ 53 - 1, "9007199254740991"},
      {2 ^ 53, "9007199254740992"}, {-2 ^ 53 + 1, "-9007199254740991"}, {1e300, "1e+300"},
      {2 ^ 0.5, "1.4142135623730951"}, {5e-324, "4.94065645841247e-324"},
      {true, "true"}, {false, "false"}, {json.null, "null"}, {"a", '"a"'}, {"", '""'},
      {'"\\\n\r\t\b\0\127', '"\\"\\\\\\n\\r\\t\\u0008\\u0000\\u007f"'}, {"é", '"é"'},
      {{}, "{}"}, {{1, 2}, "[1,2]"}, {{a = 1}, '{"a":1}'}, {{b = 1, a = {2}}, '{"a":[2],"b":1}'},
      {{{}, {{}}}, "[{},[{}]]"}, {3LL, "3"}, {-3LL, "-3"}, {18446744073709551615ULL,
      "18446744073709551615"}, {moth.tensor {{1, 2}}, "[[1,2]]"}, {moth.tensor(2.5), "2.5"},
      {moth.tensor {1LL}, "[1]"}} do
      local text = json.encode(row[1])
      if type(row[1]) == "number" and row[1] == 0 then text = text:gsub("^%-", "") end
      assert.equal(row[2], text)
      if type(row[1]) == "number" then assert.equal(row[1], json.decode(text)) end
    end
    assert.equal("0.10000000000000001", json.number(0.1))
  end)

  it("only what JSON has, with the place of the rest", function()
    local loop = {}
    loop[1] = loop
    for _, row in ipairs {
      {0 / 0, "nan cannot be written as JSON"}, {math.huge, "inf cannot be written as JSON"},
      {{a = {1, -math.huge}}, "-inf cannot be written as JSON (at 'a[2]')"},
      {{a = {b = print}}, "(at 'a.b')"}, {{1, {print}}, "(at '[2][1]')"},
      {{1, a = 2}, "a table with names and a list cannot be written as JSON"},
      {{x = {1, a = 2}}, "a table with names and a list cannot be written as JSON (at 'x')"},
      {{[3] = 1}, "a table with the key 3 cannot be written as JSON"},
      {{[true] = 1}, "a table with the key true cannot be written as JSON"},
      {{["\255"] = 1}, "a key that is not UTF-8 cannot be written as JSON"},
      {{k = "\255"}, "a string that is not UTF-8 cannot be written as JSON (at 'k')"},
      {loop, "a table of more levels, or in itself, cannot be written as JSON"},
      {moth.nn.Linear(1, 1), "a Linear cannot be written as JSON"},
    } do
      local text, problem = json.encode(row[1])
      assert.is_nil(text)
      assert.is_truthy(problem:find(row[2], 1, true), problem)
    end
  end)

  it("1000 levels, not 1001", function()
    local function nested(n)
      local t = {}
      for _ = 2, n do t = {t} end
      return t
    end
    assert.equal(1998 + 2, #json.encode(nested(1000)))
    assert.is_nil((json.encode(nested(1001))))
  end)

  it("code points as UTF-8", function()
    for code, bytes in pairs {[0] = "\0", [0x7f] = "\127", [0x80] = "\194\128",
      [0x7ff] = "\223\191",
      [0x800] = "\224\160\128", [0xffff] = "\239\191\191", [0x10000] = "\240\144\128\128",
      [0x10ffff] = "\244\143\191\191", [0x20ac] = "€"} do
      assert.equal(bytes, json.utf8_char(code))
    end
  end)
end)
