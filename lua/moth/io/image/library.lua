--- library.lua -- the libraries of picture and sound formats, opened at their first use.

local ffi = require "ffi"
local errors = require "moth.error"

local library = {}

-- name -> file names to try, what installs it on Debian
local KNOWN = {
  turbojpeg = {{"libturbojpeg.so.0", "libturbojpeg.0.dylib", "turbojpeg"}, "libturbojpeg0"},
  spng = {{"libspng.so.0", "libspng.0.dylib", "spng"}, "libspng0"},
  webp = {{"libwebp.so.7", "libwebp.7.dylib", "libwebp"}, "libwebp7"},
  stb = {{"libstb.so.0"}, "libstb0"},
  sndfile = {{"libsndfile.so.1", "sndfile"}, "libsndfile1"},
}

--- Opens a library without its declarations; nil if it is not installed.
-- @return the library, and its Debian package
function library.open(name)
  for _, file in ipairs(KNOWN[name][1]) do
    local found, loaded = pcall(ffi.load, file)
    if found then return loaded, KNOWN[name][2] end
  end
  return nil, KNOWN[name][2]
end

local opened = {} -- name -> library, or false

--- A library, or nil if it is not installed.
-- @param name  a key of KNOWN
-- @param cdef  its declarations
-- @param mark  one of the declared types: if it is known, the declarations were made before
function library.find(name, cdef, mark)
  if opened[name] == nil then
    opened[name] = library.open(name) or false
    if opened[name] and not pcall(ffi.typeof, mark) then ffi.cdef(cdef) end
  end
  return opened[name] or nil
end

--- Raises: none of these libraries is installed.
-- @param fname  the function that errors name
-- @param what   "a JPEG file"
-- @param names  keys of KNOWN, the best one first
function library.missing(fname, what, names)
  local texts, packages = {}, {}
  for i, name in ipairs(names) do
    texts[i], packages[i] = "lib" .. name:gsub("^lib", ""), KNOWN[name][2]
  end
  errors.raise(("%s: %s needs %s, which was not found (Debian: apt-get install %s)"):format(fname,
    what, table.concat(texts, " or "), packages[1]), "E_UNSUPPORTED")
end

return library
