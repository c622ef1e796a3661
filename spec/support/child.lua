--- child.lua -- runs a function in a forked process, so that a spec can test the death of a
-- process. The child never returns into the test runner.

local ffi = require "ffi"

pcall(ffi.cdef, "int fork(void);")
pcall(ffi.cdef, "int waitpid(int pid, int *status, int options);")
pcall(ffi.cdef, "int kill(int pid, int signal);")
pcall(ffi.cdef, "void _exit(int status);")
pcall(ffi.cdef, "int usleep(unsigned microseconds);")
pcall(ffi.cdef, "unsigned getuid(void);")
pcall(ffi.cdef, "int setuid(unsigned user);")
pcall(ffi.cdef, "struct moth_spec_limit { uint64_t soft, hard; };")
pcall(ffi.cdef, "int setrlimit(int resource, const struct moth_spec_limit *limit);")

local C = ffi.C
local child = {}

local KILL, FILE_SIZE = 9, 1 -- SIGKILL, RLIMIT_FSIZE on Linux

local function start(fn)
  io.stdout:flush()
  io.stderr:flush()
  local pid = C.fork()
  if pid ~= 0 then return pid end
  local fine, result = pcall(fn)
  C._exit(fine and result ~= false and 0 or 1)
end

local function wait(pid)
  local status = ffi.new("int[1]")
  C.waitpid(pid, status, 0)
  return status[0]
end

--- Runs fn in a child. @return true if it ended without an error or a signal, and fn did not
-- return false
function child.run(fn) return wait(start(fn)) == 0 end

--- Drops the permissions of root in a child.
function child.be_nobody()
  if C.getuid() == 0 then C.setuid(65534) end
end

--- Runs fn in a child and kills it (SIGKILL) after some microseconds.
-- @return true if the signal ended it
function child.kill_after(microseconds, fn)
  local pid = start(fn)
  C.usleep(microseconds)
  C.kill(pid, KILL)
  return wait(pid) == KILL
end

--- In a child: limits the size of files to this many bytes.
function child.limit_files(bytes)
  return C.setrlimit(FILE_SIZE, ffi.new("struct moth_spec_limit", bytes, bytes)) == 0
end

return child
