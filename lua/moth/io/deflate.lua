--- deflate.lua -- compresses and expands bytes in memory by deflate, the method of zip archives:
-- with libdeflate, or else with zlib.

local ffi = require "ffi"
local bytes = require "moth.io.bytes"
local errors = require "moth.error"
local gzip = require "moth.io.gzip"
local lib = require "moth.binding.lib"

local deflate = {}

deflate.MISSING = "neither libdeflate nor zlib was found (Debian packages libdeflate0, zlib1g)"
deflate.MOST_PER_BYTE = 1032 -- the largest expansion of one byte

local LEVEL = 6     -- as zlib's default
local PIECE = 2 ^ 24 -- bytes between two checks for an interrupt

if not pcall(ffi.typeof, "moth_deflate_stream") then -- once per state
  ffi.cdef [[
  typedef struct moth_deflate_stream { /* zlib's z_stream */
    const uint8_t *next_in;
    unsigned avail_in;
    unsigned long total_in;
    uint8_t *next_out;
    unsigned avail_out;
    unsigned long total_out;
    const char *msg;
    void *state, *zalloc, *zfree, *opaque;
    int data_type;
    unsigned long adler, reserved;
  } moth_deflate_stream;
  int moth_inflate_begin(moth_deflate_stream *s, int bits, const char *version, int size)
    __asm__("inflateInit2_");
  int moth_inflate(moth_deflate_stream *s, int flush) __asm__("inflate");
  int moth_inflate_end(moth_deflate_stream *s) __asm__("inflateEnd");
  int moth_deflate_begin(moth_deflate_stream *s, int level, int method, int bits, int memory,
    int strategy, const char *version, int size) __asm__("deflateInit2_");
  int moth_deflate(moth_deflate_stream *s, int flush) __asm__("deflate");
  int moth_deflate_end(moth_deflate_stream *s) __asm__("deflateEnd");
  int moth_deflate_unpack(moth_gz_inflater *d, const void *from, size_t length, void *to,
    size_t room, size_t *made) __asm__("libdeflate_deflate_decompress");
  typedef struct moth_deflate_packer moth_deflate_packer;
  moth_deflate_packer *moth_deflate_packer_new(int level) __asm__("libdeflate_alloc_compressor");
  void moth_deflate_packer_free(moth_deflate_packer *c) __asm__("libdeflate_free_compressor");
  size_t moth_deflate_pack(moth_deflate_packer *c, const void *from, size_t length, void *to,
    size_t room) __asm__("libdeflate_deflate_compress");
  size_t moth_deflate_pack_zlib(moth_deflate_packer *c, const void *from, size_t length, void *to,
    size_t room) __asm__("libdeflate_zlib_compress");
  ]]
end

local VERSION, BARE, WRAPPED = "1.2.11", -15, 15 -- bits of the window; negative: no header
local FINISH, OK, END, STALLED = 4, 0, 1, -5

local function new_bytes(size)
  return require("moth").empty(size, {dtype = require("moth.tensor.dtype").by_name.uint8})
end

-- Runs zlib's stream over `length` bytes at `from` and `room` bytes at `to`.
-- @return the number of bytes written if the stream ended with the input, else nil
local function run(stream, step, from, length, to, room)
  local used, made, status = 0, 0, OK
  while status == OK or status == STALLED do
    lib.poll()
    local more, space = math.min(length - used, PIECE), math.min(room - made, PIECE)
    stream.next_in, stream.avail_in = from + used, more
    stream.next_out, stream.avail_out = to + made, space
    status = step(stream, used + more == length and FINISH or 0)
    local ate, wrote = more - stream.avail_in, space - stream.avail_out
    used, made = used + ate, made + wrote
    if ate == 0 and wrote == 0 and status ~= END then return nil end
  end
  return status == END and used == length and made or nil
end

local function with_zlib(begin, step, finish, from, length, to, room)
  local stream = ffi.new "moth_deflate_stream"
  if begin(stream) ~= OK then errors.raise("zlib has no memory", "E_MEM") end
  local fine, made = pcall(run, stream, step, from, length, to, room)
  finish(stream)
  if not fine then error(made, 0) end
  return made
end

local function expand(from, length, to, size)
  local library = gzip.find_deflate()
  if library then
    local inflater, made = library.moth_gz_inflater_new(), ffi.new "size_t[1]"
    if inflater == nil then errors.raise("libdeflate has no memory", "E_MEM") end
    local status = library.moth_deflate_unpack(inflater, from, length, to, size, made)
    library.moth_gz_inflater_free(inflater)
    return status == 0 and tonumber(made[0])
  end
  local zlib = gzip.find_zlib()
  return with_zlib(function(s)
    return zlib.moth_inflate_begin(s, BARE, VERSION, ffi.sizeof(s))
  end, zlib.moth_inflate, zlib.moth_inflate_end, from, length, to, size)
end

--- Expands bytes.
-- @param from, length  their address and number
-- @param size  the number of bytes that they expand to
-- @return a uint8 tensor; or nil and the reason, such as deflate.MISSING
function deflate.inflate(from, length, size)
  if not (gzip.find_deflate() or gzip.find_zlib()) then return nil, deflate.MISSING end
  local x = new_bytes(size)
  local made = expand(from, length, ffi.cast("uint8_t *", bytes.address(x)), size)
  if made ~= size then return nil, "does not expand to the bytes that it claims" end
  return x
end

-- More than deflate needs for any input: stored blocks of 16 KiB with 5 bytes each.
local function bound(n) return n + math.ceil(n / 5000) * 5 + 64 end

-- The bytes that libdeflate wrote to `to`.
local function packed(library, level, wrapped, from, n, to, room)
  local deflater = library.moth_deflate_packer_new(level)
  if deflater == nil then errors.raise("libdeflate has no memory", "E_MEM") end
  local pack = wrapped and library.moth_deflate_pack_zlib or library.moth_deflate_pack
  local made = tonumber(pack(deflater, from, n, to, room))
  library.moth_deflate_packer_free(deflater)
  return made
end

--- Compresses bytes.
-- @param x        a contiguous uint8 tensor
-- @param level    0 (fast) to 9 (small), default 6
-- @param wrapped  with zlib's header and checksum (RFC 1950)?
-- @return a uint8 tensor
-- Raises E_UNSUPPORTED if both libraries are missing.
function deflate.compress(x, level, wrapped)
  local library, zlib = gzip.find_deflate(), gzip.find_zlib()
  if not library and not zlib then errors.raise(deflate.MISSING, "E_UNSUPPORTED") end
  local n = x:numel()
  local room = bound(n)
  local y = new_bytes(room)
  local from, to = bytes.address(x), ffi.cast("uint8_t *", bytes.address(y))
  level = level or LEVEL
  local made
  if library then
    made = packed(library, level, wrapped, from, n, to, room)
  else
    made = with_zlib(function(s)
      return zlib.moth_deflate_begin(s, level, 8, wrapped and WRAPPED or BARE, 8, 0, VERSION,
        ffi.sizeof(s))
    end, zlib.moth_deflate, zlib.moth_deflate_end, from, n, to, room)
  end
  if not made or made == 0 then errors.raise "deflate could not compress the bytes" end
  return (y:narrow(1, 1, made))
end

return deflate
