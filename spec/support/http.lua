--- http.lua -- sends HTTP requests to a server on this machine, one or many at a time.

local ffi = require "ffi"

local http = {}

pcall(ffi.cdef, [[
struct moth_spec_address { uint16_t family, port; uint32_t host; char zero[8]; };
struct moth_spec_poll { int fd; short events, revents; };
struct moth_spec_clock { long seconds, nanoseconds; };
int socket(int family, int kind, int protocol);
int connect(int fd, const void *address, uint32_t size);
int bind(int fd, const void *address, uint32_t size);
int getsockname(int fd, void *address, uint32_t *size);
long send(int fd, const void *bytes, size_t size, int flags);
long recv(int fd, void *bytes, size_t size, int flags);
int close(int fd);
]])
pcall(ffi.cdef, [[
int poll(struct moth_spec_poll *fds, unsigned long count, int milliseconds);
int clock_gettime(int clock, struct moth_spec_clock *now);
]])

local C = ffi.C
local NOSIGNAL, DONTWAIT, POLLIN = 0x4000, 0x40, 1

local function address_of(port)
  local a = ffi.new "struct moth_spec_address"
  a.family, a.port = 2, bit.bor(bit.lshift(bit.band(port, 255), 8), bit.rshift(port, 8))
  a.host = 0x0100007f -- 127.0.0.1
  return a
end

function http.free_port()
  local fd, a, size = C.socket(2, 1, 0), address_of(0), ffi.new("uint32_t[1]", 16)
  assert(C.bind(fd, a, 16) == 0 and C.getsockname(fd, a, size) == 0)
  C.close(fd)
  return bit.bor(bit.lshift(bit.band(a.port, 255), 8), bit.rshift(a.port, 8))
end

--- @return a connection to a port, or nil
function http.connect(port)
  local fd = C.socket(2, 1, 0)
  if C.connect(fd, address_of(port), 16) == 0 then return fd end
  C.close(fd)
end

function http.close(fd) C.close(fd) end

--- Sends all bytes. @return false if the connection is closed
function http.send(fd, bytes)
  local at, from = ffi.cast("const char *", bytes), 0
  while from < #bytes do
    local n = tonumber(C.send(fd, at + from, #bytes - from, NOSIGNAL))
    if n <= 0 then return false end
    from = from + n
  end
  return true
end

local buffer = ffi.new "char[65536]"

--- The next bytes of a connection; nil at its end.
function http.receive(fd, flags)
  local n = tonumber(C.recv(fd, buffer, 65536, flags or 0))
  return n > 0 and ffi.string(buffer, n) or nil
end

local clock = ffi.new "struct moth_spec_clock[1]"

--- Seconds of a clock that only goes forward.
function http.now()
  C.clock_gettime(1, clock)
  return tonumber(clock[0].seconds) + 1e-9 * tonumber(clock[0].nanoseconds)
end

--- The text of a request. @param kind  the type of the body
function http.request(path, body, kind)
  return ("%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n")
    :format(body and "POST" or "GET", path, kind or "application/json", body and #body or 0)
    .. (body or "")
end

-- @return a complete reply {status, body, head}, or nil
local function parse(text)
  local _, stop = text:find("\r\n\r\n", 1, true)
  if not stop then return nil end
  local head = text:sub(1, stop):lower()
  local length = tonumber(head:match "content%-length: (%d+)")
  if length and #text < stop + length then return nil end
  if not length and not text:find("\r\n0\r\n\r\n$", stop - 1) then return nil end -- chunked
  return {status = tonumber(head:match "^http/1.1 (%d+)"), body = text:sub(stop + 1), head = head}
end


-- Sends the connection's request. A server may close an idle connection at any time: the client
-- sends the request again on a new one.
local function send(load, c)
  if c.fd and http.send(c.fd, c.request) then return end
  if c.fd then
    C.close(c.fd)
    load.reconnected = load.reconnected + 1
  end
  c.fd = http.connect(load.port)
  c.used = false
  if not (c.fd and http.send(c.fd, c.request)) then error("no connection", 0) end
end

local function start(load, c)
  if load.sent == load.requests then
    c.index = nil
    return
  end
  load.sent = load.sent + 1
  c.index, c.text = load.sent, ""
  c.request, c.began = load.request(c.index), http.now()
  send(load, c)
end

local function failed(load, c, problem)
  table.insert(load.failures, ("request %d: %s"):format(c.index, problem))
  if c.fd then C.close(c.fd) end
  c.fd, load.done = nil, load.done + 1
  start(load, c)
end

local function finish(load, c, reply)
  load.done = load.done + 1
  load.times[load.done] = http.now() - c.began
  c.used = true
  if reply.head:find("connection: close", 1, true) then
    C.close(c.fd)
    c.fd = nil
  end
  local problem = load.check(reply, c.index)
  if problem then table.insert(load.failures, ("request %d: %s"):format(c.index, problem)) end
  if load.each then load.each(load.done) end
  start(load, c)
end

local function readable(load, c)
  local bytes = http.receive(c.fd, DONTWAIT)
  if not bytes and c.used and c.text == "" then
    C.close(c.fd)
    c.fd, load.reconnected = nil, load.reconnected + 1
    return send(load, c)
  elseif not bytes then
    return failed(load, c, "the connection was closed after " .. #c.text .. " bytes")
  end
  c.text = c.text == "" and bytes or c.text .. bytes
  local reply = parse(c.text)
  if reply then finish(load, c, reply) end
end

--- Sends requests on several connections, each one request at a time.
-- @param load  port, connections, requests (a number), request(i): the text of request i,
--   check(reply, i): nil or what is wrong with the reply, each(done): called after each reply
-- @return load with failures (texts), times (seconds, in the order of the replies), seconds,
--   reconnected (requests sent again after the server closed an idle connection)
function http.load(load)
  load.sent, load.done, load.reconnected = 0, 0, 0
  load.failures, load.times = {}, {}
  load.check = load.check or function(reply)
    return reply.status ~= 200 and "status " .. reply.status or nil
  end
  local n = math.min(load.connections, load.requests)
  local polled, connections, began = ffi.new("struct moth_spec_poll[?]", n), {}, http.now()
  for i = 1, n do
    connections[i] = {}
    start(load, connections[i])
  end
  while load.done < load.requests do
    for i = 1, n do
      local c = connections[i]
      polled[i - 1].fd, polled[i - 1].events = c.index and c.fd or -1, POLLIN
    end
    if C.poll(polled, n, 10000) <= 0 then error("no reply for 10 seconds", 0) end
    for i = 1, n do
      if polled[i - 1].revents ~= 0 then readable(load, connections[i]) end
    end
  end
  load.seconds = http.now() - began
  for i = 1, n do
    if connections[i].fd then C.close(connections[i].fd) end
  end
  return load
end

--- One request on a connection of its own. @return {status, body, head}
function http.ask(port, path, body, kind)
  local result
  local load = http.load {port = port, connections = 1, requests = 1,
    request = function() return http.request(path, body, kind) end,
    check = function(reply) result = reply end}
  return result or error(load.failures[1], 0)
end

return http
