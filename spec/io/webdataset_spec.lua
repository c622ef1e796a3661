-- Tar archives as streams of samples: data.WebDataset, data.TarWriter, moth.data.tar. Broken
-- archives raise errors with the position.

local bytes = require "moth.io.bytes"
local moth = require "moth"
local tar = require "moth.data.tar"
local webdataset = require "moth.data.webdataset"
local files = require "spec.support.files"
local fuzz = require "spec.fuzz.files"
local data = moth.data

setup(files.setup)
teardown(files.teardown)

-- Writes `shards` archives with `n` samples each. @return the pattern of their paths
local function write_shards(name, shards, n)
  for s = 1, shards do
    local writer = data.TarWriter(files.path(("%s-%02d.tar"):format(name, s)))
    for i = 1, n do
      writer:write {__key__ = ("d/%d_%d"):format(s, i), cls = i, id = s * 100LL + i,
        txt = "é " .. i, json = {shard = s, list = {i, i}}, npy = moth.full({2}, s * 100 + i)}
    end
    writer:close()
  end
  return files.path(("%s-{01..%02d}.tar"):format(name, shards))
end

local function ids(stream)
  local list = {}
  for sample in stream:iter() do list[#list + 1] = tonumber(sample.id) end
  return list
end

local function sorted(list)
  local copy = {unpack(list)}
  table.sort(copy)
  return copy
end

describe("data.WebDataset", function()
  it("groups the files of an archive to samples, as strings", function()
    local path = write_shards("raw", 1, 2)
    local list = {}
    for sample in data.WebDataset(path):iter() do list[#list + 1] = sample end
    assert.equal(2, #list)
    assert.equal("d/1_1", list[1].__key__)
    assert.equal(files.path "raw-01.tar", list[1].__url__)
    assert.equal("0", list[1].cls)
    assert.equal("101", list[1].id)
    assert.equal('{"list":[1,1],"shard":1}', list[1].json)
    assert.equal("\147NUMPY", list[2].npy:sub(1, 6))
  end)

  it("decodes files by their endings; classes count from 1", function()
    local stream = data.WebDataset {write_shards("dec", 1, 2), decode = true}
    local sample = stream:iter()()
    assert.equal(1LL, sample.cls)
    assert.equal(101LL, sample.id)
    assert.equal("é 1", sample.txt)
    assert.same({shard = 1, list = {1, 1}}, sample.json)
    assert.same({101, 101}, sample.npy:tolist())
    local own = data.WebDataset {files.path "dec-01.tar", decode = {txt = string.len}}
    assert.equal(4, own:iter()().txt)
  end)

  it("returns values in order with to_tuple, and the results of map", function()
    local path = write_shards("tuple", 2, 3)
    local loader = data.DataLoader {data.WebDataset {path, decode = true,
      to_tuple = {"jpg;npy", "cls"}}, batch_size = 4}
    local rows, classes = {}, {}
    for x, y in loader do
      rows[#rows + 1] = x:size(1)
      assert.equal(moth.int64, y.dtype)
      for _, c in ipairs(y:tolist()) do classes[#classes + 1] = tonumber(c) end
    end
    assert.same({4, 2}, rows)
    assert.same({1, 2, 3, 1, 2, 3}, classes)
    local mapped = data.WebDataset {path, to_tuple = {"txt"}, map = function(t) return #t, t end}
    local n, t = mapped:iter()()
    assert.equal(4, n)
    assert.equal("é 1", t)
    assert.has_error_like(function() data.WebDataset {path, to_tuple = {"jpg"}}:iter()() end,
      "sample 'd/1_1' has no file .'jpg'")
  end)

  it("expands braces in paths", function()
    local all = webdataset.expand {"a-{08..11}.tar", "{x,y}/{1..2}", "plain"}
    assert.same({"a-08.tar", "a-09.tar", "a-10.tar", "a-11.tar", "x/1", "x/2", "y/1", "y/2",
      "plain"}, all)
    assert.has_error_like(function() data.WebDataset "a-{1..99999999}" end, "more than 1000000 pat")
    assert.has_error_like(function() data.WebDataset "http://a/b.tar" end, "only files are read")
    assert.has_error_like(function() data.WebDataset {3} end, "paths? .* needed, got 3")
    assert.has_error_like(function() data.WebDataset {urls = {}} end, "a list of paths, is needed")
  end)

  it("shuffles archives and samples with Moth's generator, and loses none", function()
    local path = write_shards("mix", 4, 5)
    local plain = ids(data.WebDataset {path, decode = true})
    local stream = data.WebDataset {path, decode = true, shuffle = 6}
    moth.manual_seed(1)
    local a, b = ids(stream), ids(stream)
    moth.manual_seed(1)
    assert.same(a, ids(stream))
    assert.is_false(table.concat(a, ",") == table.concat(b, ","))
    assert.is_false(table.concat(a, ",") == table.concat(plain, ","))
    assert.same(plain, sorted(a))
    local own = moth.Generator {seed = 5}
    local c = ids(data.WebDataset {path, decode = true, shuffle = 6, generator = own})
    assert.same(plain, sorted(c))
    moth.manual_seed(1)
    local late = ids(data.WebDataset {path, decode = true, shuffle = 3, shardshuffle = false})
    assert.is_true(late[1] < 104 and late[20] > 400)
  end)

  it("shares archives out to workers and processes", function()
    local path = write_shards("share", 5, 2)
    local all = {}
    for rank = 0, 1 do
      local own = {}
      for _, workers in ipairs {0, 2} do
        local stream = data.WebDataset {path, decode = true, shard = {rank, 2}, shuffle = 4}
        local seen = {}
        for batch in data.DataLoader {stream, batch_size = 3, num_workers = workers} do
          for _, id in ipairs(batch.id:tolist()) do seen[#seen + 1] = tonumber(id) end
        end
        own[workers] = sorted(seen)
      end
      assert.same(own[0], own[2])
      for _, id in ipairs(own[0]) do all[#all + 1] = id end
    end
    assert.same({101, 102, 201, 202, 301, 302, 401, 402, 501, 502}, sorted(all))
    for _, shard in ipairs {{-1, 2}, {2, 2}, {1}, {0.5, 2}, 3} do
      assert.has_error_like(function() data.WebDataset {path, shard = shard} end,
        "{rank, count} with rank from 0 to count %- 1 is needed")
    end
    assert.has_error_like(function() data.WebDataset {path, shard = {0, 6}} end,
      "5 archives cannot be shared out to 6 processes")
  end)

  it("resumes in the middle of a pass", function()
    local stream = data.WebDataset {write_shards("resume", 3, 4), decode = true, shuffle = 5,
      to_tuple = {"id"}}
    local function rest(loader)
      local list = {}
      for x in loader do list[#list + 1] = x:tolist() end
      return list
    end
    moth.manual_seed(4)
    local loader, saved = data.DataLoader {stream, batch_size = 2}, nil
    local after, n = {}, 0
    for x in loader do
      n = n + 1
      if n == 2 then saved = loader:state_dict() end
      if n > 2 then after[#after + 1] = x:tolist() end
    end
    moth.manual_seed(99)
    local again = data.DataLoader {stream, batch_size = 2}
    again:load_state_dict(saved)
    assert.same(after, rest(again))
  end)

  it("reads archives that are compressed by gzip", function()
    write_shards("gz", 1, 300)
    local path = files.path "gz-01.tar"
    assert.equal(0, os.execute("gzip -f '" .. path .. "'"))
    assert.equal(300, #ids(data.WebDataset {path .. ".gz", decode = true}))
  end)

  it("decodes pictures, written by TarWriter", function()
    local x = moth.arange(2 * 3 * 4):view(1, 4, 6):mul(9):byte()
    local fine, why = pcall(moth.io.encode_png, x)
    if not fine then
      pending("no library for PNG: " .. why)
      return
    end
    local path = files.path "pictures.tar"
    local writer = data.TarWriter(path)
    writer:write {__key__ = "a", png = x, jpg = moth.zeros(3, 8, 8):byte()}
    writer:write {__key__ = "b", png = "no picture"}
    writer:close()
    local read = data.WebDataset {path, decode = true}:iter()
    local sample = read()
    assert.is_true(sample.png:equal(x:expand(3, 4, 6)))
    assert.same({3, 8, 8}, {unpack(sample.jpg.shape)})
    assert.has_error_like(read, "pictures.tar': b.png: ")
    sample = data.WebDataset {path, decode = true, mode = "unchanged"}:iter()()
    assert.is_true(sample.png:equal(x))
  end)

  it("names the archive and the file of a value that cannot be decoded", function()
    local writer = data.TarWriter(files.path "bad.tar")
    writer:write {__key__ = "_", id = "-123456789012345678"}
    writer:write {__key__ = "a", cls = "three"}
    writer:write {__key__ = "b", json = "{"}
    writer:write {__key__ = "c", npy = "no array"}
    writer:close()
    local read = data.WebDataset {files.path "bad.tar", decode = true}:iter()
    assert.equal(-123456789012345678LL, read().id)
    for _, why in ipairs {"bad.tar': a.cls is no integer: 'three'", "bad.tar': b.json: expected",
      "bad.tar': c.npy: .*bad argument 'bytes' to 'load'"} do
      assert.has_error_like(read, why)
      assert.equal("E_FORMAT", moth.errcode())
    end
  end)
end)

describe("data.TarWriter", function()
  it("writes long names, and the archive appears when it is closed", function()
    local path = files.path "w.tar"
    local writer = data.TarWriter(path)
    local key = ("long/"):rep(60) .. "k"
    writer:write {__key__ = key, txt = "text", ["seg.txt"] = ""}
    assert.is_nil(io.open(path))
    writer:close()
    writer:close()
    local sample = data.WebDataset(path):iter()()
    assert.equal(key, sample.__key__)
    assert.equal("text", sample.txt)
    assert.equal("", sample["seg.txt"])
    assert.equal("TarWriter of '" .. path .. "', 1 samples", tostring(writer))
    assert.has_error_like(function() writer:write {__key__ = "a"} end, "the archive is closed")
    local pipe = io.popen("tar tf '" .. path .. "' 2>&1")
    assert.equal(key .. ".seg.txt\n" .. key .. ".txt\n", pipe:read "*a")
    pipe:close()
  end)

  it("raises for samples that cannot be written", function()
    local writer = data.TarWriter(files.path "no.tar")
    for _, case in ipairs {{{txt = ""}, "a name __key__ is needed"},
      {{__key__ = "a.b"}, "without a dot"}, {{__key__ = "a", [1] = "x"}, "names are strings"},
      {{__key__ = "a", cls = 0}, "an integer from 1 on is needed, got 0"},
      {{__key__ = "a", txt = 3}, "txt: a string is needed, got 3"},
      {{__key__ = "a", json = print}, "json: a function cannot"},
      {{__key__ = "a", npy = 3}, "npy: a tensor is needed"}, {3, "a table with a name"}} do
      assert.has_error_like(function() writer:write(case[1]) end, case[2])
    end
    assert.has_error_like(function() data.TarWriter(files.path "none/a.tar") end,
      "cannot write '.*none/a.tar': .*No such file")
    assert.equal("E_IO", moth.errcode())
  end)
end)

describe("a tar archive", function()
  local function member(name, text, kind)
    return fuzz.tar_of {{name, text, kind}}
  end

  local function read(text)
    local archive, list = tar.open(bytes.memory(text), "test"), {}
    local name, content = archive:next()
    while name do
      list[#list + 1] = name .. "=" .. content
      name, content = archive:next()
    end
    return list
  end

  it("has GNU's and pax's long names and sizes, folders and links", function()
    local list = read(fuzz.seeds.tar[2])
    assert.same({"d/" .. ("p"):rep(18) .. ".txt=abc", "y.bin=defghi"}, list)
    list = read(fuzz.seeds.tar[3])
    assert.equal(("n"):rep(150) .. '.json={"a": 1}', list[1])
    assert.equal("z.npy=", list[2]:sub(1, 6))
    assert.equal(2, #list)
  end)

  local good = member("a.txt", "text")
  for _, case in ipairs {
    {"is empty", "", "the archive is empty"},
    {"is no tar", ("x"):rep(600), "member 1 at byte 0 is broken: its checksum is no number"},
    {"has a wrong checksum", (good:gsub("a%.txt", "b.txt", 1)), "is no tar header"},
    {"is cut in a header", good:sub(1, 300), "ends in its header"},
    {"is cut in a file", good:sub(1, 514), "claims 4 bytes in a file of 514"},
    {"is cut before its end", good:sub(1, 1024), "member 2 at byte 1024 is missing: the archive"},
    {"claims gigabytes", fuzz.tar_of {{"a", "x", "0", 2 ^ 33 - 1}}, "claims 8589934591 bytes in"},
    {"has a sparse file", member("a", "", "S"), "is a sparse file", "E_UNSUPPORTED"},
    {"has a broken pax header", member("a", "5 path", "x"), "pax header is no list of records"},
    {"has a long pax header", fuzz.tar_of {{"a", "", "x", 2 ^ 30}}, "a name of 1073741824 bytes"},
    {"has a pax size that is no number", member("a", "10 size=x\n", "x"), "its size is no number"},
  } do
    it("raises an error if it " .. case[1], function()
      local fine, message = pcall(read, case[2])
      assert.is_false(fine)
      assert.is_truthy(message:find(case[3], 1, true), message)
      assert.equal(case[4] or "E_FORMAT", moth.errcode())
    end)
  end

  it("with two files of one name in a sample raises an error", function()
    local path = files.write("twice.tar", fuzz.tar_of {{"a.txt", "1"}, {"a.TXT", "2"}})
    assert.has_error_like(function() data.WebDataset(path):iter() () end,
      "sample 'a' has two files .'txt'")
  end)
end)

describe("random changes of", function()
  for _, kind in ipairs {"npy", "npz", "tar", "jsonl"} do
    it(kind .. " files crash no reader and give short errors", function()
      assert.is_true(fuzz.run(kind, 400, 7) > 0)
    end)
  end
end)
