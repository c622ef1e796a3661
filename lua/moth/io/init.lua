--- init.lua -- moth.io: readers and writers of files of pictures, sounds and bytes.

local lazy = require "moth.base.lazy"

local rows = {}
lazy.from(rows, "moth.io.raw", "read_file write_file")
lazy.from(rows, "moth.io.wav", "read_wav write_wav")
lazy.from(rows, "moth.io.sndfile", "read_audio")
lazy.from(rows, "moth.io.image", "read_image decode_image decode_jpeg decode_png decode_webp "
  .. "decode_gif encode_jpeg encode_png write_jpeg write_png")

return (lazy.namespace("moth.io", {}, rows))
