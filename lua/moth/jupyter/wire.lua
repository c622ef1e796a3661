--- wire.lua -- the messages of Jupyter's protocol 5.3 over ZeroMQ: sockets, frames, signatures.
--
-- libzmq and libcrypto (for HMAC-SHA256) are opened at the first use.

local ffi = require "ffi"
local json = require "moth.json"

local wire = {}
wire.__index = wire

local DECLARED = [[
typedef struct { void *socket; int fd; short events, revents; } moth_zmq_item;
typedef struct { uint64_t room[8]; } moth_zmq_msg;
void *moth_zmq_ctx_new(void) __asm__("zmq_ctx_new");
void *moth_zmq_socket(void *ctx, int type) __asm__("zmq_socket");
int moth_zmq_close(void *socket) __asm__("zmq_close");
int moth_zmq_ctx_term(void *ctx) __asm__("zmq_ctx_term");
int moth_zmq_bind(void *socket, const char *address) __asm__("zmq_bind");
int moth_zmq_setsockopt(void *socket, int what, const void *value, size_t n)
  __asm__("zmq_setsockopt");
int moth_zmq_send(void *socket, const void *bytes, size_t n, int flags) __asm__("zmq_send");
int moth_zmq_poll(moth_zmq_item *items, int n, long milliseconds) __asm__("zmq_poll");
int moth_zmq_msg_init(moth_zmq_msg *m) __asm__("zmq_msg_init");
int moth_zmq_msg_recv(moth_zmq_msg *m, void *socket, int flags) __asm__("zmq_msg_recv");
void *moth_zmq_msg_data(moth_zmq_msg *m) __asm__("zmq_msg_data");
size_t moth_zmq_msg_size(const moth_zmq_msg *m) __asm__("zmq_msg_size");
int moth_zmq_msg_more(const moth_zmq_msg *m) __asm__("zmq_msg_more");
int moth_zmq_msg_close(moth_zmq_msg *m) __asm__("zmq_msg_close");
const void *moth_sha256(void) __asm__("EVP_sha256");
unsigned char *moth_hmac(const void *hash, const void *key, int nkey, const char *bytes, size_t n,
                         unsigned char *out, unsigned *nout) __asm__("HMAC");
]]

local PUB, REP, ROUTER = 1, 4, 6
local LINGER, MORE, POLLIN = 17, 2, 1
local TYPES = {shell = ROUTER, control = ROUTER, stdin = ROUTER, iopub = PUB, hb = REP}
local READ = {"control", "shell", "hb", "stdin"} -- in the order in which they are answered
local MARK = "<IDS|MSG>"

local zmq, crypto

local function open(names, package)
  for _, name in ipairs(names) do
    local found, library = pcall(ffi.load, name)
    if found then return library end
  end
  error(("moth jupyter: %s was not found; apt-get install %s"):format(names[1], package), 0)
end

local function load_libraries()
  if zmq then return end
  zmq = open({"libzmq.so.5", "zmq"}, "libzmq5")
  crypto = open({"libcrypto.so.3", "libcrypto.so.1.1", "crypto"}, "libssl3")
  ffi.cdef(DECLARED)
end

