-- data.ImageFolder and data.DatasetFolder: classes, the order of samples, workers, errors.

local lfs = require "lfs"
local moth = require "moth"
local files = require "spec.support.files"
local data = moth.data

setup(files.setup)
teardown(files.teardown)

local GIF = "GIF87a\2\0\1\0\129\0\0\255" .. ("\0"):rep(11) .. ",\0\0\0\0\2\0\1\0\0\8\5\0\1\0\8\8\0;"

local function folder(name)
  assert(lfs.mkdir(files.path(name)))
  return files.path(name)
end

-- A tree of files: {["cat/1.gif"] = text}; folders are made.
local function tree(name, contents)
  local root, made = folder(name), {}
  local paths = {}
  for path in pairs(contents) do paths[#paths + 1] = path end
  table.sort(paths)
  for _, path in ipairs(paths) do
    for at in path:gmatch "()/" do
      local part = name .. "/" .. path:sub(1, at - 1)
      if not made[part] then
        folder(part)
        made[part] = true
      end
    end
    files.write(name .. "/" .. path, contents[path])
  end
  return root
end

local function error_of(f, ...)
  local fine, text = pcall(f, ...)
  assert.is_false(fine)
  return text, moth.errcode()
end

local function relative(set)
  local list = {}
  for i, sample in ipairs(set.samples) do
    list[i] = sample[1]:sub(#set.root + 2) .. " " .. sample[2]
  end
  return list
end

local function is_gif(path) return path:find "%.gif$" ~= nil end

describe("DatasetFolder", function()
  local root

  setup(function()
    root = tree("texts", {["b/2.txt"] = "two", ["b/1.TXT"] = "one", ["b/sub/0.txt"] = "zero",
      ["b-x/9.txt"] = "nine", ["a/x.txt"] = "x", ["a/x.bin"] = "no", ["a/txt"] = "no",
      ["top.txt"] = "no"})
  end)

  local function load(path)
    local file = assert(io.open(path))
    local text = file:read "*a"
    file:close()
    return text
  end

  it("lists classes and files in torchvision's order", function()
    local set = data.DatasetFolder(root, load, {".txt"})
    assert.same({"a", "b", "b-x"}, set.classes)
    assert.same({a = 1, b = 2, ["b-x"] = 3}, set.class_to_idx)
    assert.same({"a/x.txt 1", "b/1.TXT 2", "b/2.txt 2", "b/sub/0.txt 2", "b-x/9.txt 3"},
      relative(set))
    assert.same({1, 2, 2, 2, 3}, set.targets)
    assert.equal(5, set:len())
    assert.equal("DatasetFolder of 5 samples", tostring(set))
  end)

  it("reads a sample and its class", function()
    local set = data.DatasetFolder{root, load, {".txt"}}
    assert.same({"two", 2LL}, {set:get(3)})
    assert.same({"nine", 3LL}, {set:get(-1)})
    set = data.DatasetFolder{root, load, {".txt"}, transform = string.upper,
      target_transform = function(class) return class * 10 end}
    assert.same({"TWO", 20}, {set:get(3)})
  end)

  it("chooses files by a function", function()
    local set = data.DatasetFolder{root, load, allow_empty = true,
      is_valid_file = function(path) return path:find "x%.bin$" ~= nil end}
    assert.same({"a/x.bin 1"}, relative(set))
  end)

  it("takes the files of a folder behind a link, and refuses a link to a folder above", function()
    if jit.os == "Windows" then return pending "links need rights on Windows" end
    local linked = tree("linked", {["real/1.txt"] = "1"})
    assert(lfs.link("../texts/b", linked .. "/other", true))
    assert.same({"other/1.TXT 1", "other/2.txt 1", "other/sub/0.txt 1", "real/1.txt 2"},
      relative(data.DatasetFolder(linked, load, {".txt"})))
    assert(lfs.link("..", linked .. "/real/up", true))
    local text = error_of(data.DatasetFolder, linked, load, {".txt"})
    assert.is_truthy(text:find("a link may lead back to a folder above", 1, true), text)
  end)

  it("says what is wrong with a folder and with arguments", function()
    local text, code = error_of(data.DatasetFolder, files.path "none", load, {".txt"})
    assert.is_truthy(text:find("bad argument 'root' to 'DatasetFolder' (cannot read the folder", 1,
      true), text)
    assert.equal("E_IO", code)
    text = error_of(data.DatasetFolder, root .. "/a", load, {".txt"})
    assert.is_truthy(text:find("has no folders; each class has a folder", 1, true), text)
    text = error_of(data.DatasetFolder, root, load, {".gif"})
    assert.is_truthy(text:find("no file for the classes a, b, b-x that ends in .gif", 1, true),
      text)
    text = error_of(data.DatasetFolder, root, load)
    assert.is_truthy(text:find("either extensions or is_valid_file is needed", 1, true), text)
    text = error_of(data.DatasetFolder, root, 3, {".txt"})
    assert.is_truthy(text:find("bad argument 'loader' to 'DatasetFolder'", 1, true), text)
  end)
end)

describe("ImageFolder", function()
  local root

  setup(function()
    root = tree("pets", {["cat/1.gif"] = GIF, ["cat/2.gif"] = GIF, ["dog/3.gif"] = GIF,
      ["dog/broken.gif"] = "GIF89a", ["dog/notes.txt"] = "no"})
  end)

  local function good(path) return is_gif(path) and not path:find "broken" end

  it("returns pictures of 3 channels and classes from 1", function()
    local set = data.ImageFolder{root, is_valid_file = good}
    local x, label = set:get(3)
    assert.same({{{255, 255}}, {{0, 0}}, {{0, 0}}}, x:tolist())
    assert.equal(2LL, label)
    assert.equal(set.samples, set.imgs)
    local batch, labels
    for a, b in data.DataLoader{set, batch_size = 3} do batch, labels = a, b end
    assert.same({3, 3, 1, 2}, {unpack(batch.shape)})
    assert.same({1, 1, 2}, {labels[1]:item(), labels[2]:item(), labels[3]:item()})
  end)

  it("takes torchvision's endings", function()
    local all = {}
    for _, ending in ipairs {"jpg", "JPEG", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp",
                             "gif", "txt"} do
      all["a/x." .. ending] = "x"
    end
    assert.equal(9, data.ImageFolder(tree("endings", all)):len())
  end)

  it("names the file of a broken picture", function()
    local set = data.ImageFolder{root, is_valid_file = is_gif}
    local text = error_of(set.get, set, 4)
    assert.is_truthy(text:find("dog/broken.gif' is broken", 1, true), text)
  end)

  it("gives workers its files and its transforms", function()
    local T = moth.transforms
    local set = data.ImageFolder{root, is_valid_file = good, transform = T.Compose{
      T.RandomResizedCrop(4), T.RandomHorizontalFlip(), T.ToDtype(moth.float32, {scale = true}),
      T.Normalize({0.5, 0.5, 0.5}, {0.2, 0.3, 0.4})}}
    local function epoch(workers)
      moth.manual_seed(3)
      local all, labels = {}, {}
      for x, y in data.DataLoader{set, batch_size = 1, num_workers = workers, shuffle = true} do
        all[#all + 1], labels[#labels + 1] = x, y:item()
      end
      return moth.cat(all), labels
    end
    local x, labels = epoch(1)
    local other, other_labels = epoch(2)
    assert.same({3, 3, 4, 4}, {unpack(x.shape)})
    assert.is_true(x:equal(other))
    assert.same(labels, other_labels)
  end)

  it("says why a function cannot be sent to workers", function()
    local set = data.ImageFolder{root, is_valid_file = good, transform = function(x) return x end}
    local text = error_of(data.DataLoader, {set, num_workers = 1})
    assert.is_truthy(text:find("the transform of ImageFolder is a function, which cannot be sent "
      .. "to a worker, another Lua state: put it into a module and write transform = data.source(",
      1, true), text)
    local T = moth.transforms
    set = data.ImageFolder{root, is_valid_file = good,
      transform = T.Compose{T.Resize(4), T.Lambda(function(x) return x end)}}
    text = error_of(data.DataLoader, {set, num_workers = 1})
    assert.is_truthy(text:find("ImageFolder has a function, which cannot be sent", 1, true), text)
  end)
end)
