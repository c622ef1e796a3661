--- folder.lua -- data.ImageFolder and data.DatasetFolder: a folder of files, with one folder for
-- each class.
--
--     pets/cat/1.jpg  pets/cat/2.jpg  pets/dog/1.jpg
--
--     local pets = data.ImageFolder("pets")
--     print(pets.classes[1], pets.class_to_idx.dog, pets:len())     --> cat  2  3
--     local x, label = pets:get(1)                                  -- u8 (3, height, width), 1LL
--
-- Classes and files are sorted by their bytes, as in torchvision: a sample has the same position in
-- both.

local ffi = require "ffi"
local calls = require "moth.binding.calls"
local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lib = require "moth.binding.lib"
local machine = require "moth.base.machine"
local dataset = require "moth.data.dataset"
local sent = require "moth.data.sent"
local sources = require "moth.data.source"

local folder = {}

local DEEPEST = 40     -- folders in folders; a link to a folder above it would never end
local MOST = 2 ^ 26    -- entries of one folder

local int64 = ffi.typeof "int64_t"

--- The endings of pictures that torchvision's ImageFolder takes. Moth reads JPEG, PNG and WebP of
-- these; a file of another format raises an error when it is read.
folder.IMAGES = {".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"}

-- ---- listing ----

local function entries_of(fname, path)
  local list, read = machine.entries(path, MOST)
  if not read then
    errors.argument(fname, "root", "cannot read the folder " .. errors.path(path), "E_IO")
  end
  return list
end

