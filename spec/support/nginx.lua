--- nginx.lua -- runs an nginx with http-lua while a function runs, and sends requests to it.
--
-- MOTH_NGINX names the folder that contains its usr/; without it the installed nginx is used, if
-- any. Its packages conflict with Debian's luajit, but they can be unpacked:
--
--     apt-get download nginx libnginx-mod-http-lua libnginx-mod-http-ndk lua-resty-core \
--       lua-resty-lrucache libluajit2-5.1-2
--     for file in *.deb; do dpkg -x $file nginx; done

local ffi = require "ffi"
local lib = require "moth.binding.lib"
local process = require "spec.support.process"

pcall(ffi.cdef, [[
struct moth_spec_address { uint16_t family, port; uint32_t host; char zero[8]; };
int socket(int family, int kind, int protocol);
int connect(int fd, const void *address, uint32_t size);
int bind(int fd, const void *address, uint32_t size);
int getsockname(int fd, void *address, uint32_t *size);
long send(int fd, const void *bytes, size_t size, int flags);
long recv(int fd, void *bytes, size_t size, int flags);
int close(int fd);
]])

local C = ffi.C
local nginx = {}

local function exists(path)
  local file = io.open(path)
  if file then file:close() end
  return file ~= nil
end

local root = os.getenv "MOTH_NGINX" or ""
local program = root .. "/usr/sbin/nginx"
local modules = root .. "/usr/lib/nginx/modules/"

if jit.os ~= "Linux" then
  nginx.why = "sockets are called as Linux has them"
elseif not exists(program) or not exists(modules .. "ngx_http_lua_module.so") then
  nginx.why = "there is no nginx with http-lua; MOTH_NGINX names the folder of an unpacked one"
end

local function address_of(port)
  local a = ffi.new "struct moth_spec_address"
  a.family, a.port = 2, bit.bor(bit.lshift(bit.band(port, 255), 8), bit.rshift(port, 8))
  a.host = 0x0100007f -- 127.0.0.1
  return a
end

local function free_port()
  local fd, a, size = C.socket(2, 1, 0), address_of(0), ffi.new("uint32_t[1]", 16)
  assert(C.bind(fd, a, 16) == 0 and C.getsockname(fd, a, size) == 0)
  C.close(fd)
  return bit.bor(bit.lshift(bit.band(a.port, 255), 8), bit.rshift(a.port, 8))
end

--- Sends a request. @return the connection, or nil
function nginx.ask(port, path)
  local fd = C.socket(2, 1, 0)
  if C.connect(fd, address_of(port), 16) ~= 0 then
    C.close(fd)
    return nil
  end
  local text = "GET " .. path .. " HTTP/1.0\r\nHost: localhost\r\n\r\n"
  C.send(fd, text, #text, 0x4000) -- MSG_NOSIGNAL
  return fd
end

local buffer = ffi.new "char[65536]"

--- The body of the answer to a request.
function nginx.answer(fd)
  local parts = {}
  repeat
    local n = tonumber(C.recv(fd, buffer, 65536, 0))
    if n > 0 then parts[#parts + 1] = ffi.string(buffer, n) end
  until n <= 0
  C.close(fd)
  return (table.concat(parts):gsub("^.-\r\n\r\n", ""))
end

--- Closes a connection before the reply.
function nginx.leave(fd) C.close(fd) end

local CONF = [[
daemon off; master_process off; worker_processes 1; pid nginx.pid; error_log errors.log warn;
env MOTH_LIB; env MOTH_BACKEND_PATH;
load_module %sndk_http_module.so; load_module %sngx_http_lua_module.so;
events { worker_connections 256; }
http {
  access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  lua_package_path "%s/?.lua;%s/usr/share/lua/5.1/?.lua;%slua/?.lua;%slua/?/init.lua;;";
  init_by_lua_block { app = require "app" }
  server { listen 127.0.0.1:%d; lua_check_client_abort on;
    location / { content_by_lua_block { app.answer() } } }
}
]]

--- Starts nginx with a Lua module `app` of that text, calls f(port), and stops it; nginx also
-- stops by itself after a time limit.
-- @return the lines of its error log
function nginx.serve(app, seconds, f)
  local folder = os.tmpname()
  os.remove(folder)
  process.shell(("mkdir -p '%s'"):format(folder))
  local here = require("moth.error").root
  if not here:match "^/" then here = process.shell("pwd"):gsub("%s+$", "") .. "/" .. here end
  local port = free_port()
  local function write(name, text)
    local file = assert(io.open(folder .. "/" .. name, "w"))
    file:write(text)
    file:close()
  end
  write("app.lua", app)
  write("nginx.conf", CONF:format(modules, modules, folder, root, here, here, port))
  local library = lib.path:match "^/" and lib.path or here .. lib.path
  os.execute(("MOTH_LIB='%s' LD_LIBRARY_PATH='%s/usr/lib/x86_64-linux-gnu' timeout %d '%s' "
    .. "-p '%s/' -c nginx.conf -e errors.log > '%s/out' 2>&1 &"):format(library, root, seconds,
    program, folder, folder))
  local function log()
    local text = ""
    for _, name in ipairs {"out", "errors.log"} do
      local file = io.open(folder .. "/" .. name)
      text = text .. (file and file:read "*a" or "")
      if file then file:close() end
    end
    return text
  end
  local started = false
  for _ = 1, 300 do
    local fd = nginx.ask(port, "/start")
    started = fd and nginx.answer(fd) == "started"
    if started then break end
    process.shell "sleep 0.1"
  end
  local ok, problem = pcall(f, port)
  process.shell(("kill $(cat '%s/nginx.pid')"):format(folder))
  local text = log()
  process.shell(("rm -r '%s'"):format(folder))
  if not started then error("nginx did not start:\n" .. text, 0) end
  if not ok then error(tostring(problem) .. "\n" .. text, 0) end
  return text
end

return nginx
