-- Files of one JSON value a line: data.JSONLines, data.write_json_lines, json.encode.

local json = require "moth.json"
local moth = require "moth"
local files = require "spec.support.files"
local data = moth.data

setup(files.setup)
teardown(files.teardown)

local TEXT = '{"text": "good", "label": 1}\n\n[1, null]\r\n  \n"é"\n3'

describe("data.JSONLines", function()
  it("has the lines that are not blank as samples, in any order", function()
    local set = data.JSONLines(files.write("a.jsonl", TEXT))
    assert.equal(4, set:len())
    assert.equal("é", set:get(3))
    assert.equal("good", set:get(1).text)
    assert.equal(1, set:get(1).label)
    assert.equal(json.null, set:get(2)[2])
    assert.equal(3, set:get(-1))
    assert.matches("JSONLines of 4 lines: '.*a.jsonl'", tostring(set))
    assert.has_error_like(function() set:get(5) end, "position 5 of 4 samples")
  end)

  it("reads gzip, an empty file, and a file without a last line end", function()
    local path = files.write("b.jsonl", TEXT .. "\n")
    assert.equal(4, data.JSONLines(path):len())
    assert.equal(0, os.execute("gzip -kf '" .. path .. "'"))
    local set = data.JSONLines(path .. ".gz")
    assert.equal(4, set:len())
    assert.equal(3, set:get(4))
    assert.equal(0, data.JSONLines(files.write("empty.jsonl", "")):len())
    assert.equal(0, data.JSONLines(files.write("blank.jsonl", "\n \n\t")):len())
  end)

  it("finds many lines", function()
    local rows = {}
    for i = 1, 5000 do rows[i] = {id = i, text = ("x"):rep(i % 50)} end
    local path = files.path "many.jsonl"
    assert.equal(5000, data.write_json_lines(rows, path))
    local set = data.JSONLines(path)
    assert.equal(5000, set:len())
    for _, i in ipairs {1, 255, 256, 257, 1024, 4096, 5000} do assert.equal(i, set:get(i).id) end
  end)

  it("is read by workers, who share the positions of the lines", function()
    local rows = {}
    for i = 1, 20 do rows[i] = {id = i * 1LL} end
    local path = files.path "w.jsonl"
    data.write_json_lines(rows, path)
    local seen = {}
    for batch in data.DataLoader {data.JSONLines(path), batch_size = 3, num_workers = 2} do
      for _, id in ipairs(batch.id:tolist()) do seen[#seen + 1] = id end
    end
    assert.equal(20, #seen)
    for i = 1, 20 do assert.equal(i, seen[i]) end
  end)

  it("names the file and the line of a fault", function()
    local path = files.write("bad.jsonl", "{}\n\n[1]\n{'a': 1}\n")
    local set = data.JSONLines(path)
    assert.matches("line 4: expected a key", files.refusal(path, set.get, set, 3), 1, true)
    assert.equal("E_FORMAT", moth.errcode())
    assert.matches("No such file", files.refusal(files.path "none", data.JSONLines,
      files.path "none"), 1, true)
  end)
end)

describe("data.write_json_lines", function()
  it("writes a list, or what a function returns", function()
    local path, i = files.path "o.jsonl", 0
    data.write_json_lines({{b = 1, a = {true, json.null}}, "é\n", 2.5, {}}, path)
    assert.equal('{"a":[true,null],"b":1}\n"é\\n"\n2.5\n{}\n', files.read(path))
    assert.equal(3, data.write_json_lines(function()
      i = i + 1
      if i <= 3 then return i end
    end, path))
    assert.equal("1\n2\n3\n", files.read(path))
    assert.equal(0, data.write_json_lines({}, path))
    assert.equal("", files.read(path))
  end)

  it("names the row of a value that JSON cannot hold, and leaves the old file", function()
    local path = files.write("old.jsonl", "1\n")
    for _, case in ipairs {{{a = {print}}, "a function cannot be written as JSON (at 'a[1]')"},
      {moth.inf, "inf cannot"}, {"\255", "a string that is not UTF-8 cannot"}} do
      local fine, message = pcall(data.write_json_lines, {1, case[1]}, path)
      assert.is_false(fine)
      assert.is_truthy(message:find("row 2: " .. case[2], 1, true), message)
      assert.equal("1\n", files.read(path))
    end
    assert.has_error_like(function() data.write_json_lines(3, path) end, "a list or a function")
  end)
end)

describe("json.encode", function()
  it("writes what json.decode reads", function()
    local value = {a = {1, 2.5, -1e300, 0.1}, b = {c = {}, d = "q\"\\\n\1"}, e = false,
      f = json.null}
    local again = json.decode(assert(json.encode(value)))
    assert.same(value, again)
    assert.equal("0.1", json.encode(0.1))
    assert.equal("[9007199254740993,18446744073709551615]",
      json.encode {9007199254740993LL, 18446744073709551615ULL})
    assert.equal("[[1,2],[3,4]]", json.encode(moth.tensor {{1, 2}, {3, 4}}))
    assert.equal("1.5", json.encode(moth.tensor(1.5)))
  end)

  it("returns nil and the reason for other values", function()
    local loop = {}
    loop.a = loop
    for _, case in ipairs {{loop, "more levels, or in itself"}, {{1, a = 2}, "names and a list"},
      {{[2] = 1}, "with the key 2"}, {{a = moth.inf}, "inf cannot be written as JSON (at 'a')"},
      {print, "a function"}, {{["\255"] = 1}, "a key that is not UTF-8"},
      {moth.nn.Linear(1, 1), "cannot be written"}} do
      local text, why = json.encode(case[1])
      assert.is_nil(text)
      assert.is_truthy(why:find(case[2], 1, true), why)
    end
  end)
end)
