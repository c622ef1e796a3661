--- library.lua -- mock libraries that replace NVIDIA's in specs: built from spec/host, and named
-- to the plugin in the environment of a separate process, because a library is opened once.

local ffi = require "ffi"
local process = require "spec.support.process"

local library = {}

--- Builds spec/host/<name>.c as a library. @return its path
function library.built(name)
  local path = os.tmpname()
  local root = require("moth.error").root
  local text = process.shell(("cc -std=gnu11 -O1 -Wall -Werror -shared -fPIC -I'%s/core' -o '%s' "
    .. "'%s/spec/host/%s.c'"):format(root, path, root, name))
  assert(text == "rc=0\n", text)
  return path
end

--- Runs Lua code with a mock of NVIDIA's library, and with `settings` in the environment.
-- @return the output of the process
function library.with(variable, path, settings, code)
  pcall(ffi.cdef, "int setenv(const char *, const char *, int); int unsetenv(const char *);")
  settings[variable] = path
  -- the emulator does not see what they write (cuda/emulator/watch.cpp): it would count as never
  -- written
  if variable ~= "MOTH_NVRTC" then settings.MOTH_EMULATED_REPORTS = "/dev/null" end
  for name, value in pairs(settings) do ffi.C.setenv(name, value, 1) end
  local text = process.lua("local moth = require 'moth' " .. code)
  for name in pairs(settings) do ffi.C.unsetenv(name) end
  return text
end

return library
