-- Which GPU "cuda" means, and the properties of a GPU.

local moth = require "moth"
local cuda = require "spec.support.cuda"
local process = require "spec.support.process"

describe("a GPU", function()
  if not cuda.here then
    pending("tells of itself: " .. cuda.why)
    return
  end

  it("has properties", function()
    local found = moth.cuda.get_device_properties()
    local major, minor = moth.cuda.get_device_capability()
    local _, total = moth.cuda.mem_get_info()
    assert.equal(moth.cuda.get_device_name(), found.name)
    assert.same({ major, minor, total }, { found.major, found.minor, found.total_memory })
    assert.is_true(found.multi_processor_count > 0)
    assert.equal(major >= 8, moth.cuda.is_bf16_supported())
  end)

  it("reports its memory in words and numbers", function()
    local x = moth.zeros(2 ^ 18, { device = "cuda" })
    local text = moth.cuda.memory_summary()
    assert.truthy(text:find(moth.cuda.get_device_name(), 1, true))
    assert.matches(("in tensors +%.1f MiB\n"):format(moth.cuda.memory_allocated() / 2 ^ 20), text)
    assert.not_matches("limit", text)
    assert.is_true(moth.cuda.memory_allocated() >= x.nbytes)
  end)

  it("can be limited to a fraction of its memory", function()
    moth.collect()
    local _, total = moth.cuda.mem_get_info()
    moth.cuda.set_per_process_memory_fraction((moth.cuda.memory_allocated() + 4000) / total)
    local ok, text = pcall(moth.zeros, 10000, { device = "cuda" })
    local code, summary = moth.errcode(), moth.cuda.memory_summary()
    moth.cuda.set_memory_limit(0)
    assert.is_false(ok)
    assert.equal("E_LIMIT", code, text)
    assert.matches("\nlimit ", summary)
    assert.has_error_like(function() moth.cuda.set_per_process_memory_fraction(1.5) end,
      "bad argument 'fraction' to 'set_per_process_memory_fraction' %(a number from 0 to 1 is")
  end)

  it("has no random generator", function()
    moth.cuda.manual_seed(3)
    local state = moth.cuda.get_rng_state()
    local x = moth.rand(5, { device = "cuda" })
    moth.cuda.set_rng_state(state)
    assert.is_true(moth.rand(5):equal(x:cpu()))
    assert.equal(3, moth.cuda.initial_seed())
  end)

  it("that does not exist raises", function()
    local count = moth.cuda.device_count()
    for _, f in ipairs { moth.cuda.set_device, moth.cuda.get_device_properties } do
      assert.has_error_like(function() f(count) end, "there is no cuda:" .. count)
    end
    assert.has_error_like(function() moth.cuda.device(count, print) end,
      "bad argument 'device' to 'device' %(there is no cuda:" .. count)
    assert.has_error_like(function() moth.cuda.set_device "cpu" end,
      "bad argument 'device' to 'set_device' %(a GPU such as 'cuda:0' is needed")
    assert.has_error_like(function() moth.cuda.set_device() end, "a GPU is needed")
    assert.has_error_like(function() moth.cuda.device(0) end, "a function is needed")
    assert.equal(0, moth.cuda.current_device())
  end)
end)

describe("of two GPUs", function()
  local emulated = cuda.here and cuda.name:find "emulated"
  if not emulated and not (cuda.here and moth.cuda.device_count() > 1) then
    pending "there are fewer, and no GPU emulator"
    return
  end

  local function said(code)
    local pipe = io.popen((emulated and "MOTH_EMULATED_DEVICES=2 " or "") .. process.program
      .. [[ -e 'local moth = require "moth"; ]] .. code .. "' 2>&1")
    local text = pipe:read "*a"
    pipe:close()
    return text
  end

  it("'cuda' means the first, or the one that was set", function()
    assert.equal("cuda:0\ncuda:1\t1\ncuda:1\ncuda:1\ncuda:0\ncuda:0\t0\n", said [[
      local device = moth.device("cuda")
      print(moth.zeros(1, {device = device}).device)
      moth.cuda.set_device(1)
      print(moth.zeros(1, {device = device}).device, moth.cuda.current_device())
      print(moth.zeros(1):cuda().device)
      print(moth.nn.Linear(1, 1):to("cuda").weight.device)
      print(moth.zeros(1, {device = "cuda:0"}).device)
      moth.cuda.set_device("cuda:0")
      print(moth.zeros(1):to("cuda").device, moth.cuda.current_device())]])
  end)

  it("another is current for the time of a call, also if that raises", function()
    assert.equal("1\tcuda:1\tcuda:1\n0\nfalse\t1\n0\n", said [[
      print(moth.cuda.device(1, function(n)
        return moth.cuda.current_device(), moth.zeros(n):to("cuda").device,
          moth.cuda.current_stream().device
      end, 3))
      print(moth.cuda.current_device())
      local inside
      print(pcall(moth.cuda.device, "cuda:1", function()
        inside = moth.cuda.current_device() error() end), inside)
      print(moth.cuda.current_device())]])
  end)

  it("memory is counted for the current one", function()
    assert.equal("true\ttrue\n", said [[
      local x = moth.zeros(1000, {device = "cuda:1"})
      local first = moth.cuda.memory_allocated()
      moth.cuda.set_device(1)
      print(first == 0, moth.cuda.memory_allocated() >= x.nbytes)]])
  end)
end)
