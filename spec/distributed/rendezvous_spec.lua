-- Processes that are joined by TCP (core/host/rendezvous.c), without MPI and without a GPU: what
-- they send, values from each rank, ranks that do not come, strangers, broken peers. Some peers are
-- written here, with sockets, from the layout of the heads in that file.

local files = require "spec.support.files"
local process = require "spec.support.process"

setup(files.setup)
teardown(files.teardown)

-- What each process runs first. `open` and `share` return "ok" or the message.
local BEGIN = [[
local ffi = require "ffi"
local moth = require "moth"
local lib = require "moth.binding.lib"
local dist = moth.distributed
local C, ctx = lib.C, lib.ctx
local port, rank, size = tonumber(arg[1]), tonumber(arg[2]), tonumber(arg[3])
local function result(status)
  return status == 0 and "ok" or ("%d %s"):format(status, ffi.string(C.moth_error(ctx, 1)))
end
local function open(seconds, r, n, host, p)
  return result(C.moth_rendezvous_open(ctx, host or "127.0.0.1", p or port, r or rank, n or size,
    seconds or 20))
end
local function share(root, text, n, seconds)
  local buffer = ffi.new("char[?]", math.max(n, 1) + 1)
  if text then ffi.copy(buffer, text, #text) end
  local status = C.moth_rendezvous_share(ctx, root, buffer, n, seconds or 20)
  return status == 0 and ffi.string(buffer, math.max(n, 0)) or result(status)
end
local function close() return result(C.moth_mpi_close(ctx)) end
local function say(...)
  io.write(rank, ": ", table.concat({...}, " | "), "\n")
  io.flush()
end
ffi.cdef "int usleep(unsigned microseconds);"
local function wait(seconds) ffi.C.usleep(seconds * 1e6) end

-- ---- peers that are written here ----
ffi.cdef "int socket(int, int, int); int connect(int, const void *, unsigned);"
ffi.cdef "int bind(int, const void *, unsigned); int listen(int, int);"
ffi.cdef "int accept(int, void *, void *); int close(int);"
ffi.cdef "intptr_t send(int, const void *, size_t, int);"
ffi.cdef "intptr_t recv(int, void *, size_t, int);"
ffi.cdef "int setsockopt(int, int, int, const void *, unsigned);"
local MAGIC, GREETING, WELCOME, REFUSAL, VALUE = 0x6d6f7468, 0, 1, 2, 3
local Address = ffi.typeof "struct { uint16_t family; uint8_t port[2], address[4], zero[8]; }"
local Head = ffi.typeof
  "struct { uint32_t magic, version, kind; int32_t rank, size; uint32_t number; int64_t bytes; }"
local function address()
  local a = Address()
  a.family, a.port[0], a.port[1] = 2, math.floor(port / 256), port % 256
  a.address[0], a.address[3] = 127, 1
  return a
end
local function connect()
  for _ = 1, 200 do
    local s = ffi.C.socket(2, 1, 0)
    if ffi.C.connect(s, address(), 16) == 0 then return s end
    ffi.C.close(s)
    wait(0.02)
  end
end
local function listen()
  local s, yes = ffi.C.socket(2, 1, 0), ffi.new("int[1]", 1)
  ffi.C.setsockopt(s, 1, 2, yes, 4)
  assert(ffi.C.bind(s, address(), 16) == 0 and ffi.C.listen(s, 8) == 0)
  return s
end
local function send(s, ...)
  local h = Head(...)
  return ffi.C.send(s, h, 32, 0x4000)
end
local function receive(s) -- as text; "end" if the other has closed
  local h = Head()
  if ffi.C.recv(s, h, 32, 0x100) ~= 32 then return "end" end
  return ("%x %d %d %d %d %d %d"):format(h.magic, h.version, h.kind, h.rank, h.size, h.number,
    tonumber(h.bytes))
end
]]

local port = 12000 + math.floor(os.clock() * 1e6 + os.time() * 7) % 7000

-- Runs a script in processes with these ranks of `size`. @return the lines that they wrote, sorted
local function run(ranks, size, text)
  local path, commands = files.write("ranks.lua", BEGIN .. text), {}
  port = port + 1
  for i, rank in ipairs(ranks) do
    commands[i] = ("timeout 30 %s '%s' %d %d %d </dev/null & "):format(process.program, path, port,
      rank, size)
  end
  local output, list = process.shell("{ " .. table.concat(commands) .. "wait; }"), {}
  for line in output:gmatch "[^\n]+" do
    if line ~= "rc=0" then list[#list + 1] = line end
  end
  table.sort(list)
  return list
end

local function says(wanted, ranks, size, text)
  local list = run(ranks, size, text)
  for i, line in ipairs(wanted) do wanted[i] = line:gsub("PORT", port) end
  table.sort(wanted)
  assert.same(wanted, list)
end

describe("processes joined by TCP", function()
  it("pass values of any length from each rank to all", function()
    for size = 1, 4 do
      local ranks, wanted = {}, {}
      for rank = 0, size - 1 do
        ranks[rank + 1], wanted[rank + 1] = rank, rank .. ": ok | ok | true | ok"
      end
      says(wanted, ranks, size, [[
        local opened, all = open(), true
        for _, n in ipairs {0, 1, 128, size == 2 and 2e7 + 1 or 3e6 + 1} do
          for root = 0, size - 1 do
            local text = (string.char(65 + root) .. "\0b"):rep(math.ceil(n / 3)):sub(1, n)
            all = all and share(root, rank == root and text or nil, n) == text
          end
        end
        local last = share(0, rank == 0 and "ok" or nil, 2)
        say(opened, last, tostring(all), close())]])
    end
  end)

  it("need ranks, sizes and ports that are possible; a failed call leaves nothing open", function()
    says({
      "0: 1 0 | -1 0: rank 0 of 0 processes is not possible",
      "0: 2 0 | -1 0: rank 0 of 65537 processes is not possible",
      "0: 3 0 | -1 0: rank -1 of 2 processes is not possible",
      "0: 4 0 | -1 0: rank 2 of 2 processes is not possible",
      "0: 5 0 | -1 0: a port from 1 to 65535 is needed, got 0",
      "0: 6 0 | -1 0: a port from 1 to 65535 is needed, got 65536",
      "0: 7 1 | ok", "0: 7 2 | -15 a context of this process already has a process group",
      "0: 7 3 | x | -1 a rank from 0 to 0 is needed, got -1 | -1 a rank from 0 to 0 is needed, got "
        .. "1 | -1 a rank from 0 to 0 is needed, got 0",
      "0: 7 4 | ok | -15 the processes were not joined by TCP", "0: 7 5 | ok | ok",
    }, {0}, 1, [[
      local function row(name, text) say(name, (text:gsub("^%-1 ", "-1 0: "))) end
      row("1 0", open(1, 0, 0))
      row("2 0", open(1, 0, 65537))
      row("3 0", open(1, -1, 2))
      row("4 0", open(1, 2, 2))
      row("5 0", open(1, 0, 1, nil, 0))
      row("6 0", open(1, 0, 1, nil, 65536))
      say("7 1", open(1, 0, 1, nil, 1))
      say("7 2", open(1, 0, 1))
      say("7 3", share(0, "x", 1), share(-1, "x", 1), share(1, "x", 1), share(0, "x", -1))
      say("7 4", close(), share(0, "x", 1))
      say("7 5", open(1, 0, 1, nil, 65535), close())]])
  end)

  it("name the ranks that have not come, eight at most", function()
    for size, names in pairs {[2] = "1", [9] = "1, 2, 3, 4, 5, 6, 7, 8",
                              [10] = "1, 2, 3, 4, 5, 6, 7, 8, ...",
                              [65536] = "1, 2, 3, 4, 5, 6, 7, 8, ..."} do
      says({("0: -14 these ranks of %d have not connected to port PORT within 0.1 s: %s | ok | ok")
        :format(size, names)}, {0}, size, [[
        local text = open(0.1)
        say(text, open(1, 0, 1), close())]])
    end
    says({"0: -14 these ranks of 4 have not connected to port PORT within 1.5 s: 1, 3",
      "2: -14 the connection to rank 0 ended: it has closed it"}, {0, 2}, 4, "say(open(1.5))")
    says({"1: -14 rank 0 does not answer at 127.0.0.1, port PORT, within 0.2 s: Connection refused "
      .. "| ok"}, {1}, 2, "local text = open(0.2) say(text, open(1, 0, 1))")
    local text = run({1}, 2, "say(open(0.2, 1, 2, '..'))")[1]
    assert.matches("^1: %-14 the host %.%. is not known: %u", text)
  end)

  it("end the wait when the process is interrupted", function()
    says({"0: -16 interrupted | true", "1: -16 interrupted | true"}, {0, 1}, 3, [[
      if rank == 1 then port = 1 end -- nobody listens there
      local before = C.moth_seconds()
      C.moth_interrupt()
      local text = open(15)
      say(text, tostring(C.moth_seconds() - before < 10))]])
  end)

  it("refuse a second rank 0, a rank that came before, and another number of ranks", function()
    says({"0: ok", "1: -14 rank 0 cannot listen at port PORT: Address already in use",
      "1: -15 rank 0 refuses rank 1 of 3: it has 3 processes, or this rank twice",
      "1: -15 rank 0 refuses rank 1 of 2: it has 3 processes, or this rank twice",
      "1: -15 rank 0 refuses rank 3 of 4: it has 3 processes, or this rank twice",
      "1: 6d6f7468 1 1 1 3 0 0 | 6d6f7468 1 1 2 3 0 0"}, {0, 1}, 3, [[
      if rank == 0 then return say(open()) end
      local one = connect()
      send(one, MAGIC, 1, GREETING, 1, 3, 0, 0)
      say(open(nil, 1, 3))
      say(open(nil, 1, 2))
      say(open(nil, 3, 4))
      say(open(nil, 0, 3))
      local two = connect()
      send(two, MAGIC, 1, GREETING, 2, 3, 0, 0)
      say(receive(one), receive(two))]])
  end)

  it("send heads of 32 bytes: a greeting, a welcome, values with their numbers", function()
    says({"0: ok | abc | defg", "1: 6d6f7468 1 1 1 2 0 0", "1: 6d6f7468 1 3 0 2 1 3 abc",
      "1: end"}, {0, 1}, 2, [[
      if rank == 0 then
        say(open(), share(0, "abc", 3), share(1, nil, 4))
      else
        local s, buffer = connect(), ffi.new "char[4]"
        send(s, MAGIC, 1, GREETING, 1, 2, 0, 0)
        say(receive(s))
        local head = receive(s)
        ffi.C.recv(s, buffer, 3, 0x100)
        say(head .. " " .. ffi.string(buffer, 3))
        send(s, MAGIC, 1, VALUE, 1, 2, 2, 4)
        ffi.C.send(s, "defg", 4, 0)
        say(receive(s))
      end]])
    says({"0: 6d6f7468 1 0 1 2 0 0", "0: 6d6f7468 1 3 1 2 1 4 abcd", "1: ok | abcd | xyz"}, {0, 1},
      2, [[
      if rank == 1 then
        say(open(), share(1, "abcd", 4), share(0, nil, 3))
      else
        local s, buffer = ffi.C.accept(listen(), nil, nil), ffi.new "char[4]"
        say(receive(s))
        send(s, MAGIC, 1, WELCOME, 1, 2, 0, 0)
        local head = receive(s)
        ffi.C.recv(s, buffer, 4, 0x100)
        say(head .. " " .. ffi.string(buffer, 4))
        send(s, MAGIC, 1, VALUE, 0, 2, 2, 3)
        ffi.C.send(s, "xyz", 3, 0)
      end]])
  end)

  it("ignore strangers, and refuse wrong greetings", function()
    local refusal = "6d6f7468 1 2 %d 2 0 0"
    says({"0: ok", "1: end end end end " .. refusal:format(0) .. " " .. refusal:format(2) .. " "
      .. refusal:format(-1) .. " " .. refusal:format(1) .. " | ok"}, {0, 1}, 2, [[
      if rank == 1 then
        local said = {}
        local function stranger(...)
          local s = connect()
          if ... then send(s, ...) end
          if ... then said[#said + 1] = receive(s) end
          ffi.C.close(s)
        end
        local s = connect()
        local request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
        ffi.C.send(s, request, #request, 0)
        said[1] = receive(s)
        ffi.C.close(s)
        stranger() -- closes at once
        stranger(MAGIC + 1, 1, GREETING, 1, 2, 0, 0)
        stranger(MAGIC, 2, GREETING, 1, 2, 0, 0)
        stranger(MAGIC, 1, WELCOME, 1, 2, 0, 0)
        stranger(MAGIC, 1, GREETING, 0, 2, 0, 0)
        stranger(MAGIC, 1, GREETING, 2, 2, 0, 0)
        stranger(MAGIC, 1, GREETING, -1, 2, 0, 0)
        stranger(MAGIC, 1, GREETING, 1, 3, 0, 0)
        say(table.concat(said, " "), open())
      else
        say(open())
      end]])
  end)

  it("raise when rank 0 answers otherwise", function()
    for head, text in pairs {
      ["MAGIC, 1, REFUSAL, 1, 7, 0, 0"] = 7, ["MAGIC + 1, 1, WELCOME, 1, 2, 0, 0"] = 2,
      ["MAGIC, 1, GREETING, 1, 2, 0, 0"] = 2,
    } do
      says({("1: -15 rank 0 refuses rank 1 of 2: it has %d processes, or this rank twice | ok")
        :format(text)}, {0, 1}, 2, ([[
        if rank == 1 then
          local answer = open()
          say(answer, open(1, 0, 1))
        else
          local s = ffi.C.accept(listen(), nil, nil)
          receive(s)
          send(s, %s)
        end]]):format(head))
    end
  end)

  it("raise when a rank shares another value, does not answer, or has ended", function()
    local other = "-15 rank 1 calls another function than this process: all processes call "
      .. "init_process_group and new_group in the same order"
    says({"0: " .. other, "0: " .. other, "0: " .. other, "0: " .. other, "0: ok | ok",
      "0: -14 the connection to rank 1 ended: no answer in time | true",
      "0: -14 the connection to rank 1 ended: it has closed it"}, {0, 1}, 2, [[
      local heads = {{MAGIC + 1, VALUE, 1, 4}, {MAGIC, WELCOME, 1, 4}, {MAGIC, VALUE, 2, 4},
        {MAGIC, VALUE, 1, 5}, {MAGIC, VALUE, 1, 4}}
      if rank == 0 then
        for i = 1, 5 do
          open()
          local text = share(1, nil, 4)
          if i < 5 then say(text) else say("ok", text == "ok!!" and "ok" or text) end
          close()
        end
        open()
        local before = C.moth_seconds()
        local text = share(1, nil, 4, 0.3)
        local passed = C.moth_seconds() - before
        say(text, tostring(passed >= 0.3 and passed < 2))
        close()
        open()
        say(share(1, nil, 4))
      else
        for i = 1, 7 do
          local s = connect()
          send(s, MAGIC, 1, GREETING, 1, 2, 0, 0)
          receive(s)
          local h = heads[i]
          if h then
            send(s, h[1], 1, h[2], 1, 2, h[3], h[4])
            ffi.C.send(s, "ok!!", 4, 0)
          end
          if i < 7 then receive(s) end -- until rank 0 closes
          ffi.C.close(s)
        end
      end]])
  end)

  it("end a message that the other process does not read, after the timeout", function()
    says({"0: -14 the connection to rank 1 ended: no answer in time"}, {0, 1}, 2, [[
      if rank == 0 then
        open()
        say(share(0, ("x"):rep(5e7), 5e7, 0.3))
      else
        local s = connect()
        send(s, MAGIC, 1, GREETING, 1, 2, 0, 0)
        receive(s)
        wait(1.5)
      end]])
  end)

  it("raise when a peer has closed its connection without reading", function()
    local list = run({0, 1}, 2, [[
      if rank == 1 then
        local s = connect()
        send(s, MAGIC, 1, GREETING, 1, 2, 0, 0)
        local word = ffi.new "char[1]"
        ffi.C.recv(s, word, 1, 0x102) -- waits for the welcome, which stays unread
        return ffi.C.close(s)
      end
      open()
      local text
      for _ = 1, 100 do
        text = share(0, "x", 1)
        if text ~= "x" then break end
        wait(0.02)
      end
      say(text)
      say(share(0, "x", 1))]])
    assert.equal(2, #list, table.concat(list, "\n"))
    for _, line in ipairs(list) do
      local why = line:match "^0: %-14 the connection to rank 1 ended: (.*)$"
      assert.is_true(why == "Broken pipe" or why == "Connection reset by peer", line)
    end
  end)

  it("keep their sockets from programs that they start, and close them at the end", function()
    says({"0: 0 | 2 | 0 | 0", "1: 0 | 1 | 0 | 0", "2: 0 | 1 | 0 | 0"}, {0, 1, 2}, 3, [[
      local function sockets(whose)
        local pipe = io.popen(("ls -l /proc/%s/fd | grep -c socket:"):format(whose))
        local n = tonumber(pipe:read "*a")
        pipe:close()
        return n
      end
      local before, child = sockets "$PPID", sockets "self"
      open()
      local during, theirs = sockets "$PPID" - before, sockets "self" - child
      share(0, rank == 0 and "x" or nil, 1)
      close()
      say(before, during, theirs, sockets "$PPID" - before)]])
  end)
end)
