-- Anomaly mode: errors of a backward pass name lines of the forward pass.

local moth = require "moth"
local intact = require "spec.support.intact"

local autograd = moth.autograd

local function line_of(fn, offset) return debug.getinfo(fn, "S").linedefined + (offset or 0) end

describe("anomaly mode", function()
  after_each(function() autograd.set_detect_anomaly(false) end)

  it("names the line that changed a saved tensor and the line that recorded the op", function()
    local x = moth.ones(2):requires_grad_()
    local y, z
    local function forward()
      y = x * 1
      z = y * y
    end
    local function change()
      y:add_(1)
    end
    local message = intact.message(function()
      local _, text = pcall(autograd.detect_anomaly, function()
        forward()
        moth.no_grad(change)
        z:sum():backward()
      end)
      y, z = nil, nil
      error(text, 0)
    end, { x })
    assert.matches("recorded at spec/autograd/anomaly_spec.lua:" .. line_of(forward, 2), message)
    assert.matches("changed at spec/autograd/anomaly_spec.lua:" .. line_of(change, 1), message)
    assert.matches("version 0", message)
    assert.equal("E_VERSION", moth.errcode())
    assert.is_false(autograd.is_anomaly_enabled())
  end)

  it("names no lines when it is off", function()
    local x = moth.ones(2):requires_grad_()
    local y = x * 1
    local z = y * y
    moth.no_grad(function() y:add_(1) end)
    local message = intact.message(function() z:sum():backward() end, { x })
    assert.is_nil(message:find("changed at", 1, true))
    assert.matches("E_VERSION", moth.errcode())
  end)

  it("finds the op whose gradient holds NaN", function()
    local x = moth.zeros(2):requires_grad_()
    local y
    local function forward()
      y = (x * 0):sqrt() * 0
    end
    assert.has_no_error(function() (x:sqrt() * 0):sum():backward() end)
    x.grad = nil
    local message = intact.message(function()
      local _, text = pcall(autograd.detect_anomaly, function()
        forward()
        y:sum():backward()
      end)
      y = nil
      error(text, 0)
    end, { x })
    assert.matches("sqrt", message)
    assert.matches("NaN", message, 1, true)
    assert.matches("recorded at spec/autograd/anomaly_spec.lua:" .. line_of(forward, 1), message)
  end)

  it("restores its mode after an error and returns the results of its function", function()
    assert.has_error_like(function()
      autograd.detect_anomaly(function() error("mine") end)
    end, "mine")
    assert.is_false(autograd.is_anomaly_enabled())
    assert.same({ 1, 2 }, { autograd.detect_anomaly(function() return 1, 2 end) })
    autograd.set_detect_anomaly(true)
    autograd.detect_anomaly(function() end)
    assert.is_true(autograd.is_anomaly_enabled())
    intact.refuses(function() autograd.set_detect_anomaly(1) end, "'on' to 'set_detect_anomaly'")
  end)

  it("changes no values and keeps no memory", function()
    local function run()
      moth.manual_seed(1)
      local x = moth.randn(3, 3):requires_grad_()
      local y = (x:matmul(x) * 2):relu():sum()
      y:backward()
      return x.grad:tolist()
    end
    local plain = run()
    local before = intact.counts()
    assert.same(plain, autograd.detect_anomaly(run))
    assert.at_most(before, intact.counts())
  end)
end)