--- The signature of the four parts of a message, by HMAC-SHA256; "" without a key.
function wire:sign(...)
  if self.key == "" then return "" end
  load_libraries()
  local text, out, n = table.concat {...}, ffi.new "unsigned char[64]", ffi.new "unsigned[1]"
  crypto.moth_hmac(crypto.moth_sha256(), self.key, #self.key, text, #text, out, n)
  local hex = {}
  for i = 0, n[0] - 1 do hex[#hex + 1] = ("%02x"):format(out[i]) end
  return table.concat(hex)
end

-- Random hexadecimal digits.
local function unique()
  local file = assert(io.open("/dev/urandom", "rb"))
  local bytes = file:read(16)
  file:close()
  return (bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

--- Binds the sockets of a connection file.
function wire.open(path)
  load_libraries()
  local file = assert(io.open(path, "rb"))
  local known, why = json.decode(file:read "*a")
  file:close()
  if not known then error(path .. ": " .. why, 0) end
  if known.key ~= "" and known.signature_scheme ~= "hmac-sha256" then
    error("moth jupyter: the signature scheme " .. known.signature_scheme .. " is not known", 0)
  end
  local self = setmetatable({key = known.key, session = unique(), count = 0, sockets = {}}, wire)
  self.context = zmq.moth_zmq_ctx_new()
  for name, kind in pairs(TYPES) do
    local socket = zmq.moth_zmq_socket(self.context, kind)
    local mark = known.transport == "ipc" and "-" or ":"
    local address = known.transport .. "://" .. known.ip .. mark .. known[name .. "_port"]
    zmq.moth_zmq_setsockopt(socket, LINGER, ffi.new("int[1]", 1000), 4)
    if zmq.moth_zmq_bind(socket, address) ~= 0 then
      error("moth jupyter: cannot bind " .. address, 0)
    end
    self.sockets[name] = socket
  end
  self.items = ffi.new "moth_zmq_item[4]" -- as many as READ
  for i, name in ipairs(READ) do
    self.items[i - 1].socket, self.items[i - 1].events = self.sockets[name], POLLIN
  end
  return self
end

--- Closes all sockets, after their messages are sent. Without it the process would crash at its
-- end, when Lua unloads libzmq, whose threads still run.
function wire:close()
  for _, socket in pairs(self.sockets) do zmq.moth_zmq_close(socket) end
  zmq.moth_zmq_ctx_term(self.context)
end

-- Sends frames as one message.
local function send_frames(self, name, frames)
  for i, frame in ipairs(frames) do
    zmq.moth_zmq_send(self.sockets[name], frame, #frame, i < #frames and MORE or 0)
  end
end

-- The frames of the next message of a socket.
local function frames_of(self, name)
  local frames, m, more = {}, ffi.new "moth_zmq_msg", true
  while more do
    zmq.moth_zmq_msg_init(m)
    if zmq.moth_zmq_msg_recv(m, self.sockets[name], 0) < 0 then break end
    frames[#frames + 1] = ffi.string(zmq.moth_zmq_msg_data(m), zmq.moth_zmq_msg_size(m))
    more = zmq.moth_zmq_msg_more(m) ~= 0
    zmq.moth_zmq_msg_close(m)
  end
  return frames
end

-- A request from its frames; nil if it is broken or its signature is wrong.
local function request_of(self, name, frames)
  local at = 1
  while frames[at] and frames[at] ~= MARK do at = at + 1 end
  local signature, header, parent, metadata, content = unpack(frames, at + 1, at + 5)
  if not content or signature ~= self:sign(header, parent, metadata, content) then return nil end
  local head, body = json.decode(header), json.decode(content)
  if not head or not body then return nil end
  return {channel = name, ids = {unpack(frames, 1, at - 1)}, header = header,
          kind = head.msg_type, content = body}
end

--- Waits for a request on shell or control, and answers heartbeats. Returns nil after a signal.
function wire:receive()
  local pass = zmq.moth_zmq_poll(self.items, #READ, -1)
  for i, name in ipairs(pass > 0 and READ or {}) do
    if self.items[i - 1].revents ~= 0 then
      local frames = frames_of(self, name)
      if name == "hb" then send_frames(self, "hb", frames)
      elseif name ~= "stdin" then return (request_of(self, name, frames)) end
    end
  end
end

--- Sends a message.
-- @param name     the socket
-- @param kind     "execute_reply", "stream" ...
-- @param content  JSON text
-- @param request  the request that it belongs to
function wire:send(name, kind, content, request)
  self.count = self.count + 1
  local header = ('{"msg_id":"%s_%d","session":"%s","username":"moth","date":"%s","msg_type":"%s",'
    .. '"version":"5.3"}'):format(self.session, self.count, self.session,
    os.date "!%Y-%m-%dT%H:%M:%SZ", kind)
  local parent = request and request.header or "{}"
  local frames = name == "iopub" and {kind} or {unpack(request.ids)}
  frames[#frames + 1] = MARK
  frames[#frames + 1] = self:sign(header, parent, "{}", content)
  for _, part in ipairs {header, parent, "{}", content} do frames[#frames + 1] = part end
  send_frames(self, name, frames)
end

return wire
