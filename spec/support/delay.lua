--- delay.lua -- a network cable with a delay: moth spec/support/delay.lua SECONDS NAME NAME makes
-- two network devices. A frame that is sent to one arrives at the other after that time. It needs
-- root and /dev/net/tun; it needs no queueing discipline of the kernel.

local ffi = require "ffi"
local bit = require "bit"

ffi.cdef [[
int open(const char *path, int flags);
int ioctl(int fd, unsigned long request, void *argument);
ptrdiff_t read(int fd, void *bytes, size_t n);
ptrdiff_t write(int fd, const void *bytes, size_t n);
struct moth_spec_poll { int fd; short events, revents; };
int poll(struct moth_spec_poll *list, unsigned long n, int milliseconds);
struct moth_spec_request { char name[16]; short flags; char rest[22]; };
]]

local C = ffi.C
local core = require("moth.binding.lib").C
local READ_WRITE, NONBLOCK, POLL_IN = 2, 0x800, 1
local SET_DEVICE, TAP, NO_HEADER = 0x400454ca, 2, 0x1000

local function device(name)
  local fd = C.open("/dev/net/tun", bit.bor(READ_WRITE, NONBLOCK))
  local request = ffi.new "struct moth_spec_request"
  request.name, request.flags = name, bit.bor(TAP, NO_HEADER)
  if fd < 0 or C.ioctl(fd, SET_DEVICE, request) < 0 then error("no device " .. name, 0) end
  return fd
end

local delay = tonumber(arg[1])
local fds = {device(arg[2]), device(arg[3])}
local list = ffi.new "struct moth_spec_poll[2]"
local buffer = ffi.new "char[65536]"
local queue, first, last = {}, 1, 0 -- frames: the time of arrival, where to, the bytes
for i = 0, 1 do list[i].fd, list[i].events = fds[i + 1], POLL_IN end
io.write "ready\n"
io.flush()

while true do
  C.poll(list, 2, first <= last and 1 or 1000)
  local now = core.moth_seconds()
  for i = 0, 1 do
    while true do
      local n = C.read(list[i].fd, buffer, ffi.sizeof(buffer))
      if n <= 0 then break end
      last = last + 1
      queue[last] = {now + delay, list[1 - i].fd, ffi.string(buffer, n)}
    end
  end
  while first <= last and queue[first][1] <= now do
    local frame = queue[first]
    C.write(frame[2], frame[3], #frame[3])
    queue[first], first = nil, first + 1
  end
end
