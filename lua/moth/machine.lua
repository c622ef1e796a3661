--- machine.lua -- what Moth's Lua asks of the operating system beside Lua's own os and io: the
-- terminal, folders, the processor, on POSIX and on Windows.

local ffi = require "ffi"

local system = require "moth.system"

local windows = system.windows
local machine = {}

-- A function of the C library, declared when it is first wanted: what is declared stays in the
-- heap. On Windows it is the C runtime's, with an underscore; that _mkdir takes no mode does no
-- harm.
local function of_c(name, declaration)
  local text = declaration:gsub("%$", "moth_" .. name) .. ' __asm__("'
    .. (windows and "_" or "") .. name .. '");'
  pcall(ffi.cdef, text) -- once is enough, and a host may have taken the compiler away
  return ffi.C["moth_" .. name]
end

--- Whether a file descriptor is a terminal.
function machine.is_terminal(fd) return of_c("isatty", "int $(int fd)")(fd) ~= 0 end

--- The number of this process.
function machine.process() return of_c("getpid", "int $(void)")() end

--- Makes a folder that only its owner may enter, unless there is one.
function machine.make_folder(path)
  of_c("mkdir", "int $(const char *path, uint32_t mode)")(path, 448)
end

--- Where a user's files of a kind lie: `below` of the home directory, on Windows the local
-- application data whatever the kind. Nil where there is no home.
function machine.user_folder(below)
  local home = os.getenv(windows and "LOCALAPPDATA" or "HOME")
  if not home or home == "" then return nil end
  return windows and home or home .. "/" .. below
end

--- The name of the processor and the number of logical cores; nil where the system does not say.
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
function machine.entries(folder)
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

return machine
