-- Random programs of all ops, run in several ways that must agree: replayed, on several threads, in
-- a scope, with other layouts, on a GPU; and their gradients, compared with finite differences.
--
-- `MOTH_FUZZ=5000 ./moth test spec/core/fuzz_spec.lua` runs 5000 programs a claim instead of a few.
-- A failure prints the seed; MOTH_FUZZ_SEED starts at that seed.

local moth = require "moth"
local cuda = require "spec.support.cuda"
local fuzz = require "spec.support.fuzz"
local process = require "spec.support.process"

local COUNT = tonumber(os.getenv "MOTH_FUZZ")
local FIRST = tonumber(os.getenv "MOTH_FUZZ_SEED")
if FIRST then COUNT = COUNT or 1 end

local function each(count, check, smooth)
  fuzz.each(FIRST or 1, COUNT or count, check, smooth)
end

describe("random programs", function()
  it("compute the same bits on four threads and in a scope", function()
    local said = process.lua(([[
      local ffi, root, first, count = require "ffi", %q, %d, %d
      ffi.cdef "int setenv(const char *name, const char *value, int overwrite);"
      ffi.C.setenv("MOTH_SPLIT", "1", 1) -- small ops are split too; read when Moth is loaded
      package.path = root .. "?.lua;" .. package.path
      local fuzz = require "spec.support.fuzz"
      fuzz.each(first, count, fuzz.again_differs)
    ]]):format(require("moth.error").root, FIRST or 1, COUNT or 60))
    assert(said:match "^rc=0%s*$", said)
  end)

  it("compute the same bits when captured, also with other numbers", function()
    each(300, function(program)
      local sets = {program.inputs, fuzz.permuted(program.inputs)}
      local step = moth.capture(function(...) return unpack(fuzz.run(program, {...})) end)
      for k = 1, 4 do
        local inputs = sets[1 + k % 2]
        local wanted = fuzz.outcome(program, inputs)
        fuzz.sow(program)
        local got = {pcall(step, unpack(inputs))}
        if not got[1] and (not wanted or got[2]:find("moth.capture", 1, true)) then break end
        if not got[1] then return got[2] end
        if not wanted then return "a recording saves it" end
        local trouble = fuzz.differ(wanted, {unpack(got, 2)})
        if trouble then return ("call %d: %s"):format(k, trouble) end
      end
      step:free()
    end)
  end)
end)

describe("the gradient of a random program", function()
  it("is the derivative of its result", function()
    each(300, function(program)
      return fuzz.outcome(program, program.inputs) and fuzz.derivative_differs(program)
    end, true)
  end)
end)

-- ---- single steps ----

local LAYOUTS = {
  transposed = function(x)
    return x:dim() > 1 and x:transpose(1, -1):contiguous():transpose(1, -1) or x
  end,
  strided = function(x) return moth.stack({x, x}, -1):select(-1, 2) end,
  offset = function(x)
    return x:dim() > 0 and moth.cat({x, x, x}, 1):narrow(1, x:size(1) + 1, x:size(1)) or x
  end,
  channels_last = function(x)
    return x:dim() == 4 and x:contiguous {memory_format = moth.channels_last} or x
  end,
}

local function each_step(program, name, turn)
  for k, step in ipairs(program.steps) do
    local ok, got = pcall(fuzz.step, step, turn)
    local trouble
    if ok then trouble = fuzz.differ(step.after, got, true)
    elseif not got:find "without a copy" then trouble = got -- a view may refuse a layout
    end
    if trouble then return ("step %d, %s, %s: %s"):format(k, step.op.name, name, trouble) end
  end
end

describe("a step of a random program", function()
  it("does not depend on the memory layout of its inputs", function()
    each(200, function(program)
      for name, turn in pairs(LAYOUTS) do
        local trouble = each_step(program, name, turn)
        if trouble then return trouble end
      end
    end)
  end)

  it("has the same results on a GPU and on the CPU", function()
    if not cuda.here then
      pending(cuda.why)
      return
    end
    each(200, function(program)
      return each_step(program, "on a GPU", function(x) return x:cuda() end)
    end)
  end)
end)
