-- One Lua state a thread, tensors crossing by token, built and run as a C host.

local function run(command)
  local pipe = io.popen(command .. " 2>&1; echo rc=$?")
  local text = pipe:read "*a"
  pipe:close()
  return text
end

local moth = require "moth"

describe("a token", function()
  it("opens once, in its own context too, without history", function()
    local x = moth.ones(3):requires_grad_()
    local token = moth.token(x)
    local y = moth.open_token(token)
    assert.is_false(y.requires_grad)
    y[1] = 5
    assert.equal(5, x[1]:item())
    assert.has_error_like(function() moth.open_token(token) end, "no such token")
    assert.has_error_like(function() moth.open_token(12345) end, "token")
  end)

  it("carries tensors between threads that write at once", function()
    local lib = require("moth.lib").path
    local root, libdir = require("moth.error").root, lib:match("^(.*)/[^/]*$")
    local program = os.tmpname()
    local sanitize = os.getenv("MOTH_SANITIZED") -- a sanitized library needs such a host
    local built = run(("cc -std=c11 -O1 %s -o %s %s/spec/host/threads.c "
      .. "$(pkg-config --cflags --libs luajit) -lpthread")
      :format(sanitize and "-fsanitize=" .. sanitize or "", program, root))
    assert.matches("rc=0", built)
    local text = run(("%s %s %s 500"):format(program, root, libdir))
    os.remove(program)
    assert.matches("0 failures", text)
    assert.matches("rc=0", text)
  end)
end)
