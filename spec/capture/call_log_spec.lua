-- Call logs: the entries of calls and events, their tensors and numbers, and what is refused.

local ffi = require "ffi"
local lib = require "moth.binding.lib"
local moth = require "moth"

lib.declare "calls"

local C, ctx = lib.C, lib.ctx
local EVENTS, BACKWARD = C.MOTH_CALL_LOG_EVENTS, C.MOTH_CALL_LOG_BACKWARD
local NEVER = 4294967295
local entry, version = ffi.new "moth_logged_call[1]", ffi.new "uint32_t[1]"

local function message() return ffi.string(C.moth_error(ctx, 1)) end

-- Runs f in a log. The entries are described as "op tensors/results", with w if the first result
-- was written, n without grad mode, and as numbers of events.
local function logged(flags, f, visit)
  assert.equal(0, C.moth_call_log_begin(ctx, flags))
  local ok, problem = pcall(f)
  local list, n = {}, C.moth_call_log_count(ctx)
  C.moth_call_log_end(ctx)
  for i = 0, n - 1 do
    assert.equal(0, C.moth_call_log_at(ctx, i, entry))
    local e = entry[0]
    list[#list + 1] = ("%s %d/%d%s%s"):format(
      e.op ~= nil and ffi.string(C.moth_op_describe(e.op).name) or "event " .. e.event,
      e.ntensors, e.nresults, e.writes == 1 and "w" or "", e.recorded == 0 and "n" or "")
  end
  if visit then visit() end
  C.moth_call_log_free(ctx)
  if not ok then error(problem, 0) end
  return list
end

local function tensor(i, k)
  local h = lib.Handle()
  local status = C.moth_call_log_tensor(ctx, i, k, h, version)
  if status < 0 then return status end
  return lib.adopt(h, status), version[0]
end

