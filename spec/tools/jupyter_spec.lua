-- The kernel of Jupyter: a small client speaks the protocol over ZeroMQ with `moth jupyter run`.

local ffi = require "ffi"
local files = require "spec.support.files"
local json = require "moth.json"
local lib = require "moth.binding.lib"
local process = require "spec.support.process"
local wire = require "moth.jupyter.wire"

local launcher = debug.getregistry()["moth.launcher"]
local found, zmq = pcall(ffi.load, "libzmq.so.5")
local signs, signature = pcall(wire.sign, setmetatable({key = "Jefe"}, wire),
  "what do ya ", "want for", " nothing", "?")

if not launcher or not found or not signs then
  pending("the kernel of Jupyter: needs ./moth test, libzmq5 and libssl3")
  return
end

pcall(ffi.cdef, [[int moth_zmq_connect(void *socket, const char *address) __asm__("zmq_connect");]])

local DEALER, SUB, SUBSCRIBE, LINGER = 5, 2, 6, 17
local PATIENCE = 60000 -- milliseconds

it("the signature is that of RFC 4231", function()
  assert.equal("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843", signature)
end)

describe("a notebook", function()
  local context, shell, iopub, pid, sent
  local signer = setmetatable({key = "the key"}, wire)

  -- The frames of the next message of a socket.
  local function receive(socket)
    local item = ffi.new("moth_zmq_item[1]")
    item[0].socket, item[0].events = socket, 1
    assert(zmq.moth_zmq_poll(item, 1, PATIENCE) > 0, "no answer")
    local frames, m = {}, ffi.new "moth_zmq_msg"
    repeat
      zmq.moth_zmq_msg_init(m)
      zmq.moth_zmq_msg_recv(m, socket, 0)
      frames[#frames + 1] = ffi.string(zmq.moth_zmq_msg_data(m), zmq.moth_zmq_msg_size(m))
      local more = zmq.moth_zmq_msg_more(m) ~= 0
      zmq.moth_zmq_msg_close(m)
    until not more
    local at = 1
    while frames[at] ~= "<IDS|MSG>" do at = at + 1 end
    assert.equal(signer:sign(unpack(frames, at + 2, at + 5)), frames[at + 1])
    return json.decode(frames[at + 2]).msg_type, json.decode(frames[at + 5])
  end

  -- Sends a request. @return the content of its reply, and the texts that iopub got until "idle";
  -- nothing if a key, a header or a text for the content is given
  local function ask(kind, content, key, given_header, given_content)
    sent = sent + 1
    local header = ('{"msg_id":"%d","session":"s","msg_type":"%s","version":"5.3"}'):format(sent,
      kind)
    local parts = {given_header or header, "{}", "{}", given_content or json.encode(content)}
    local frames = {"<IDS|MSG>", setmetatable({key = key or signer.key}, wire):sign(unpack(parts)),
      unpack(parts)}
    for i, frame in ipairs(frames) do
      zmq.moth_zmq_send(shell, frame, #frame, i < #frames and 2 or 0)
    end
    if key then return end
    local seen = {}
    repeat
      local name, body = receive(iopub)
      if name == "stream" then seen[#seen + 1] = body.name .. ": " .. body.text
      elseif name == "error" then seen[#seen + 1] = "error: " .. body.evalue
      elseif body.data then
        for mime, text in pairs(body.data) do seen[#seen + 1] = mime .. ": " .. text end
      end
    until name == "status" and body.execution_state == "idle"
    table.sort(seen)
    return select(2, receive(shell)), seen
  end

  local function run(code) return ask("execute_request", {code = code, silent = false}) end

  setup(function()
    files.setup()
    local path = files.write("connection.json", ('{"transport": "ipc", "ip": "%s", '
      .. '"key": "the key", "signature_scheme": "hmac-sha256", "shell_port": 1, "iopub_port": 2, '
      .. '"stdin_port": 3, "control_port": 4, "hb_port": 5}'):format(files.path "kernel"))
    local pipe = io.popen(("%s jupyter run '%s' >'%s' 2>&1 & echo $!"):format(process.program, path,
      files.path "log"))
    pid = pipe:read "*l"
    pipe:close()
    sent, context = 0, zmq.moth_zmq_ctx_new()
    shell = zmq.moth_zmq_socket(context, DEALER)
    iopub = zmq.moth_zmq_socket(context, SUB)
    zmq.moth_zmq_setsockopt(iopub, SUBSCRIBE, "", 0)
    zmq.moth_zmq_connect(iopub, "ipc://" .. files.path "kernel-2")
    zmq.moth_zmq_connect(shell, "ipc://" .. files.path "kernel-1")
    local limit = lib.C.moth_seconds() + PATIENCE / 1000
    local item = ffi.new "moth_zmq_item[1]"
    local got
    item[0].socket, item[0].events = iopub, 1
    repeat -- until the subscription has arrived
      ask("comm_info_request", {}, "the key")
      receive(shell)
      got = zmq.moth_zmq_poll(item, 1, 200)
    until got > 0 or lib.C.moth_seconds() > limit
    while zmq.moth_zmq_poll(item, 1, 300) > 0 do receive(iopub) end
  end)

  teardown(function()
    os.execute("kill -9 " .. pid .. " 2>/dev/null")
    for _, socket in ipairs {shell, iopub} do
      zmq.moth_zmq_setsockopt(socket, LINGER, ffi.new("int[1]", 0), 4)
      zmq.moth_zmq_close(socket)
    end
    zmq.moth_zmq_ctx_term(context) -- its threads end before the library is unloaded
    files.teardown()
  end)

  it("shows the value of the last expression of a cell, and what it prints", function()
    local reply, seen = run "local x = moth.ones(2, 3)\nprint('hi')\nio.stderr:write('oh')\nx:sum()"
    assert.equal("ok", reply.status)
    assert.same({"stderr: oh", "stdout: hi\n", "text/plain: 6 [moth.float32]"}, seen)
    assert.same({"text/plain: 12 [moth.float32]"}, select(2, run "x:sum() + _"))
  end)

  it("shows figures as SVG", function()
    local _, seen = run "moth.plot.lines{1, 2, 4}"
    assert.is_truthy(seen[1]:find("image/svg+xml: <svg", 1, true))
  end)

  it("reports errors of running and of compiling, and lives on", function()
    local reply, seen = run "error 'ouch'"
    assert.equal("error", reply.status)
    assert.is_truthy(seen[1]:find "error: %[%d+%]:1: ouch")
    reply, seen = run "for i = 1, 2 do"
    assert.equal("error", reply.status)
    assert.is_truthy(seen[1]:find("'end' expected", 1, true))
    assert.same({"text/plain: 42"}, select(2, run "6 * 7"))
  end)

  it("completes, explains and says if a cell is complete", function()
    local reply = ask("complete_request", {code = "s = 'ä'; moth.randp", cursor_pos = 19})
    assert.same({{"randperm"}, 14, 19}, {reply.matches, reply.cursor_start, reply.cursor_end})
    reply = ask("inspect_request", {code = "F.relu(x)", cursor_pos = 4})
    assert.is_truthy(reply.found and reply.data["text/plain"]:find("max(x, 0)", 1, true))
    assert.equal("incomplete", ask("is_complete_request", {code = "for i = 1, 2 do"}).status)
    assert.equal("5.3", ask("kernel_info_request", {}).protocol_version)
  end)

  it("ignores messages whose header or content is no JSON", function()
    for _, row in ipairs {{"no header", nil}, {nil, "no content"}} do
      ask("execute_request", {code = "broken = true", silent = false}, "the key", row[1], row[2])
    end
    assert.same({"text/plain: nil"}, select(2, run "broken"))
  end)

  it("ignores messages with another signature, and ends at a request", function()
    ask("execute_request", {code = "stolen = true", silent = false}, "another key")
    assert.same({"text/plain: nil"}, select(2, run "stolen"))
    assert.equal("ok", ask("shutdown_request", {restart = false}).status)
    local limit = os.time() + 20
    while os.execute("kill -0 " .. pid .. " 2>/dev/null") == 0 and os.time() < limit do end
    assert.is_true(os.time() < limit)
  end)
end)
