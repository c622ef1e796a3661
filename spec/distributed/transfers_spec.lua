-- Messages between processes (core/host/processes.c): which arguments are refused, and how; groups;
-- messages of a process to itself. One process, joined by TCP or under an MPI, calls the functions
-- of C.

local files = require "spec.support.files"
local process = require "spec.support.process"
local ranks = require "spec.support.ranks"

setup(files.setup)
teardown(files.teardown)

-- What the process runs first. `start` starts a message; it returns "ok" and the message, or the
-- code and the text of the error.
local BEGIN = [[
local ffi = require "ffi"
local moth = require "moth"
local lib = require "moth.binding.lib"
local dist = moth.distributed
local C, ctx = lib.C, lib.ctx
local BARRIER, BROADCAST, REDUCE, ALL_REDUCE, REDUCE_SCATTER, GATHER, ALL_GATHER, SCATTER,
  ALL_TO_ALL, SEND, RECV = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local SUM, PRODUCT, MIN, MAX, BAND, BOR, BXOR, MEAN = 0, 1, 2, 3, 4, 5, 6, 7
local function result(status)
  return status >= 0 and "ok" or ("%d %s"):format(status, ffi.string(C.moth_error(ctx, 1)))
end
local function start(kind, input, output, more)
  more = more or {}
  local x, made = ffi.new "moth_transfer_args", ffi.new "moth_transfer *[1]"
  x.kind, x.op, x.peer, x.tag = kind, more.op or 0, more.peer or 0, more.tag or 0
  x.group, x.seconds = more.group or 0, 10
  x.input, x.output = input or lib.Handle(), output or lib.Handle()
  local sizes = more.sizes and ffi.new("int64_t[?]", #more.sizes, more.sizes)
  x.sizes = sizes
  return result(C.moth_transfer_start(ctx, x, made)), made[0]
end
local source = ffi.new "int32_t[1]"
local function wait(m, seconds)
  source[0] = -9
  return result(C.moth_transfer_wait(ctx, m, seconds or 10, source))
end
local function all(...)
  local text, m = start(...)
  if text ~= "ok" then return text end
  text = wait(m)
  C.moth_transfer_free(ctx, m)
  return text
end
local function group(...)
  local list, made = {...}, ffi.new("int32_t[1]", -5)
  local status = C.moth_group_new(ctx, ffi.new("int32_t[?]", math.max(#list, 1), list), #list, made)
  return status < 0 and result(status) or made[0]
end
local number = 0
local function say(...)
  local list = {...}
  for i = 1, select("#", ...) do list[i] = tostring(list[i]) end
  number = number + 1
  print(("%d: %s"):format(number, table.concat(list, " | ")))
end
]]

-- Runs a script; it says these lines, in this order.
local function says(wanted, text, environment)
  for i, line in ipairs(wanted) do wanted[i] = ("%d: %s\n"):format(i, line) end
  local path = files.write("one.lua", BEGIN .. text)
  local said = process.shell(("%s timeout 60 %s '%s' </dev/null"):format(environment or "",
    process.program, path))
  assert.equal(table.concat(wanted) .. "rc=0\n", said)
end

local need = "-15 messages of the CPU need MPI: start the processes with mpirun, or pass tensors "
  .. "of a GPU"
local TCP = "assert(C.moth_rendezvous_open(ctx, '127.0.0.1', 29500, 0, 1, 5) == 0)\n"

describe("a message", function()
  it("needs a process group that is open", function()
    local none = "-15 no process group: init_process_group makes one"
    says({none, none, none, none, "nil", "ok", none}, [[
      say(all(BARRIER))
      say(group(0))
      say(result(C.moth_group_free(ctx, 0)))
      say(result(C.moth_mpi_abort(ctx, 0)))
      say(C.moth_mpi_version(ctx) == nil and "nil")
      say(result(C.moth_mpi_close(ctx)))
      assert(C.moth_rendezvous_open(ctx, '127.0.0.1', 29500, 0, 1, 5) == 0)
      assert(C.moth_mpi_version(ctx) == nil)
      assert(C.moth_mpi_close(ctx) == 0)
      say(all(BARRIER))]])
  end)

  it("has a kind, an operation, a rank and sizes that are possible", function()
    local no = "-1 no such message"
    says({no, no, no, no, no, need, need, need,
      "-1 the group has ranks 0 to 0, got -1", "-1 the group has ranks 0 to 0, got 1",
      "-1 the group has ranks 0 to 0, got -2", need, "-1 the group has ranks 0 to 0, got -1",
      "-1 the group has ranks 0 to 0, got -1"}, TCP .. [[
      local x, y = moth.ones(2), moth.ones(2)
      say(all(-1, x, y))
      say(all(RECV + 1, x, y))
      say(all(ALL_REDUCE, x, y, {op = -1}))
      say(all(ALL_REDUCE, x, y, {op = MEAN + 1}))
      say(all(ALL_TO_ALL, x, y))
      say(all(BARRIER))
      say(all(RECV, nil, y))
      say(all(ALL_REDUCE, x, y, {op = MEAN}))
      say(all(BROADCAST, nil, y, {peer = -1}))
      say(all(BROADCAST, nil, y, {peer = 1}))
      say(all(RECV, nil, y, {peer = -2}))
      say(all(RECV, nil, y, {peer = -1}))
      say(all(SEND, x, nil, {peer = -1}))
      say(all(BARRIER, nil, nil, {peer = -1}))]])
  end)

  it("has contiguous tensors of one dtype whose sizes fit", function()
    local dense, fit = "-1 a contiguous tensor is needed",
      "-4 the numbers of elements do not fit: 4 and 2 on 1 ranks"
    local wanted = {}
    for _ = 1, 11 do wanted[#wanted + 1] = dense end
    for _ = 1, 6 do wanted[#wanted + 1] = fit end
    for _ = 1, 6 do wanted[#wanted + 1] = need end
    for _ = 1, 7 do wanted[#wanted + 1] = "-3 input and output need one dtype" end
    says(wanted, TCP .. [[
      local x, y, wide, sizes = moth.ones(4), moth.ones(4), moth.ones(4, 2):t()[1], {1, 1}
      for _, kind in ipairs {REDUCE, ALL_REDUCE, REDUCE_SCATTER, GATHER, ALL_GATHER, SCATTER} do
        say(all(kind, wide, y))
      end
      say(all(SEND, wide))
      say(all(ALL_REDUCE, x, wide))
      say(all(RECV, nil, wide))
      say(all(BROADCAST, wide, wide))
      say(all(ALL_TO_ALL, x, wide, {sizes = sizes}))
      local kinds = {REDUCE, ALL_REDUCE, REDUCE_SCATTER, GATHER, ALL_GATHER, SCATTER}
      local two = moth.ones(2)
      for _, kind in ipairs(kinds) do say(all(kind, x, two)) end
      for _, kind in ipairs(kinds) do say(all(kind, x, y)) end
      for _, kind in ipairs(kinds) do say(all(kind, x, y:double())) end
      say(all(ALL_TO_ALL, x, y:double(), {sizes = sizes}))]])
  end)

  it("has at most 2^31 - 1 elements", function()
    local most = "-18 a message has at most 2^31 - 1 elements"
    says({need, most, need, most}, TCP .. [[
      for _, n in ipairs {2 ^ 31 - 1, 2 ^ 31} do
        local x = moth.empty({n}, {dtype = moth.uint8}) -- its pages are never touched
        say(all(SEND, x))
      end
      collectgarbage()
      for _, n in ipairs {2 ^ 31 - 1, 2 ^ 31} do
        say(all(BROADCAST, nil, (moth.empty({n}, {dtype = moth.uint8}))))
      end]])
  end)

  it("that reduces has an operation of its dtype", function()
    local mean, bits = "-3 the mean needs a float tensor",
      "-3 bitwise operations need an integer tensor"
    for kind in ("REDUCE ALL_REDUCE REDUCE_SCATTER"):gmatch "%S+" do
      local wanted = {}
      for dtype = 1, 5 do -- two floats, two integers, bool
        for op = 0, 7 do
          local float = dtype <= 2
          wanted[#wanted + 1] = float and op >= 4 and op < 7 and bits
            or not float and op == 7 and mean or need
        end
      end
      says(wanted, TCP .. ([[
        for _, name in ipairs {"float32", "bfloat16", "int64", "uint8", "bool"} do
          for op = SUM, MEAN do
            local x = moth.ones({2}, {dtype = moth[name]})
            say(all(%s, x, x:clone(), {op = op}))
          end
        end]]):format(kind))
    end
  end)
end)

describe("a group of processes", function()
  it("has ranks of group 0, each once", function()
    says({"1", "2", "-1 from 1 to 1 ranks are needed, got 0",
      "-1 from 1 to 1 ranks are needed, got 2", "-1 ranks are from 0 to 0, got -1",
      "-1 ranks are from 0 to 0, got 1", "3",
      "-15 the process group was destroyed", "-15 the process group was destroyed",
      "-15 messages of the CPU need MPI: start the processes with mpirun, or pass tensors of a GPU",
      "ok", "-15 the process group was destroyed", "-15 the process group was destroyed",
      "-1 the group of all processes ends with moth_mpi_close", "4"}, TCP .. [[
      say(group(0))
      say(group(0))
      say(group())
      say(group(0, 0))
      say(group(-1))
      say(group(1))
      say(group(0))
      say(all(BARRIER, nil, nil, {group = -1}))
      say(all(BARRIER, nil, nil, {group = 4}))
      say(all(BARRIER, nil, nil, {group = 3}))
      say(result(C.moth_group_free(ctx, 3)))
      say(result(C.moth_group_free(ctx, 3)))
      say(all(BARRIER, nil, nil, {group = 3}))
      say(result(C.moth_group_free(ctx, 0)))
      say(group(0))]])
  end)

  it("is one of 4096 at most", function()
    says({"1 to 4095", "-12 at most 4096 process groups are possible, with those that were "
      .. "destroyed"}, TCP .. [[
      local first, last = group(0)
      for _ = 2, 4095 do last = group(0) end
      say(first .. " to " .. last)
      C.moth_group_free(ctx, 7)
      say(group(0))]])
  end)
end)

describe("one process under MPI", function()
  local launchers = ranks.launchers()
  if #launchers == 0 then
    pending "needs an MPI: apt-get install openmpi-bin mpich"
    return
  end

  local MPI = "local one = ffi.new 'int32_t[2]'\nassert(C.moth_mpi_open(ctx, nil, one, one + 1) "
    .. "== 0, ffi.string(C.moth_error(ctx, 1)))\nassert(one[0] == 0 and one[1] == 1)\n"

  it("sends messages to itself, and names those that have not ended", function()
    says({"ok | 0 | 7", "ok", "0", "-14 no result after 0.1 s",
      "-15 recv has not ended: wait for it first", "1 | ok | 0 | 3",
      "-15 no process group: init_process_group makes one", "ok",
      "-15 no process group: init_process_group makes one"}, MPI .. [[
      local x = moth.zeros(2)
      local _, m = start(RECV, nil, x, {peer = -1})
      local sent, s = start(SEND, moth.full({2}, 7), nil, {tag = 0})
      say(wait(m), source[0], x[2]:item())
      say(wait(s))
      C.moth_transfer_free(ctx, m)
      C.moth_transfer_free(ctx, s)
      _, m = start(RECV, nil, x, {peer = 0, tag = 5})
      all(SEND, moth.full({2}, 3), nil, {tag = 6})
      say(C.moth_transfer_done(ctx, m))
      say(wait(m, 0.1))
      say(result(C.moth_mpi_close(ctx)))
      local late, other = start(SEND, moth.full({2}, 3), nil, {tag = 5})
      wait(other)
      C.moth_transfer_free(ctx, other)
      local done = 0
      for _ = 1, 1e6 do
        done = C.moth_transfer_done(ctx, m)
        if done == 1 then break end
      end
      say(done, wait(m), source[0], x[1]:item())
      C.moth_transfer_free(ctx, m)
      say(result(C.moth_transfer_done(ctx, m)))
      local y = moth.zeros(2)
      start(RECV, nil, y, {tag = 6})
      start(BARRIER)
      for _ = 1, 50 do all(BARRIER) end
      say(result(C.moth_mpi_close(ctx)))
      say(result(C.moth_transfer_done(ctx, m)))]], ranks.environment)
  end)

  it("exchanges parts of the sizes that are given, no more than the tensors have", function()
    local many = "-4 more elements than the tensor has"
    local range = "-1 sizes must be from 0 to 2^31 - 1"
    says({"ok | {1, 2, 0, 0}", "ok | {0, 0, 0, 0}", "ok | {1, 2, 3, 4}", many, many, range, range,
      range, range, many}, MPI .. [[
      local x = moth.tensor {1, 2, 3, 4}
      local function row(...)
        local y = moth.zeros(4)
        local text = all(ALL_TO_ALL, x, y, {sizes = {...}})
        local list = y:tolist()
        say(text, text == "ok" and "{" .. table.concat(list, ", ") .. "}" or nil)
      end
      local say_all = say
      function say(text, list) if list then say_all(text, list) else say_all(text) end end
      row(2, 2)
      row(0, 0)
      row(4, 4)
      row(5, 4)
      row(4, 5)
      row(-1, 4)
      row(4, -1)
      row(2 ^ 31, 4)
      row(4, 2 ^ 31)
      row(2 ^ 31 - 1, 4)]], ranks.environment)
  end)
end)
