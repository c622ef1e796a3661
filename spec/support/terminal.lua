--- terminal.lua -- runs a program on a pseudo-terminal, types keys and reads the screen.

local ffi = require "ffi"
local lib = require "moth.binding.lib"

local C = ffi.C
local terminal = {}
terminal.__index = terminal

ffi.cdef [[
typedef struct { int fd; short events, revents; } moth_pollfd;
int posix_openpt(int flags);
int grantpt(int fd);
int unlockpt(int fd);
char *ptsname(int fd);
int open(const char *path, int flags, ...);
int poll(moth_pollfd *list, unsigned long n, int timeout);
long read(int fd, void *buffer, size_t room);
long write(int fd, const void *bytes, size_t n);
int close(int fd);
int kill(int pid, int signal);
]]

local READ_WRITE, NO_CONTROL, CLOSE_ON_EXEC, READABLE, KILL = 2, 256, 524288, 1, 9
local PATIENCE = 60 -- seconds; a busy machine is no failure

--- Starts a shell command on a terminal of 100 columns.
function terminal.start(command)
  local fd = C.posix_openpt(READ_WRITE + NO_CONTROL + CLOSE_ON_EXEC)
  assert(fd >= 0 and C.grantpt(fd) == 0 and C.unlockpt(fd) == 0, "no pseudo-terminal to be had")
  local name = ffi.string(C.ptsname(fd))
  local line = ("stty cols 100 rows 40 <%s; TERM=xterm setsid -c sh -c 'exec %s' <%s >%s 2>&1 &")
    :format(name, command:gsub("'", "'\\''"), name, name)
  -- keep this end open until the program writes, else the terminal counts as closed
  local guard = C.open(name, READ_WRITE + NO_CONTROL + CLOSE_ON_EXEC)
  local shell = assert(io.popen(line .. " echo $!"))
  local pid = tonumber(shell:read "*l")
  shell:close()
  return setmetatable({ fd = fd, guard = guard, pid = pid, seen = "", text = "" }, terminal)
end

-- The output without cursor movements.
local function plain(text)
  return (text:gsub("\27%[[%d;?]*%a", ""):gsub("\27[()=>]%w?", ""):gsub("[\r\7]", ""))
end

local room = 4096
local buffer, one = lib.array("char", room), ffi.new("moth_pollfd[1]")

-- Reads the output within a time limit. @return false after the program closed its terminal
function terminal:_more(milliseconds)
  one[0].fd, one[0].events = self.fd, READABLE
  if C.poll(one, 1, milliseconds) <= 0 then return true end
  local n = tonumber(C.read(self.fd, buffer, room))
  if n <= 0 then return false end
  if self.guard then C.close(self.guard) end
  self.guard = nil
  self.seen = self.seen .. ffi.string(buffer, n)
  self.text = plain(self.seen)
  return true
end

--- Presses keys.
function terminal:type(keys) C.write(self.fd, keys, #keys) end

--- Waits until the program has written this, after the text of the last wait.
-- @return the output before it
function terminal:wait(wanted)
  local limit = os.time() + PATIENCE
  while true do
    local from, to = self.text:find(wanted, 1, true)
    if from then
      local before = self.text:sub(1, from - 1)
      self.seen = self.text:sub(to + 1)
      self.text = self.seen
      return before
    end
    if not self:_more(200) or os.time() > limit then
      error(("waited for %q, saw %q"):format(wanted, self.text), 2)
    end
  end
end

--- Types a line and waits for a text after its echo.
function terminal:enter(line, wanted)
  self:type(line .. "\r")
  self:wait(line)
  return self:wait(wanted)
end

--- Waits until the program has ended; returns true if it did.
function terminal:ended()
  local limit = os.time() + PATIENCE
  while os.time() < limit do
    if not self:_more(200) then return true end
  end
  return false
end

--- Ends the program if it still runs.
function terminal:close()
  C.kill(self.pid, KILL)
  C.close(self.fd)
end

--- Moth's prompt on a terminal, with its files in `home`.
function terminal.moth(home, more)
  local launcher = debug.getregistry()["moth.launcher"]
  return terminal.start(("env XDG_STATE_HOME=%s/state XDG_CONFIG_HOME=%s/config %s %s")
    :format(home, home, more or "", launcher.program))
end

return terminal
