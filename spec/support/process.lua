--- process.lua -- runs Lua code in a separate process, with Moth on its paths.

local lib = require "moth.binding.lib"

local process = {}

local launcher = debug.getregistry()["moth.launcher"]

--- The shell command of the running build. With a real GPU this is not `./moth`.
process.program = "'" .. (launcher and launcher.program or "./moth") .. "'"

--- Returns true if the library was built with sanitizers.
process.sanitized = os.getenv("MOTH_SANITIZED") ~= nil

--- Runs a shell command. @return its output, errors included, and "rc=STATUS" as the last line
function process.shell(command)
  local pipe = io.popen("{ " .. command .. "\n} 2>&1; echo rc=$?")
  local text = pipe:read "*a"
  pipe:close()
  return text
end

--- Runs Lua code.
-- @param options  jit = false: without the compiler; stack: KB of C stack
-- @return as process.shell
function process.lua(code, options)
  options = options or {}
  local root = require("moth.error").root
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  local command
  if launcher then
    command = ("%s '%s' '%s'"):format(options.jit == false and "MOTH_JIT=off" or "",
      launcher.program, path)
  else
    file:write(("package.path = %q .. package.path "):format(root .. "lua/?.lua;" .. root
      .. "lua/?/init.lua;"))
    command = ("MOTH_LIB='%s' luajit %s '%s'"):format(lib.path,
      options.jit == false and "-joff" or "", path)
  end
  file:write(code)
  file:close()
  if options.stack then command = ("ulimit -s %d; "):format(options.stack) .. command end
  local text = process.shell(command)
  os.remove(path)
  return text
end

--- Builds a C host of spec/host, runs it as HOST ROOT LIBDIR MORE. @return as process.shell
-- @param lua  the library to link instead of the system's LuaJIT
function process.host(name, more, lua)
  local libdir = lib.path:match("^(.*)/[^/]*$")
  local root, program = require("moth.error").root, os.tmpname()
  -- a sanitized library needs such a host
  local sanitize = process.sanitized and "-fsanitize=" .. os.getenv "MOTH_SANITIZED" or ""
  local text = process.shell(("cc -std=c11 -O1 %s -o '%s' '%s/spec/host/%s.c' "
    .. "$(pkg-config --cflags luajit) %s -lpthread"):format(sanitize, program, root, name,
    lua or "$(pkg-config --libs luajit)"))
  if text:find("rc=0", 1, true) then
    text = process.shell(("'%s' '%s' '%s' %s"):format(program, root, libdir, more or ""))
  end
  os.remove(program)
  return text
end

return process
