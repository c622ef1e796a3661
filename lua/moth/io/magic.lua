--- magic.lua -- detects the format of a file by its first bytes and by the ending of its name.

local magic = {}

local READ = "; moth.load reads safetensors, .npy, .npz, .pth, .t7, GGUF and ONNX files"

local PICTURE, SOUND = "moth.io.read_image", "moth.audio.load"

-- First bytes (a pattern) -> the format, and the function that reads it instead of moth.load.
local KINDS = {
  {"^\137PNG\r\n", "a PNG picture", PICTURE}, {"^\255\216\255", "a JPEG picture", PICTURE},
  {"^GIF8[79]a", "a GIF picture", PICTURE}, {"^BM....%z%z%z%z", "a BMP picture"},
  {"^RIFF....WEBP", "a WebP picture", PICTURE}, {"^RIFF....WAVE", "a WAV sound", SOUND},
  {"^II%*%z", "a TIFF picture"}, {"^MM%z%*", "a TIFF picture"}, {"^OggS", "an Ogg sound", SOUND},
  {"^fLaC", "a FLAC sound", SOUND}, {"^ID3", "an MP3 sound", SOUND},
  {"^\137HDF\r\n", "an HDF5 file"},
  {"^PAR1", "a Parquet table"}, {"^ARROW1", "an Arrow table"},
  {"^%%PDF", "a PDF document"}, {"^SQLite format 3", "an SQLite database"},
  {"^%z%z[\8-\14][\1-\8]", "an idx file", "moth.data.idx"},
  {"^\31\139", "compressed by gzip", "gzip -d, or moth.data.idx and csv, which read it"},
  {"^BZh[1-9]", "compressed by bzip2", "bzip2 -d"},
  {"^\253" .. "7zXZ", "compressed by xz", "xz -d"}, {"^\40\181\47\253", "compressed by zstd"},
  {"^7z\188\175", "a 7z archive"}, {"^%z%z%z.ftyp", "a video"},
  {"^....TFL3", "a model of TensorFlow Lite"}, {"^lmgg", "an old GGML file"},
  {"^#!", "a script"}, {"^<[!?%a]", "HTML or XML: a download page, perhaps"},
  {"^version https://git%-lfs", "a pointer of Git LFS, not the file itself; git lfs pull"},
  {"^%[net", "a configuration of Darknet", "moth.darknet.load"},
}

-- A safetensors file begins with the length of a JSON text; the text begins with a brace.
local function is_safetensors(start) return start:find "^......%z%z%{" ~= nil end

-- Torch7's tables and objects begin with two numbers of 4 bytes: a type and an index.
local function is_torch7(start) return start:find "^[\3\4]%z%z%z\1%z%z%z" ~= nil end

-- A protocol buffer whose first field is the version of ONNX's format, or the producer's name.
local function is_onnx(start)
  return start:find "^[\8]?[\3-\15]?\18[%z\1-\40][%w.-]*\26" or start:find "^\8[\3-\15][\18\58]"
end

local function is_text(start) return #start > 0 and not start:find "[^%g%s]" end

-- Lua's strings by themselves: "%z" is a NUL in a pattern.
local function unknown(start)
  if #start == 0 then return "is empty" end
  for _, row in ipairs(KINDS) do
    if start:find(row[1]) then
      return "is " .. row[2] .. (row[3] and "; use " .. row[3] or READ)
    end
  end
  if start:sub(258, 262) == "ustar" then return "is a tar archive; unpack it first" end
  if start:find "^\128[\2-\5]" then
    return "is a pickle that torch.save did not write" .. READ
  end
  if is_text(start) then return "is text" .. READ end
end

--- The module that reads a file with these first bytes.
-- @param start  up to 264 of them
-- @param named_t7  whether the name ends in .t7; the bytes of Torch7 files are not distinctive
-- @return the module's name; nil for safetensors; or nil and the format if no module reads it
function magic.reader(start, named_t7)
  -- zip archives of torch.save and numpy.savez, and torch.save's pickles of before PyTorch 1.6
  if start:find "^PK\3\4" or start:find "^\128\2\138\10l\252\156F\249" then
    return "moth.io.pickle"
  end
  if start:find "^PK\5\6" then return "moth.io.npz" end -- without members
  if start:find "^\147NUMPY" then return "moth.io.npy" end
  if start:find "^GGUF" then return "moth.gguf" end
  if is_safetensors(start) then return nil end
  if named_t7 or is_torch7(start) then return "moth.io.t7" end
  if is_onnx(start) then return "moth.onnx.load" end
  return nil, unknown(start)
end

-- Endings of names whose readers cannot read safetensors.
local ENDINGS = {pt = "torch.load", pth = "torch.load", t7 = "Torch7", gguf = "GGUF",
  h5 = "HDF5", hdf5 = "HDF5", pkl = "pickles", pickle = "pickles", json = "JSON", csv = "tables",
  zip = "archives", gz = "archives", txt = "text", mat = "MATLAB", parquet = "tables",
  feather = "tables", arrow = "tables", weights = "Darknet"}

-- Endings that another function of Moth writes.
local OTHERS = {onnx = "moth.onnx.export(net, inputs, path)", png = "moth.io.write_png",
  jpg = "moth.io.write_jpeg", jpeg = "moth.io.write_jpeg", wav = "moth.io.write_wav",
  jsonl = "moth.data.write_json_lines(rows, path)", tar = "moth.data.TarWriter(path)"}

--- The module that writes a file with this name.
-- @return the module's name; nil for safetensors, and then the reason if readers of such names
-- cannot read safetensors
function magic.writer(path)
  local ending = (path:match "%.(%w+)$" or ""):lower()
  if ending == "npy" or ending == "npz" then return "moth.io." .. ending end
  local known = "save writes .safetensors, .npy and .npz files"
  if ENDINGS[ending] then
    return nil, ("%s, which readers of %s (.%s) cannot read"):format(known, ENDINGS[ending], ending)
  end
  return nil, OTHERS[ending] and ("%s; use %s"):format(known, OTHERS[ending]) or nil
end

return magic
