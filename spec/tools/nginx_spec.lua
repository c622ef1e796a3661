-- Moth in nginx with http-lua: requests that overlap and sleep inside modes and scopes, in
-- OpenResty's LuaJIT, which resumes coroutines from C and uses them again for later requests.

local nginx = require "spec.support.nginx"

describe("requests to nginx that overlap", function()
  if nginx.why then
    pending("see their own modes: " .. nginx.why)
    return
  end

  local APP = [==[
    local moth = require "moth"
    local nn = moth.nn
    local app = {}
    local w, a = moth.ones(3):requires_grad_(), moth.ones(2, 2)
    local net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))

    local function check_modes(grad, cast)
      assert(moth.is_grad_enabled() == grad, "grad mode")
      assert((w * 2).requires_grad == grad, "recording")
      assert(moth.is_autocast_enabled() == cast, "autocast")
      assert(a:matmul(a).dtype == (cast and moth.bfloat16 or moth.float32), "dtype")
    end

    local function sleep() ngx.sleep(0.001 + math.random() * 0.002) end

    local cases = {}

    function cases.no_grad()
      moth.no_grad(function()
        check_modes(false, false)
        sleep()
        check_modes(false, false)
        moth.enable_grad(function() sleep() check_modes(true, false) end)
        check_modes(false, false)
      end)
    end

    function cases.scope()
      local kept = moth.scope(function()
        local x = moth.ones(3)
        sleep()
        assert((x + 1):sum():item() == 6, "a tensor of my scope")
        local y = x * 2
        sleep()
        assert(y:sum():item() == 6, "a tensor of my scope")
        check_modes(true, false)
        return y
      end)
      local mine = moth.ones(3)
      sleep()
      assert((kept + mine):sum():item() == 9, "tensors outside of scopes")
    end

    function cases.both()
      moth.scope(function()
        moth.no_grad(function()
          local x = moth.ones(2)
          sleep()
          check_modes(false, false)
          assert(x:sum():item() == 2)
        end)
        check_modes(true, false)
      end)
    end

    function cases.autocast()
      moth.autocast("cpu", function()
        check_modes(true, true)
        sleep()
        check_modes(true, true)
        moth.no_grad(function() sleep() check_modes(false, true) end)
      end)
    end

    function cases.train()
      local x = moth.randn(4, 2)
      local inputs = x:requires_grad_()
      moth.scope(function()
        local loss = net(inputs):square():sum()
        sleep()
        loss:backward()
      end)
      assert(inputs.grad and inputs.grad:abs():sum():item() > 0, "a gradient")
    end

    function cases.thread()
      moth.no_grad(function()
        local thread = ngx.thread.spawn(function()
          check_modes(true, false)
          moth.autocast("cpu", function() sleep() check_modes(true, true) end)
        end)
        check_modes(false, false)
        assert(ngx.thread.wait(thread))
        check_modes(false, false)
      end)
    end

    function cases.coroutine()
      local turn = coroutine.wrap(function()
        moth.no_grad(function()
          check_modes(false, false)
          coroutine.yield()
          sleep()
          check_modes(false, false)
        end)
      end)
      turn()
      check_modes(true, false)
      sleep()
      check_modes(true, false)
      turn()
    end

    function cases.hook()
      local x = moth.ones(2):requires_grad_()
      local y = x * x
      y:register_hook(function() sleep() check_modes(false, false) end)
      y:sum():backward()
      assert(x.grad:sum():item() == 4)
    end

    function cases.set()
      local ok, text = pcall(moth.set_grad_enabled, false)
      assert(not ok and text:find("write set_grad_enabled(mode, f)", 1, true), text)
    end

    -- These requests end inside modes; the next request uses their coroutine.

    function cases.exit()
      moth.no_grad(function()
        moth.scope(function()
          sleep()
          ngx.print "fine"
          ngx.exit(200)
        end)
      end)
    end

    function cases.error()
      pcall(function()
        moth.autocast("cpu", function() moth.no_grad(function() sleep() error "lost" end) end)
      end)
    end

    function cases.left() -- the client closes the connection meanwhile
      moth.no_grad(function() moth.autocast("cpu", function() ngx.sleep(0.05) end) end)
    end

    function app.answer()
      local name = ngx.var.uri:sub(2)
      if name == "start" then return ngx.print "started" end
      if name == "memory" then
        moth.collect()
        moth.collect()
        check_modes(true, false)
        return ngx.print(moth.memory().live_handles, " ", moth.memory().live_bytes)
      end
      local ok, problem = pcall(function()
        check_modes(true, false)
        cases[name]()
        check_modes(true, false)
      end)
      ngx.print(ok and "fine" or tostring(problem))
    end

    return app
  ]==]

  local NAMES = {"no_grad", "scope", "no_grad", "scope", "both", "autocast", "train", "thread",
    "coroutine", "hook", "set", "exit", "error", "left"}

  it("see their own modes: 2,000 requests, none wrong", function()
    local wrong, answered = {}, 0
    nginx.serve(APP, 300, function(port)
      local function pair(first, second)
        local a, b = nginx.ask(port, "/" .. first), nginx.ask(port, "/" .. second)
        for _, row in ipairs {{a, first}, {b, second}} do
          if row[2] == "left" then
            nginx.leave(row[1])
          else
            local text = nginx.answer(row[1])
            if text ~= "fine" then wrong[#wrong + 1] = row[2] .. ": " .. text end
          end
          answered = answered + 1
        end
      end
      local n = #NAMES
      for k = 0, 199 do pair(NAMES[k % n + 1], NAMES[math.floor(k / n) % n + 1]) end
      local before = nginx.answer(nginx.ask(port, "/memory"))
      for k = 200, 999 do
        pair(NAMES[k % 4 + 1], NAMES[math.floor(k / 4) % n + 1])
      end
      os.execute "sleep 0.1"
      assert.equal(before, nginx.answer(nginx.ask(port, "/memory")))
    end)
    assert.same({}, wrong)
    assert.equal(2000, answered)
  end)
end)
