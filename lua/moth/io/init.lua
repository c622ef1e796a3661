--- init.lua -- moth.io: readers and writers of files of pictures, sounds and bytes.

local lazy = require "moth.base.lazy"

local rows = {}
lazy.from(rows, "moth.io.raw", "read_file write_file")

return (lazy.namespace("moth.io", {}, rows))
