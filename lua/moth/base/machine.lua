--- machine.lua -- calls of the operating system that Lua's os and io lack: terminal, folders,
-- processor; for POSIX and Windows.

local ffi = require "ffi"

local system = require "moth.base.system"

local windows = system.windows
local machine = {}

-- Returns a function of the C library. It is declared at its first use, and only once: a
-- declaration is never freed. On Windows the name in the C runtime begins with an underscore, and
-- _mkdir ignores the mode.
local declared = {}

local function of_c(name, declaration)
  if not declared[name] then
    local text = declaration:gsub("%$", "moth_c_" .. name) .. ' __asm__("'
      .. (windows and "_" or "") .. name .. '");'
    pcall(ffi.cdef, text) -- a host may have taken the compiler away
    declared[name] = true
  end
  return ffi.C["moth_c_" .. name]
end

--- Returns true if a file descriptor is a terminal.
function machine.is_terminal(fd) return of_c("isatty", "int $(int fd)")(fd) ~= 0 end

local Window = not windows and ffi.typeof "struct { uint16_t rows, columns, x, y; }"
local WINDOW_SIZE = jit.os == "OSX" and 0x40087468 or 0x5413 -- TIOCGWINSZ

--- The size of the terminal of a file descriptor, with `rows` and `columns`; nil if unknown.
function machine.window(fd)
  if windows or not machine.is_terminal(fd) then return nil end
  local window = Window()
  local ioctl = of_c("ioctl", "int $(int fd, unsigned long request, ...)")
  return ioctl(fd, WINDOW_SIZE, window) == 0 and window or nil
end

--- The number of lines of the terminal of standard output; nil if unknown.
function machine.rows()
  local window = machine.window(1)
  return window and window.rows > 0 and window.rows or nil
end

--- The number of columns of the terminal: COLUMNS, else the width of a file descriptor (default 1,
-- standard output); nil without a terminal.
function machine.columns(fd)
  local said = tonumber(os.getenv "COLUMNS")
  if said and said >= 20 then return math.floor(said) end
  local window = machine.window(fd or 1)
  return window and window.columns >= 20 and window.columns or nil
end

local getpid

--- Asks the terminal: writes a text to it and reads its answer, without showing it.
-- @param text     what is written
-- @param last     a pattern at the end of the whole answer
-- @param seconds  how long to wait
-- @return the answer, perhaps incomplete; nil without a terminal
function machine.ask_terminal(text, last, seconds)
  if windows or not (machine.is_terminal(0) and machine.is_terminal(1)) then return nil end
  local get = of_c("tcgetattr", "int $(int fd, void *state)")
  local set = of_c("tcsetattr", "int $(int fd, int when, const void *state)")
  local poll = of_c("poll", "int $(void *list, unsigned long n, int milliseconds)")
  local read = of_c("read", "intptr_t $(int fd, void *to, size_t n)")
  local before, raw = ffi.new "uint8_t[256]", ffi.new "uint8_t[256]"
  if get(0, before) ~= 0 or get(0, raw) ~= 0 then return nil end
  of_c("cfmakeraw", "void $(void *state)")(raw)
  set(0, 0, raw)
  io.stdout:write(text)
  io.stdout:flush()
  local wait, answer = ffi.new "struct { int fd; short events, revents; }", ""
  local piece, left = ffi.new "char[64]", math.floor(seconds * 1000)
  wait.events = 1 -- POLLIN
  while left > 0 and not answer:find(last) do
    left = left - 20
    if poll(wait, 1, 20) > 0 then
      local n = tonumber(read(0, piece, 64))
      if n <= 0 then break end
      answer = answer .. ffi.string(piece, n)
    end
  end
  set(0, 0, before)
  return answer
end

--- Returns true if text for the terminal may be UTF-8, by the variables of the locale.
function machine.is_utf8()
  for _, name in ipairs {"LC_ALL", "LC_CTYPE", "LANG"} do
    local value = os.getenv(name)
    if value and value ~= "" then return value:upper():find "UTF%-?8" ~= nil end
  end
  return jit.os == "OSX"
end

--- The process id.
function machine.process()
  getpid = getpid or of_c("getpid", "int $(void)")
  return getpid()
end

--- The name of the computer.
function machine.host()
  if windows then return os.getenv "COMPUTERNAME" or "localhost" end
  local name = ffi.new "char[256]"
  if of_c("gethostname", "int $(char *name, size_t size)")(name, 255) ~= 0 then
    return "localhost"
  end
  return ffi.string(name)
end

local Time = not windows and ffi.typeof "struct { long seconds, nanoseconds; }"
local time, clock_gettime

