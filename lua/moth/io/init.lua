--- init.lua -- moth.io: readers and writers of files of pictures, sounds and bytes.

local lazy = require "moth.base.lazy"

local rows = {}
lazy.from(rows, "moth.io.raw", "read_file write_file")
lazy.from(rows, "moth.io.wav", "read_wav write_wav")
lazy.from(rows, "moth.io.sndfile", "read_audio")

return (lazy.namespace("moth.io", {}, rows))
