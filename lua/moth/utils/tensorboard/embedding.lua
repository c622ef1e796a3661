--- embedding.lua -- files of TensorBoard's PROJECTOR page: a table of vectors, a table of labels, a
-- picture of all pictures, and a list of what there is.

local bytes = require "moth.io.bytes"
local errors = require "moth.error"
local machine = require "moth.base.machine"
local scope = require "moth.tensor.scope"

local embedding = {}

local function save(path, text) bytes.save(path, {text}, "add_embedding", false) end

local function cell(value) return (tostring(value):gsub("[\t\r\n]", " ")) end

local function vectors(mat)
  local lines = {}
  for i, row in ipairs(mat:tolist()) do
    local cells = {}
    for k, x in ipairs(row) do cells[k] = ("%.9g"):format(x) end
    lines[i] = table.concat(cells, "\t") .. "\n"
  end
  return table.concat(lines)
end

local function labels(metadata, header)
  local lines = {}
  if header then
    for i, name in ipairs(header) do header[i] = cell(name) end
    lines[1] = table.concat(header, "\t") .. "\n"
  end
  for _, row in ipairs(metadata) do
    local cells = {}
    for k, value in ipairs(type(row) == "table" and row or {row}) do cells[k] = cell(value) end
    lines[#lines + 1] = table.concat(cells, "\t") .. "\n"
  end
  return table.concat(lines)
end

-- All pictures in a square of rows, as PNG.
local sprite = scope.inside(function(images)
  local moth = require "moth"
  local n, c, h, w = unpack(images.shape)
  local columns = math.ceil(math.sqrt(n))
  local all = moth.zeros(columns * columns, c, h, w, {dtype = images.dtype})
  all:narrow(1, 1, n):copy_(images)
  all = all:view(columns, columns, c, h, w):permute(3, 1, 4, 2, 5):reshape(c, columns * h,
    columns * w)
  local pixels = require("moth.utils.tensorboard.picture").pixels(all, "CHW", "add_embedding")
  return (require("moth.io.png").encode(pixels))
end)

local function quoted(text) return '"' .. text:gsub('["\\]', "\\%0") .. '"' end

-- '%' and slashes of a tag, which is the name of a folder.
local function encoded(tag)
  return (tag:gsub("[%%/\\]", function(c) return ("%%%02x"):format(c:byte()) end))
end

--- Writes the files of an embedding. Returns its entry in the list of the page.
-- @param folder    the run's folder
-- @param mat       (N, D), on the CPU
-- @param metadata  N labels, or rows of labels; nil: none
-- @param images    (N, C, H, W); nil: none
-- @param header    names of the columns of metadata; nil: one column
function embedding.write(folder, mat, metadata, images, step, tag, header)
  local name = ("%05d/%s"):format(step, encoded(tag))
  local path = folder .. "/" .. name
  machine.make_folders(path)
  save(path .. "/tensors.tsv", vectors(mat))
  local entry = {"embeddings {", "  tensor_name: " .. quoted(("%s:%05d"):format(tag, step)),
                 "  tensor_path: " .. quoted(name .. "/tensors.tsv")}
  if metadata then
    if #metadata ~= mat:size(1) then
      errors.argument("add_embedding", "metadata", ("%d labels for %d vectors"):format(#metadata,
        mat:size(1)), "E_SHAPE")
    end
    save(path .. "/metadata.tsv", labels(metadata, header))
    entry[#entry + 1] = "  metadata_path: " .. quoted(name .. "/metadata.tsv")
  end
  if images then
    if images:dim() ~= 4 or images:size(1) ~= mat:size(1) then
      errors.argument("add_embedding", "label_img", ("%s for %d vectors; (N, C, H, W) is needed")
        :format(errors.describe(images), mat:size(1)), "E_SHAPE")
    end
    save(path .. "/sprite.png", sprite(images))
    entry[#entry + 1] = ("  sprite {\n    image_path: %s\n    single_image_dim: %d\n    "
      .. "single_image_dim: %d\n  }"):format(quoted(name .. "/sprite.png"), images:size(4),
      images:size(3))
  end
  return table.concat(entry, "\n") .. "\n}\n"
end

--- Writes the list of the page.
-- @param entries  a list of texts
function embedding.write_list(folder, entries)
  save(folder .. "/projector_config.pbtxt", table.concat(entries))
end

return embedding