--- Seconds since 1970, with a fraction where the system has one.
function machine.time()
  if windows then return os.time() end
  if not time then
    time, clock_gettime = Time(), of_c("clock_gettime", "int $(int clock, void *time)")
  end
  clock_gettime(0, time) -- CLOCK_REALTIME
  return tonumber(time.seconds) + tonumber(time.nanoseconds) * 1e-9
end

local function make_folder(path, mode)
  return of_c("mkdir", "int $(const char *path, uint32_t mode)")(path, mode)
end

--- Creates a folder that only its owner may enter, unless it exists.
function machine.make_folder(path) make_folder(path, 448) end -- octal 700

--- Creates a folder, and those above it, unless they exist. Failures are silent: opening a file in
-- the folder reports them.
function machine.make_folders(path)
  for at in path:gmatch "()[/\\]" do
    if at > 1 then make_folder(path:sub(1, at - 1), 511) end -- octal 777, less the umask
  end
  make_folder(path, 511)
end

--- The folder for a user's files of one kind: `below` in the home directory; on Windows always the
-- local application data. Nil without a home directory.
function machine.user_folder(below)
  local home = os.getenv(windows and "LOCALAPPDATA" or "HOME")
  if not home or home == "" then return nil end
  return windows and home or home .. "/" .. below
end

--- The name of the processor and the number of logical cores; nil if the system does not report
-- them.
function machine.processor()
  if windows then
    return os.getenv "PROCESSOR_IDENTIFIER", tonumber(os.getenv "NUMBER_OF_PROCESSORS")
  end
  local name, cores = nil, 0
  for line in io.lines("/proc/cpuinfo") do
    name = name or line:match("^model name%s*:%s*(.*)")
    if line:match("^processor%s*:") then cores = cores + 1 end
  end
  return name, cores
end

--- The first line that a shell command prints, or nil.
function machine.output_of(command)
  local pipe = io.popen(command .. (windows and " 2>nul" or " 2>/dev/null"))
  if not pipe then return nil end
  local line = pipe:read("*l")
  pipe:close()
  return line ~= "" and line or nil
end

-- ---- folders ----

local MAX_ENTRIES = 10000 -- the largest number of entries read by default

local function open_folder(folder)
  local directory = of_c("opendir", "void *$(const char *path)")(folder)
  return directory ~= nil and directory or nil
end

local function close_folder(directory)
  of_c("closedir", "int $(void *directory)")(directory)
end

-- Links, and entries of file systems that do not report kinds, are opened to find out.
local function is_folder(folder, name, kind)
  if kind == 4 then return true end -- DT_DIR
  if kind ~= 0 and kind ~= 10 then return false end -- DT_UNKNOWN, DT_LNK
  local directory = open_folder(folder .. "/" .. name)
  if directory then close_folder(directory) end
  return directory ~= nil
end

local function posix_entries(folder, list, most)
  local directory = open_folder(folder)
  if not directory then return false end
  local readdir = of_c("readdir", [[typedef struct {
    uint64_t ino; int64_t off; uint16_t length; uint8_t type; char name[256]; } moth_dirent;
    moth_dirent *$(void *directory)]])
  for n = 1, most do
    local entry = readdir(directory)
    if entry == nil then break end
    local name = ffi.string(entry.name)
    list[n] = {name = name, is_folder = is_folder(folder, name, entry.type)}
  end
  close_folder(directory)
  return true
end

local function windows_entries(folder, list, most)
  local first = of_c("findfirst64", [[typedef struct {
    uint32_t attributes; int64_t created, read, written, size; char name[260]; } moth_found;
    intptr_t $(const char *pattern, moth_found *entry)]])
  local entry = ffi.new "moth_found"
  local search = first(folder .. "/*", entry)
  if search == -1 then return false end
  local next_one = of_c("findnext64", "int $(intptr_t search, moth_found *entry)")
  for n = 1, most do
    list[n] = {name = ffi.string(entry.name),
               is_folder = bit.band(entry.attributes, 16) ~= 0} -- _A_SUBDIR
    if next_one(search, entry) ~= 0 then break end
  end
  of_c("findclose", "int $(intptr_t search)")(search)
  return true
end

--- The entries of a folder, unsorted, `.` and `..` among them: {name, is_folder} tables. A link to
-- a folder is a folder.
-- @param most  the largest number of entries read (default 10000)
-- @return the list, empty if the folder cannot be read; and if it could be read
function machine.entries(folder, most)
  local list = {}
  local read = windows and windows_entries or posix_entries
  return list, read(folder, list, most or MAX_ENTRIES)
end

return machine
