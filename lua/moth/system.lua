--- system.lua -- what Moth's Lua asks of the operating system, in one place: names, folders, the
-- terminal, on POSIX and on Windows. (core/system.h is the same for the engine.)

local ffi = require "ffi"

local windows = jit.os == "Windows"
local system = {
  windows = windows,
  library = windows and "libmoth.dll" or "libmoth.so",
  found_as = windows and "libmoth" or "moth", -- for ffi.load, which looks where the system does
  build = windows and "build-windows/" or "build/", -- of a checkout
}

-- On Windows these are the C runtime's, with an underscore; that _mkdir takes no mode does no harm.
local CALLS = [[
int moth_isatty(int fd) __asm__("_isatty");
int moth_getpid(void) __asm__("_getpid");
char *moth_getcwd(char *room, size_t size) __asm__("_getcwd");
int moth_mkdir(const char *path, uint32_t mode) __asm__("_mkdir");
]]
-- A host may have taken the compiler of declarations away.
pcall(ffi.cdef, windows and CALLS or CALLS:gsub('"_', '"'))

--- Whether a file descriptor is a terminal.
function system.is_terminal(fd) return ffi.C.moth_isatty(fd) ~= 0 end

--- The number of this process.
function system.process() return ffi.C.moth_getpid() end

--- Whether a path does not depend on the current folder.
function system.is_absolute(path)
  return path:find(windows and "^%a?:?[/\\]" or "^/") ~= nil
end

--- The current folder; nil where it cannot be told.
function system.current_folder()
  local room = ffi.new "char[4096]"
  local at = ffi.C.moth_getcwd(room, 4096)
  if at ~= nil then return ffi.string(room) end
end

--- Makes a folder that only its owner may enter, unless there is one.
function system.make_folder(path) ffi.C.moth_mkdir(path, 448) end

--- Where a user's files of a kind lie: `below` of the home directory, on Windows the local
-- application data whatever the kind. Nil where there is no home.
function system.user_folder(below)
  local home = os.getenv(windows and "LOCALAPPDATA" or "HOME")
  if not home or home == "" then return nil end
  return windows and home or home .. "/" .. below
end

--- The name of the processor and the number of logical cores; nil where the system does not say.
function system.processor()
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
function system.output_of(command)
  local pipe = io.popen(command .. (windows and " 2>nul" or " 2>/dev/null"))
  if not pipe then return nil end
  local line = pipe:read("*l")
  pipe:close()
  return line ~= "" and line or nil
end

-- ---- what lies in a folder ----

local MOST = 10000 -- entries that are read

local function posix_entries(folder, list)
  local directory = ffi.C.moth_opendir(folder)
  if directory == nil then return end
  local pointer = ffi.typeof [[struct {
    uint64_t ino; int64_t off; uint16_t length; uint8_t type; char name[256]; } *]]
  for n = 1, MOST do
    local entry = ffi.C.moth_readdir(directory)
    if entry == nil then break end
    entry = ffi.cast(pointer, entry)
    list[n] = { name = ffi.string(entry.name), is_folder = entry.type == 4 } -- DT_DIR
  end
  ffi.C.moth_closedir(directory)
end

local function windows_entries(folder, list)
  local entry = ffi.new [[struct {
    uint32_t attributes; int64_t created, read, written, size; char name[260]; }]]
  local search = ffi.C.moth_findfirst(folder .. "/*", entry)
  if search == -1 then return end
  for n = 1, MOST do
    list[n] = { name = ffi.string(entry.name),
                is_folder = bit.band(entry.attributes, 16) ~= 0 } -- _A_SUBDIR
    if ffi.C.moth_findnext(search, entry) ~= 0 then break end
  end
  ffi.C.moth_findclose(search)
end

--- What lies in a folder, without order: {name, is_folder} tables; none where it cannot be read.
function system.entries(folder)
  ffi.cdef(windows and [[
  intptr_t moth_findfirst(const char *pattern, void *entry) __asm__("_findfirst64");
  int moth_findnext(intptr_t search, void *entry) __asm__("_findnext64");
  int moth_findclose(intptr_t search) __asm__("_findclose");
  ]] or [[
  void *moth_opendir(const char *path) __asm__("opendir");
  void *moth_readdir(void *directory) __asm__("readdir");
  int moth_closedir(void *directory) __asm__("closedir");
  ]])
  local list = {}
  local read = windows and windows_entries or posix_entries
  read(folder, list)
  return list
end

return system
