--- captured.lua -- counts the ops of a captured step, and compares its replays with the step
-- itself.

local assert = require "luassert"
local ffi = require "ffi"
local moth = require "moth"
local lib = require "moth.binding.lib"
local bits = require "spec.support.bits"

lib.declare "capture"

local captured = {}

local there, here = ffi.new "int32_t[1]", ffi.new "int32_t[1]"

--- The number of ops in the last capture of a step, on all devices.
function captured.ops_of(step)
  lib.C.moth_capture_graphs(lib.ctx, step.last.id, there, here)
  return there[0] + here[0]
end

--- The number of ops in a capture of fn; checks that replays with other numbers return what fn
-- returns.
function captured.recorded(fn, ...)
  local step, x = moth.capture(fn), {...}
  for _ = 1, 3 do
    for i = 1, #x do x[i] = x[i].dtype.is_floating_point and x[i] * 0.75 + 0.5 or x[i]:clone() end
    local wanted, got = {fn(unpack(x))}, {step(unpack(x))}
    for i = 1, #wanted do
      assert.equal(wanted[i].dtype, got[i].dtype)
      assert.equal(bits.of(wanted[i]), bits.of(got[i]))
    end
  end
  local n = captured.ops_of(step)
  step:free()
  return n
end

return captured
