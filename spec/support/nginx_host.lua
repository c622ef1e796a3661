--- nginx_host.lua -- starts examples/hosts/nginx on a free port, in a folder of its own.
--
-- MOTH_NGINX names the root of an unpacked nginx; otherwise it is build/hosts/nginx, which
-- .ci/nginx makes.

local http = require "spec.support.http"
local lib = require "moth.binding.lib"
local process = require "spec.support.process"

local host = {}

local here = require("moth.error").root
if not here:match "^/" then here = process.shell("pwd"):match "^[^\n]*" .. "/" .. here end
local root = os.getenv "MOTH_NGINX" or here .. "build/hosts/nginx"

local function exists(path)
  local file = io.open(path)
  if file then file:close() end
  return file ~= nil
end

if jit.os ~= "Linux" then
  host.why = "sockets are called as Linux has them"
elseif not exists(root .. "/usr/lib/x86_64-linux-gnu/lua/5.1/cjson.so") then
  host.why = "no nginx with http-lua and cjson: .ci/nginx unpacks Debian's in build/hosts/nginx"
end

local Server = {}
Server.__index = Server

function Server:path(name) return self.folder .. "/" .. name end

function Server:read(name)
  local file = io.open(self:path(name))
  local text = file and file:read "*a" or ""
  if file then file:close() end
  return text
end

--- Replaces texts of nginx.conf. @param changes  a list of {old, new}
function Server:configure(changes)
  local text = self:read "nginx.conf"
  for _, change in ipairs(changes) do
    local first, last = text:find(change[1], 1, true)
    assert(first, change[1])
    text = text:sub(1, first - 1) .. change[2] .. text:sub(last + 1)
  end
  local file = assert(io.open(self:path "nginx.conf", "w"))
  file:write(text)
  file:close()
end

function Server:pid() return tonumber(self:read "nginx.pid") end

--- The workers' processes, as a sorted list.
function Server:workers()
  local pid, list = self:pid(), {}
  local file = assert(io.open(("/proc/%d/task/%d/children"):format(pid, pid)))
  for child in file:read("*a"):gmatch "%d+" do list[#list + 1] = tonumber(child) end
  file:close()
  table.sort(list)
  return list
end

--- A number of /proc/PID/status, such as VmRSS (KB) or Threads.
function host.status(pid, name)
  local file = io.open("/proc/" .. pid .. "/status")
  local text = file and file:read "*a" or ""
  if file then file:close() end
  return tonumber(text:match(name .. ":%s*(%d+)"))
end

function Server:hup() os.execute("kill -HUP " .. self:pid()) end

--- Stops the server and removes its folder. @return its error log
function Server:stop()
  os.execute("kill -QUIT " .. self:pid())
  local log = self:read "error.log"
  for _ = 1, 100 do
    if not exists(self:path "nginx.pid") then break end
    os.execute "sleep 0.05"
  end
  os.execute("rm -r '" .. self.folder .. "'")
  return log
end

--- @param changes  of nginx.conf, as for Server:configure
-- @param seconds  it stops by itself after this time
function host.start(changes, seconds)
  local folder = os.tmpname()
  os.remove(folder)
  local server = setmetatable({folder = folder, port = http.free_port()}, Server)
  os.execute(("mkdir '%s' && cp '%sexamples/hosts/nginx'/*.lua '%sexamples/hosts/nginx/nginx.conf'"
    .. " '%s'"):format(folder, here, here, folder))
  server:configure {{"127.0.0.1:8080", "127.0.0.1:" .. server.port}}
  server:configure(changes or {})
  os.execute(("MOTH_LIB='%s' MOTH='%s' NGINX='%s' timeout %d '%sexamples/hosts/nginx/run' '%s' "
    .. "> '%s/out' 2>&1 &"):format(lib.path:match "^/" and lib.path or here .. lib.path,
    here:gsub("/$", ""), root, seconds or 120, here, folder, folder))
  for _ = 1, 200 do
    local fd = http.connect(server.port)
    if fd then http.close(fd) end
    if fd and server:pid() and #server:workers() == 2 then return server end
    os.execute "sleep 0.05"
  end
  error("nginx did not start:\n" .. server:read "out" .. server:read "error.log", 0)
end

return host
