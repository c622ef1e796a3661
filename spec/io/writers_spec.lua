-- Functions that write a file: if they cannot, the error names the function, its argument and the
-- reason, and nothing is left in the folder.

local lfs = require "lfs"
local moth = require "moth"
local fails = require("spec.support.refusals").fails
local files = require "spec.support.files"

setup(files.setup)
teardown(files.teardown)

local x, picture = moth.ones(3, 4), moth.zeros({3, 4, 4}, {dtype = moth.uint8})
local profile = moth.profiler.profile(function() moth.ones(3):exp() end)

-- The function and its argument in messages, the ending of the file, a call.
local WRITERS = {
  {"save", "path", ".safetensors", function(path) moth.save({x = x}, path) end},
  {"save", "path", ".npy", function(path) moth.save(x, path) end},
  {"save", "path", ".npz", function(path) moth.save({x = x}, path) end},
  {"onnx.export", "path", ".onnx", function(path)
    moth.onnx.export(moth.nn.Linear(2, 1), moth.ones(1, 2), path)
  end},
  {"write_json_lines", "path", ".jsonl", function(path)
    moth.data.write_json_lines({{a = 1}}, path)
  end},
  {"write_file", "filename", "", function(path) moth.io.write_file(path, picture:view(-1)) end},
  {"write_png", "filename", ".png", function(path) moth.io.write_png(picture, path) end},
  {"write_jpeg", "filename", ".jpg", function(path) moth.io.write_jpeg(picture, path) end},
  {"save_image", "fp", ".png", function(path)
    moth.utils.save_image(moth.rand(3, 4, 4), path)
  end},
  {"save", "path", ".wav", function(path) moth.audio.save(path, moth.zeros(1, 100), 8000) end},
  {"save", "path", ".svg", function(path) moth.plot.lines {{1, 2, 3}}:save(path) end},
  {"export_chrome_trace", "path", ".json", function(path) profile:export_chrome_trace(path) end},
}

local function available(write) -- a codec may be missing
  local ok, problem = pcall(write)
  return ok or not tostring(problem):find("E_UNSUPPORTED", 1, true)
    and moth.errcode() ~= "E_UNSUPPORTED" and not tostring(problem):find "install"
end

local function entries(folder)
  local list = {}
  for name in lfs.dir(folder) do list[#list + 1] = name end
  table.sort(list)
  return list
end

for _, row in ipairs(WRITERS) do
  local name, argument, ending, write = unpack(row)
  describe(("%s of a %s file"):format(name, ending), function()
    local message = ("bad argument '%s' to '%s' (cannot write '"):format(argument, name)

    it("raises if the folder is missing", function()
      if not available(function() write(files.path("fine" .. ending)) end) then return end
      local path = files.path("none/file" .. ending)
      fails(message .. path .. "': No such file or directory", write, path)
      assert.equal("E_IO", moth.errcode())
    end)

    it("raises if the name is that of a folder, and leaves it as it was", function()
      if not available(function() write(files.path("fine" .. ending)) end) then return end
      local path = files.path("folder" .. ending)
      lfs.mkdir(path)
      lfs.mkdir(path .. "/inside")
      local before = entries(files.path "")
      fails(message .. path .. "': ", write, path)
      assert.same(before, entries(files.path ""))
      assert.same({".", "..", "inside"}, entries(path))
      lfs.rmdir(path .. "/inside")
      lfs.rmdir(path)
    end)
  end)
end
