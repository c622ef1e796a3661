--- hosts.lua -- several hosts on one machine, for spec/distributed: network namespaces with host
-- names and addresses 10.77.0.1, 10.77.0.2, ..., and a switch between them.
--
-- It needs root, iproute2 (apt-get install iproute2), and /dev/net/tun for a cable with a delay.

local hosts = {}

-- How many times the kernel repeats unanswered data before it closes a connection. 5 are about
-- 12 s; the default of 15 is about a quarter of an hour.
local RETRIES = 5

local function succeeds(command) return os.execute(command .. " >/dev/null 2>&1") == 0 end

local function sh(format, ...)
  local command = format:format(...)
  if not succeeds(command) then error("failed: " .. command, 0) end
end

local function output(format, ...)
  local pipe = io.popen(format:format(...))
  local text = pipe:read "*a"
  pipe:close()
  return text
end

local function program() return debug.getregistry()["moth.launcher"].program end

--- What is missing here, or nil.
function hosts.missing()
  if output "id -u" ~= "0\n" then return "needs root" end
  if not succeeds "command -v ip" then return "needs apt-get install iproute2" end
  local name = os.tmpname():match "[^/]*$"
  local works = succeeds(("ip netns add %s && ip netns exec %s unshare --uts true"):format(name,
    name)) and succeeds(("ip -n %s link add x type veth peer name y"):format(name))
    and succeeds(("ip -n %s link add z type bridge"):format(name))
  succeeds("ip netns del " .. name)
  if not works then return "needs a kernel with network namespaces, veth and bridge" end
  return not succeeds "test -c /dev/net/tun" and "needs /dev/net/tun" or nil
end

function hosts.address(i) return "10.77.0." .. i end

local net = {}
net.__index = net

-- The two ends of a cable: eth0 of the host, and a port of the switch.
local function cable(self, i, delay)
  local switch, host = self.prefix .. "s", self.prefix .. i
  if not delay then
    sh("ip -n %s link add port%d type veth peer name eth0 netns %s", switch, i, host)
    return
  end
  local pid = output("ip netns exec %s %s spec/support/delay.lua %g far port%d >/dev/null 2>&1 & "
    .. "echo $!", switch, program(), delay, i)
  self.pids[#self.pids + 1] = tonumber(pid)
  for _ = 1, 100 do
    if succeeds(("ip -n %s link show port%d"):format(switch, i)) then break end
    os.execute "sleep 0.1"
  end
  sh("ip -n %s link set far netns %s name eth0", switch, host)
end

--- Makes n hosts. @param delays  host -> seconds that its cable delays each packet, both ways
function hosts.new(n, delays)
  local folder = os.tmpname()
  os.remove(folder)
  local self = setmetatable({n = n, folder = folder, pids = {},
    prefix = folder:match "[^/_]*$"}, net)
  sh("mkdir %s && ip netns add %ss", folder, self.prefix)
  sh("ip -n %ss link add switch type bridge && ip -n %ss link set switch up", self.prefix,
    self.prefix)
  for i = 1, n do
    local host = self.prefix .. i
    sh("ip netns add %s && ip -n %s link set lo up", host, host)
    sh("ip netns exec %s sh -c 'echo %d >/proc/sys/net/ipv4/tcp_retries2'", host, RETRIES)
    cable(self, i, delays and delays[i])
    sh("ip -n %ss link set port%d master switch up", self.prefix, i)
    sh("ip -n %s addr add %s/24 dev eth0 && ip -n %s link set eth0 up", host, hosts.address(i),
      host)
  end
  -- What ssh is between real hosts: agent ADDRESS COMMAND...
  self.agent = folder .. "/agent"
  local file = io.open(self.agent, "w")
  file:write(([[#!/bin/sh
host=${1##*.}
shift
exec ip netns exec %s$host unshare --uts sh -c "hostname host$host; $*"
]]):format(self.prefix))
  file:close()
  sh("chmod +x %s", self.agent)
  return self
end

--- A shell command that runs a command on a host.
function net:on(i, command)
  return ("%s %s '%s'"):format(self.agent, hosts.address(i), (command:gsub("'", "'\\''")))
end

--- Cuts the cable of a host.
function net:cut(i) sh("ip -n %ss link set port%d down", self.prefix, i) end

--- The processes that run on the hosts, one a line: "host 1: 4711 moth ./moth train.lua".
function net:processes()
  local list = {}
  for i = 1, self.n do
    for pid in output("ip netns pids %s%d", self.prefix, i):gmatch "%d+" do
      list[#list + 1] = ("host %d: %s"):format(i, output("ps -o pid=,comm=,args= -p %s", pid))
    end
  end
  return table.concat(list)
end

function net:close()
  if self.closed then return end
  self.closed = true
  for i = 1, self.n do
    succeeds(("ip netns pids %s%d | xargs -r kill -9"):format(self.prefix, i))
    succeeds(("ip netns del %s%d"):format(self.prefix, i))
  end
  for _, pid in ipairs(self.pids) do succeeds("kill -9 " .. pid) end
  succeeds(("ip netns del %ss"):format(self.prefix))
  succeeds("rm -r " .. self.folder)
end

return hosts