describe("a call log", function()
  local x = moth.tensor {{1, 2}, {3, 4}}

  after_each(function()
    while C.moth_call_log_count(ctx) > 0 do C.moth_call_log_free(ctx) end
    C.moth_call_log_free(ctx)
  end)

  it("has an entry for each call that succeeds", function()
    local y, row, wide = x:clone(), moth.zeros(2), moth.ones(3)
    assert.same({"relu 2/1", "add 3/1", "cat 4/1", "split 3/2", "add_ 3/1w", "mul 3/1w",
      "relu 2/1n"}, logged(0, function()
        x:relu()
        moth.add(x, x)
        moth.cat {x, x, x}
        pcall(x.sum, x, 9)
        x:split(1)
        pcall(moth.add, x, wide)
        row:add_(1)
        moth.mul(x, x, {out = y})
        moth.no_grad(function() x:relu() end)
      end))
  end)

  it("has the arguments of a call, with numbers in place of tensors", function()
    logged(0, function()
      moth.addmm(x, x, x:detach(), {alpha = 3})
      moth.cat({x, x}, 2)
      x:permute(2, 1)
      x:sum(2)
    end, function()
      assert.equal(4, C.moth_call_log_count(ctx))
      local seen = {}
      for i = 0, 3 do
        C.moth_call_log_at(ctx, i, entry)
        local info = C.moth_op_describe(entry[0].op)
        for a = 0, info.nargs - 1 do
          local arg = info.args[a]
          local kind, slot = ffi.string(arg.kind), entry[0].slots[arg.slot]
          local text
          if kind == "tensor" then text = tonumber(slot.integer)
          elseif kind == "tensors" then
            text = tonumber(slot.integer) .. "+" .. tonumber(entry[0].slots[arg.slot + 1].integer)
          elseif kind == "ints" or kind == "dims" then
            local at, list = ffi.cast("const int64_t *", slot.pointer), {}
            for k = 1, tonumber(entry[0].slots[arg.slot + 1].integer) do
              list[k] = tonumber(at[k - 1])
            end
            text = table.concat(list, ",")
          elseif kind == "dim" or kind == "bool" then text = tonumber(slot.integer)
          end
          seen[#seen + 1] = text and ffi.string(arg.name) .. "=" .. text or nil
        end
      end
      assert.equal("input=1 mat1=2 mat2=3 tensors=1+2 dim=1 input=1 dims=1,0 input=1 dim=1 "
        .. "keepdim=0", table.concat(seen, " "))
    end)
  end)

  it("keeps the tensors of each call, inputs first, and their versions", function()
    local y
    logged(EVENTS, function()
      y = x + 10
      y:mul_(2)
      y:sum()
    end, function()
      local first, at = tensor(0, 0)
      assert.is_true(rawequal(x, first))
      assert.equal(0, at)
      local ten
      ten, at = tensor(0, 1)
      assert.equal(10, ten:item())
      assert.equal(NEVER, at)
      assert.is_true(rawequal(y, (tensor(0, 2))))
      local result
      result, at = tensor(1, 2)
      assert.is_true(rawequal(y, result))
      assert.equal(1, at) -- the version after the write
      assert.equal(1, select(2, tensor(2, 0)))
      assert.is_nil((tensor(0, 3)))
      assert.equal(C.MOTH_E_ARG, tensor(3, 0))
      assert.equal(C.MOTH_E_ARG, C.moth_call_log_at(ctx, 3, entry))
      assert.equal("there is no such call", message())
    end)
  end)

  it("has entries of events if they are asked for", function()
    local function work()
      local a = moth.tensor {1, 2}
      local b = a:detach()
      b.requires_grad = true
      b.requires_grad = false
      a:tolist()
      return b.grad
    end
    assert.same({}, logged(0, work))
    local list = logged(EVENTS, work)
    assert.same({"event 1 1/0", "event 2 2/0", "event 3 1/0w", "event 3 1/0", "event 4 1/0"},
      {unpack(list, 1, 5)})
  end)

  it("has the ops of a backward pass if they are asked for", function()
    local w = moth.ones(2, {requires_grad = true})
    local loss = (w * w):sum()
    assert.same({}, logged(0, function() loss:backward {retain_graph = true} end))
    local list = logged(EVENTS + BACKWARD, function() loss:backward() end)
    local text = table.concat(list, " ")
    assert.is_truthy(text:find("mul 3/1n", 1, true), text)
    w.grad = nil
  end)

  it("can be paused", function()
    assert.same({"relu 2/1", "neg 2/1"}, logged(0, function()
      x:relu()
      C.moth_call_log_pause(ctx, 1)
      x:exp()
      C.moth_call_log_pause(ctx, 0)
      x:neg()
    end))
  end)

  it("nests with events, and the outer one continues", function()
    local inner
    local outer = logged(EVENTS, function()
      x:relu()
      inner = logged(EVENTS, function() x:exp() x:neg() end)
      x:abs()
    end)
    assert.same({"exp 2/1", "neg 2/1"}, inner)
    assert.same({"relu 2/1", "abs 2/1"}, outer)
  end)

  it("is refused inside another one without events, and in a recording", function()
    logged(0, function()
      assert.equal(C.MOTH_E_STATE, C.moth_call_log_begin(ctx, EVENTS))
      assert.equal("a function is being traced or logged already", message())
    end)
    logged(EVENTS, function()
      assert.equal(C.MOTH_E_STATE, C.moth_call_log_begin(ctx, 0))
    end)
    lib.declare "capture"
    local step = ffi.new "uint32_t[1]"
    assert.equal(0, C.moth_capture_begin(ctx, lib.handles(1), 0, step))
    assert.equal(C.MOTH_E_STATE, C.moth_call_log_begin(ctx, EVENTS))
    C.moth_capture_abort(ctx)
    logged(0, function()
      assert.equal(C.MOTH_E_STATE, C.moth_capture_begin(ctx, lib.handles(1), 0, step))
      assert.equal("a captured step cannot be exported", message())
    end)
  end)

  it("without events refuses the casts of autocast", function()
    logged(0, function()
      moth.autocast("cpu", function()
        assert.error_matches(function() return x:mm(x) end,
          "the casts of autocast cannot be exported")
      end)
    end)
    assert.same({"event 5 0/0", "mm 3/1"}, logged(EVENTS, function()
      moth.autocast("cpu", function() x:mm(x) end)
    end))
  end)

  it("frees its tensors", function()
    local function work()
      logged(EVENTS + BACKWARD, function()
        local w = moth.ones(64, {requires_grad = true})
        moth.cat({w, w * 2}, 1):sum():backward()
        pcall(moth.cat, {w, moth.ones(1, 1)})
        w:detach():add_(1)
        w:unbind()
      end)
    end
    assert.equal("", require("spec.support.leaks").of(work))
  end)
end)
