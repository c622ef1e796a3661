--- nginx.lua -- runs an nginx with http-lua while a function runs, and sends requests to it.
--
-- MOTH_NGINX names the folder that contains its usr/; without it, that is build/hosts/nginx, which
-- .ci/nginx makes: Debian's packages conflict with its luajit, but they can be unpacked.

local http = require "spec.support.http"
local lib = require "moth.binding.lib"
local process = require "spec.support.process"

local nginx = {}

local function exists(path)
  local file = io.open(path)
  if file then file:close() end
  return file ~= nil
end

local root = os.getenv "MOTH_NGINX" or require("moth.error").root .. "build/hosts/nginx"
local program = root .. "/usr/sbin/nginx"
local modules = root .. "/usr/lib/nginx/modules/"

if jit.os ~= "Linux" then
  nginx.why = "sockets are called as Linux has them"
elseif not exists(program) or not exists(modules .. "ngx_http_lua_module.so") then
  nginx.why = "no nginx with http-lua: .ci/nginx unpacks Debian's in build/hosts/nginx"
end

--- Sends a request. @return the connection, or nil
function nginx.ask(port, path)
  local fd = http.connect(port)
  if fd then http.send(fd, "GET " .. path .. " HTTP/1.0\r\nHost: localhost\r\n\r\n") end
  return fd
end

--- The body of the answer to a request.
function nginx.answer(fd)
  local parts = {}
  repeat
    local bytes = http.receive(fd)
    parts[#parts + 1] = bytes
  until not bytes
  http.close(fd)
  return (table.concat(parts):gsub("^.-\r\n\r\n", ""))
end

--- Closes a connection before the reply.
nginx.leave = http.close

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
  local port = http.free_port()
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
