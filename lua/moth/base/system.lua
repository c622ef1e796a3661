--- system.lua -- names that differ between Windows and POSIX and that every program needs.
-- machine.lua has the rest; core/base/system.h does the same for the core.

local windows = jit.os == "Windows"

return {
  windows = windows,
  library = windows and "libmoth.dll" or "libmoth.so",
  found_as = windows and "libmoth" or "moth", -- for ffi.load, which searches the system's folders
  build = windows and "build-windows/" or "build/", -- of a checkout
  root = windows and "^%a?:?[/\\]" or "^/", -- the beginning of an absolute path
  getcwd = windows and "_getcwd" or "getcwd",
}
