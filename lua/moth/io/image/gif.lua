--- gif.lua -- the first frame of GIF files, by core/files/gif.c.

local ffi = require "ffi"
local lib = require "moth.binding.lib"
local pixels = require "moth.io.image.pixels"

local C, ctx = lib.C, lib.ctx

lib.declare "gif"

local gif = {}

local function check(file, status)
  if status < 0 then file:refuse("is broken: " .. ffi.string(C.moth_error(ctx, 1))) end
end

--- Decodes a file of moth.io.bytes.
-- @param wanted  {mode, limit}
function gif.decode(file, wanted)
  local text, found = ffi.new "moth_text[1]", ffi.new "moth_gif"
  text[0].at, text[0].size = ffi.cast("const char *", file.start), file.size
  check(file, C.moth_gif_read_size(ctx, text, found))
  pixels.check(file, found.width, found.height, wanted.limit)
  local x, to = pixels.new(found.height, found.width, 4)
  check(file, C.moth_gif_read(ctx, text, found, to))
  local alpha = wanted.mode:find "alpha$" ~= nil
  return pixels.finish(alpha and x or x:narrow(3, 1, 3), wanted)
end

return gif
