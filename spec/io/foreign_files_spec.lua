-- Every file reader raises at once for a path that is no file, with its name, and shows names from
-- a file without control characters.

local json = require "moth.json"
local moth = require "moth"
local files = require "spec.support.files"

setup(files.setup)
teardown(files.teardown)

local CFG = "[net]\nwidth=8\nheight=8\nchannels=1\n[convolutional]\nfilters=1\nactivation=linear\n"

local readers = {
  ["moth.load"] = moth.load,
  ["moth.load without mapping"] = function(path) return moth.load(path, { mmap = false }) end,
  ["moth.open"] = moth.open,
  ["moth.gguf.load"] = moth.gguf.load,
  ["moth.gguf.open"] = moth.gguf.open,
  ["moth.onnx.load"] = moth.onnx.load,
  ["moth.darknet.load"] = moth.darknet.load,
  ["moth.darknet.parse"] = moth.darknet.parse,
  ["moth.darknet.load, its weights"] = function(path) return moth.darknet.load(CFG, path) end,
  ["data.csv"] = moth.data.csv,
  ["data.idx"] = moth.data.idx,
}

describe("a reader", function()
  for name, read in pairs(readers) do
    it("raises for a path that is no file: " .. name, function()
      local gone = files.path "gone"
      assert.matches("cannot open '" .. gone .. "': No such file", files.refusal(gone, read, gone),
        1, true)
      assert.equal("E_IO", moth.errcode())
      assert.matches("is a directory, not a file", files.refusal(files.folder, read, files.folder))
      assert.equal("E_IO", moth.errcode())
      assert.matches("a path cannot hold a NUL", files.refusal("", read, gone .. "\0x"))
      local pipe = files.path "pipe" -- opening it would wait
      if os.execute(("mkfifo '%s'"):format(pipe)) == 0 then
        assert.matches("is a device or a pipe", files.refusal(pipe, read, pipe))
        os.remove(pipe)
      end
    end)
  end

  it("of four files does not wait for a pipe", function()
    local pipe = files.path "train-images-idx3-ubyte"
    if os.execute(("mkfifo '%s'"):format(pipe)) ~= 0 then return end
    local problem = files.refusal(pipe, moth.data.mnist, files.folder)
    os.remove(pipe)
    assert.matches("was not found or cannot be read", problem)
  end)
end)

describe("an interrupt", function()
  it("stops a file reader that calls no op", function()
    local lib = require "moth.binding.lib"
    local path = files.write("a.csv", ("1,2\n"):rep(3000))
    local t = moth.data.csv(path)
    for _, f in ipairs { function() moth.data.csv(path) end, function() t:column(1) end,
      function() moth.data.idx(path) end } do
      lib.C.moth_cancel(lib.ctx, 1)
      local ok, message = pcall(f)
      lib.C.moth_cancel(lib.ctx, 0)
      assert.is_false(ok)
      assert.matches("interrupted", message)
      assert.equal("E_INTERRUPT", moth.errcode())
    end
    assert.equal(2999, moth.data.csv(path):len())
  end)
end)

describe("a long path", function()
  it("is shown with its end, which has the file's name", function()
    local lfs, folder = require "lfs", files.path(("é"):rep(100))
    assert(lfs.mkdir(folder))
    local path = folder .. "/é/that.csv"
    for _, read in ipairs { moth.load, moth.data.csv, moth.onnx.load } do
      assert.matches("cannot open '...é", files.refusal("ééé/é/that.csv'", read, path), 1, true)
    end
    path = folder .. "/aé/that.csv"
    assert(lfs.mkdir(folder .. "/aé"))
    assert(io.open(path, "w")):close()
    for _, read in ipairs { moth.load, moth.data.csv, moth.onnx.load } do
      assert.matches("'...é", files.refusal("ééé/aé/that.csv'", read, path), 1, true)
    end
    assert.matches("'...é", files.refusal("ééé/é/that.csv'", moth.save, {}, folder
      .. "/é/that.csv"), 1, true)
  end)
end)