-- Appends the folders below `path`, itself first, and their files.
local function walk(fname, path, depth, found)
  if depth > DEEPEST then
    errors.argument(fname, "root", ("%s is %d folders deep; a link may lead back to a folder above "
      .. "it"):format(errors.path(path), DEEPEST), "E_IO")
  end
  lib.poll()
  local here = {path = path}
  found[#found + 1] = here
  for _, entry in ipairs(entries_of(fname, path)) do
    if not entry.is_folder then here[#here + 1] = entry.name
    elseif entry.name ~= "." and entry.name ~= ".." then
      walk(fname, path .. "/" .. entry.name, depth + 1, found)
    end
  end
  return found
end

local function find_classes(fname, root)
  local classes, index = {}, {}
  for _, entry in ipairs(entries_of(fname, root)) do
    local special = entry.name == "." or entry.name == ".."
    if entry.is_folder and not special then classes[#classes + 1] = entry.name end
  end
  table.sort(classes)
  for i, name in ipairs(classes) do index[name] = i end
  if #classes == 0 then
    errors.argument(fname, "root", ("%s has no folders; each class has a folder of its files")
      :format(errors.path(root)), "E_IO")
  end
  return classes, index
end

local function ends_in(endings)
  local set = {}
  for _, ending in ipairs(endings) do set[ending:lower()] = true end
  return function(path)
    local name = path:match "[^/]*$":lower()
    for from in name:gmatch "()%." do
      if set[name:sub(from)] then return true end
    end
    return false
  end
end

-- The files of a class, sorted by folder, then by name.
local function files_of(fname, path, is_valid)
  local list = {}
  local folders = walk(fname, path, 1, {})
  table.sort(folders, function(a, b) return a.path < b.path end)
  for _, here in ipairs(folders) do
    table.sort(here)
    for _, name in ipairs(here) do
      local file = here.path .. "/" .. name
      if is_valid(file) then list[#list + 1] = file end
    end
  end
  return list
end

local function refuse_empty(fname, empty, extensions)
  local shown = table.concat(empty, ", ", 1, math.min(#empty, 10))
  errors.argument(fname, "root", ("there is no file for the class%s %s%s%s; allow_empty = true "
    .. "permits it"):format(#empty == 1 and "" or "es", errors.bare(shown, 200),
    #empty > 10 and ", ..." or "", extensions and " that ends in "
    .. table.concat(extensions, ", ") or ""), "E_IO")
end

-- Fills in samples, targets.
local function list_samples(self, fname, is_valid, extensions, allow_empty)
  local empty = {}
  for i, name in ipairs(self.classes) do
    local files = files_of(fname, self.root .. "/" .. name, is_valid)
    for _, path in ipairs(files) do
      local n = #self.samples + 1
      self.samples[n], self.targets[n] = {path, i}, i
    end
    if #files == 0 then empty[#empty + 1] = name end
  end
  if #empty > 0 and not allow_empty then refuse_empty(fname, empty, extensions) end
end

-- ---- DatasetFolder ----

local ANY = "a function; with num_workers a transform of moth.transforms or a data.source"
local TRANSFORM = {"any", "transform", "changes what the loader returns: " .. ANY, optional = true}
local TARGET = {"any", "target_transform", "changes the class's number: " .. ANY, optional = true}
local VALID = {"any", "is_valid_file", "returns true for the path of a sample: " .. ANY,
               optional = true}
local EMPTY = {"bool", "allow_empty", "are classes without files allowed?", default = false}
local ROOT = {"string", "root", "the folder, with a folder for each class"}

local DatasetFolder = class("DatasetFolder", dataset.Dataset)
folder.DatasetFolder = DatasetFolder

DatasetFolder.signature = define.signature("DatasetFolder", {
  ROOT, {"any", "loader", "reads a sample by its path: " .. ANY},
  {"any", "extensions", "a list of endings, {'.txt'}, or is_valid_file", optional = true},
  TRANSFORM, TARGET, VALID, EMPTY,
})

local FUNCTIONS = {"loader", "transform", "target_transform", "is_valid_file"}

local function check_functions(self, fname, given)
  for _, name in ipairs(FUNCTIONS) do
    local value = given[name]
    if value ~= nil and not calls.is_callable(value) then
      errors.refuse(fname, name, "a function is needed", value, "E_TYPE")
    end
    self[name] = value
  end
end

-- In a worker: the files that the host has listed.
local function take_listed(self, given)
  self.classes, self.class_to_idx = given.classes, {}
  for i, name in ipairs(self.classes) do
    self.class_to_idx[name] = i
    for path in given.listed[i]:gmatch "[^%z]+" do
      local n = #self.samples + 1
      self.samples[n], self.targets[n] = {self.root .. "/" .. path, i}, i
    end
  end
end

local function init(self, fname, given)
  check_functions(self, fname, given)
  local extensions = given.extensions
  if type(extensions) == "string" then extensions = {extensions} end
  if (extensions == nil) == (given.is_valid_file == nil) then
    errors.argument(fname, "extensions", "either extensions or is_valid_file is needed, "
      .. (extensions and "got both" or "got neither"))
  end
  self.root = #given.root > 1 and given.root:gsub("/+$", "") or given.root
  self.extensions, self.samples, self.targets = extensions, {}, {}
  if given.listed then return take_listed(self, given) end
  self.classes, self.class_to_idx = find_classes(fname, self.root)
  local is_valid = given.is_valid_file or ends_in(extensions)
  list_samples(self, fname, is_valid, extensions, given.allow_empty)
end

--- A dataset of files: each folder in `root` is a class, and the files in it, and in folders in it,
-- are its samples. A sample is what the loader returns, and the number of its class as an int64.
-- The field `classes` has the names: set.classes[1].
-- @param root        the folder
-- @param loader      function(path), which reads a sample
-- @param extensions  a list of endings of file names, in lower or upper case: {".txt"}
-- @param transform   function(sample), which returns the changed sample
-- @param target_transform  function(class), which returns the changed number
-- @param is_valid_file     function(path), which returns true for samples, instead of extensions
-- @param allow_empty       are classes without files allowed (default false)?
--
-- Fields: `classes`, sorted names; `class_to_idx`, name to number, from 1; `samples`, a list of
-- {path, class}; `targets`, a list of classes. For num_workers a function must be a transform of
-- moth.transforms or a data.source(...), or the dataset is made in a module:
-- DataLoader{data.source("pets:train")}.
-- Raises E_IO for a folder that cannot be read, and without classes or files.
-- Source: torchvision.datasets.DatasetFolder
function DatasetFolder:init(root, loader, extensions, transform, target_transform, is_valid_file,
    allow_empty)
  init(self, "DatasetFolder", {root = root, loader = loader, extensions = extensions,
    transform = transform, target_transform = target_transform, is_valid_file = is_valid_file,
    allow_empty = allow_empty})
end

function DatasetFolder:len() return #self.samples end

function DatasetFolder:get(i)
  local entry = self.samples[dataset.position("get", i, #self.samples)]
  local sample, target = self.loader(entry[1]), entry[2]
  if self.transform then sample = self.transform(sample) end
  if self.target_transform then return sample, (self.target_transform(target)) end
  return sample, int64(target)
end

-- The names of the files of each class, without the root, as one string: a folder may have millions
-- of files.
local function listed(self)
  local texts, from = {}, #self.root + 2
  for i = 1, #self.classes do texts[i] = {} end
  for _, entry in ipairs(self.samples) do
    local list = texts[entry[2]]
    list[#list + 1] = entry[1]:sub(from)
  end
  for i, list in ipairs(texts) do texts[i] = table.concat(list, "\0") end
  return texts
end

-- Workers read the same files, even if the folder changes.
local function worker(self, name, base)
  if class.of(self) ~= base then return nil end
  local given = {root = self.root, extensions = self.extensions, classes = self.classes,
                 min_size = self.min_size, listed = listed(self)}
  for _, field in ipairs(FUNCTIONS) do
    local value = self[field]
    if value ~= nil and value ~= self.default_loader and field ~= "is_valid_file" then
      local written, why = sent.write(value)
      if written == nil then
        errors.argument("DataLoader", "num_workers", ("the %s of %s %s %s, which cannot be sent to "
          .. "a worker, another Lua state: put it into a module and write %s = "
          .. "data.source(\"module:name\"), or leave num_workers at 0"):format(field, name,
          type(value) == "function" and "is" or "has", why, field), "E_UNSUPPORTED")
      end
      given[field] = written
    end
  end
  return sources.source("moth.data.folder:remade", name, given)
end

function DatasetFolder:worker() return worker(self, "DatasetFolder", DatasetFolder) end

-- ---- ImageFolder ----

local ImageFolder = class("ImageFolder", DatasetFolder)
folder.ImageFolder = ImageFolder

ImageFolder.signature = define.signature("ImageFolder", {
  ROOT, TRANSFORM, TARGET,
  {"any", "loader", "reads a picture by its path; default: moth.io.read_image with mode 'rgb'; "
   .. ANY,
   optional = true},
  VALID, EMPTY,
  {"int2?", "min_size", "for the default loader: large JPEG files are decoded at 1/2, 1/4 or 1/8 "
    .. "of their size, the smallest with both sides at least this long", optional = true},
})

local function default_loader(min_size)
  local read = require("moth.io").read_image
  return function(path) return (read(path, "rgb", false, min_size)) end
end

local function init_images(self, given)
  self.min_size = given.min_size
  if not given.loader then
    given.loader = default_loader(given.min_size)
    self.default_loader = given.loader
  end
  if not given.is_valid_file then given.extensions = folder.IMAGES end
  init(self, "ImageFolder", given)
  self.imgs = self.samples
end

--- A dataset of pictures: each folder in `root` is a class, and the pictures in it, and in folders
-- in it, are its samples. A sample is a picture, uint8 (3, height, width), and the number of its
-- class as an int64. The field `classes` has the names: set.classes[1]. The default loader drops
-- transparency: a transparent pixel has the color that the file stores for it, often black.
-- @param root        the folder
-- @param transform   function(picture), for example a moth.transforms.Compose
-- @param target_transform  function(class), which returns the changed number
-- @param loader            function(path), which returns a picture (default: read_image, "rgb")
-- @param is_valid_file     function(path), which returns true for samples; default: by the ending,
-- .jpg .jpeg .png .ppm .bmp .pgm .tif .tiff .webp
-- @param allow_empty       are classes without files allowed (default false)?
-- @param min_size          {height, width}: JPEG files are decoded at 1/2, 1/4 or 1/8 of their
-- size, the smallest with both sides at least this long. Much faster for photographs; pixels differ
-- slightly from those of a full picture that is resized.
--
-- Fields and errors as for DatasetFolder; `imgs` is `samples`.
-- Source: torchvision.datasets.ImageFolder
function ImageFolder:init(root, transform, target_transform, loader, is_valid_file, allow_empty,
    min_size)
  init_images(self, {root = root, transform = transform, target_transform = target_transform,
    loader = loader, is_valid_file = is_valid_file, allow_empty = allow_empty,
    min_size = min_size})
end

function ImageFolder:worker() return worker(self, "ImageFolder", ImageFolder) end

--- Makes the dataset of a worker: its files were listed by the host.
function folder.remade(name, given)
  given.is_valid_file = nil
  given.extensions = given.extensions or {}
  for _, field in ipairs(FUNCTIONS) do given[field] = sent.read(given[field]) end
  local self = {}
  class.become(self, folder[name])
  if name == "ImageFolder" then init_images(self, given) else init(self, name, given) end
  return self
end

return folder
