-- event_files.lua -- reads event files with random changes: no input may crash the reader, hang it,
-- or raise an error without a code and a short message.
--
--   ./moth spec/fuzz/event_files.lua [CASES] [SEED]
--
-- The bytes end where a page without access begins, so that one byte read beyond them ends the
-- process. Most inputs get correct lengths and checksums, so that the messages are read.
-- tensorboard_spec.lua runs some of them.

local ffi = require "ffi"
local moth = require "moth"
local bytes = require "moth.io.bytes"
local crc32c = require "moth.utils.tensorboard.crc32c"

ffi.cdef [[
void *moth_spec_map(void *, size_t, int, int, int, long) __asm__("mmap");
int moth_spec_protect(void *, size_t, int) __asm__("mprotect");
]]

local PAGE = 4096

local event_files = {}

-- The bytes of a file with all kinds of values.
local function whole_file()
  local folder = os.tmpname() .. ".run"
  local writer = moth.utils.tensorboard.SummaryWriter(folder)
  local path = writer.file.path
  writer:add_scalar("a", 1, 1)
  writer:add_text("note", "hello", 2)
  writer:add_histogram("h", moth.arange(5), 3, 4)
  writer:add_pr_curve("p", moth.tensor {0, 1, 1}, moth.tensor {0.1, 0.5, 0.9}, 1, 5)
  writer:add_image("i", moth.rand(3, 2, 2), 1)
  writer:close()
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  os.remove(path)
  os.execute(("rmdir %q"):format(folder))
  return text
end

local function put_checksum(data, at, size)
  ffi.copy(data + at + size, ffi.new("int32_t[1]", crc32c.masked(data, at, size)), 4)
end

-- Lengths below 65536, and the checksums of all records.
local function correct(data, size)
  local at = 0
  while at + 12 <= size do
    local length = data[at] + 256 * data[at + 1]
    for k = 2, 7 do data[at + k] = 0 end
    put_checksum(data, at, 8)
    if at + length + 16 > size then return end
    put_checksum(data, at + 12, length)
    at = at + length + 16
  end
end

-- A file of bytes.lua over memory that is not copied.
local function file_over(data, size)
  local file = bytes.open(bytes.memory "x", "read")
  file.start, file.size = ffi.cast("const uint8_t *", data), size
  return file
end

--- Reads inputs. @return how many were read to their end
function event_files.run(cases, seed)
  math.randomseed(seed)
  local whole = whole_file()
  local room = math.ceil(#whole / PAGE) * PAGE
  local base = ffi.cast("uint8_t *", ffi.C.moth_spec_map(nil, room + PAGE, 3, 0x22, -1, 0))
  assert(ffi.C.moth_spec_protect(base + room, PAGE, 0) == 0)
  local open, good = bytes.open, 0
  for _ = 1, cases do
    local size = math.random() < 0.3 and math.random(1, #whole) or #whole
    local data = base + room - size
    ffi.copy(data, whole, size)
    for _ = 1, math.random(4) do
      data[math.random(0, size - 1)] = math.random() < 0.5 and 255 or math.random(0, 255)
    end
    if math.random() < 0.9 then correct(data, size) end
    local file = file_over(data, size)
    bytes.open = function() return file end
    local ok, problem = pcall(function()
      for _ in moth.utils.tensorboard.read {bytes = "x"} do end -- luacheck: ignore
    end)
    bytes.open = open
    if ok then
      good = good + 1
    else
      assert(moth.errcode() == "E_FORMAT" and #problem < 300, problem)
    end
  end
  return good
end

if arg and arg[0] and arg[0]:find "event_files%.lua$" then
  local cases = tonumber(arg[1]) or 100000
  local good = event_files.run(cases, tonumber(arg[2]) or 1)
  print(("%d inputs, %d read to their end, the others refused"):format(cases, good))
end

return event_files