describe("a name in a file is shown without control characters:", function()
  it("a path", function()
    for name, shown in pairs { ["\27[2J\n"] = "\\x1b[2J\\x0a", ["\194\155J"] = "\\xc2\\x9bJ",
      ["\255\127é"] = "\\xff\\x7fé" } do
      for _, read in ipairs { moth.load, moth.data.csv } do
        local path = files.path(name)
        assert.matches(shown .. "': No such file", files.refusal("", read, path), 1, true)
        files.write(name, "")
        assert.matches(shown .. "'", files.refusal("", read, path), 1, true)
        os.remove(path)
      end
    end
  end)

  local evil = json.string(files.evil):sub(2, -2)
  local entry = files.entry(evil, "F32", 2, 0, 4)

  it("a tensor of safetensors, and the contents of a checkpoint", function()
    local path = files.write("a.st", files.safetensors("{" .. entry .. "}", "1234"))
    files.refusal(path, moth.load, path)
    for _, kind in ipairs { '{"$tensor":"%s"}', '{"$%s":1}' } do
      local text = json.string(kind:format(evil))
      files.write("a.st", files.safetensors(('{"__metadata__":{"moth":%s}}'):format(text)))
      assert.matches("\\x1b[2J\\x0axxx", files.refusal(path, moth.load, path), 1, true)
    end
    files.write("a.st", files.safetensors(('{"__metadata__":{"moth.tied":%s}}'):format(json.string(
      ('{"%s":"b"}'):format(evil)))))
    files.refusal(path, moth.load, path)
  end)

  it("a tensor and an option of a state dict; of many names the first", function()
    local function safe(f, ...)
      local ok, message = pcall(f, ...)
      assert.is_false(ok)
      assert.is_true(#message < 2000 and not message:find "\27")
      return message
    end
    local net, given = moth.nn.Linear(2, 2), { [files.evil] = moth.ones(2) }
    assert.matches("unexpected: '\\x1b[2J\\x0axxx", safe(net.load_state_dict, net, given), 1, true)
    local outer = moth.nn.Sequential()
    outer:add_module(files.evil:sub(1, 300), net)
    for _, shown in ipairs { tostring(outer), tostring(outer:state_dict()) } do
      assert.is_true(#shown < 500 and not shown:find "\27")
    end
    safe(moth.func.functional_call, net, given, moth.ones(1, 2))
    safe(function() return moth.ones(2)["\27[2J"] end)
    local optimizer = moth.optim.SGD(net:parameters(), { lr = 1 })
    safe(optimizer.load_state_dict, optimizer, { state = {}, param_groups = {
      { params = { 0, 1 }, [files.evil] = 1 } } })
    for i = 1, 1000 do given["k" .. i] = moth.ones(1) end
    assert.matches("and 901 more", safe(net.load_state_dict, net, given))
  end)

  it("a column of a table, a field", function()
    local path = files.write("a.csv", ('"%s","%s"\n1,2\n'):format(files.evil, files.evil))
    files.refusal(path, moth.data.csv, path)
    files.write("a.csv", ('"%s",b\n1,2\n1,"%s"\n'):format(files.evil, files.evil))
    local t = moth.data.csv(path)
    files.refusal(path, t.column, t, 2, moth.float32)
    files.refusal(path, t.column, t, files.evil .. "x")
    t = moth.data.csv(path, { dtypes = { moth.uint8, moth.float32 } })
    files.refusal(path, t.get, t, 1)
  end)

  it("a line, a key and a value of a cfg", function()
    local long = files.evil:gsub("\n", "")
    local path = files.path "a.cfg"
    for _, text in ipairs { long, CFG .. "pad=" .. long, CFG .. "activation=" .. long,
      CFG:gsub("width=8", "width=" .. long), CFG:gsub("convolutional", ("x"):rep(1e6)) } do
      files.write("a.cfg", text)
      files.refusal(path, moth.darknet.load, path)
    end
  end)
end)
