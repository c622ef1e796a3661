-- Lua's heap: each garbage collection marks all of it, so code that a script does not use, or no
-- longer uses, must not be loaded.

local ffi = require "ffi"

local moth = require "moth"
local intact = require "spec.support.intact"
local lib = require "moth.binding.lib"
local machine = require "moth.base.machine"
local process = require "spec.support.process"

local F, nn = moth.nn.functional, moth.nn

-- The heap that code leaves in a separate process, in KB above a plain LuaJIT with its FFI. The
-- string table doubles at 4096 entries, by 32 KB; here it has doubled before.
local function kilobytes(code)
  local text = process.lua([[
    jit.off()
    require "ffi"
    local strings = {}
    for i = 1, 4100 do strings[i] = "string " .. i end
    local function heap()
      for _ = 1, 2 do collectgarbage() end
      return collectgarbage "count"
    end
    local before = heap()
    local moth = require "moth"
    ]] .. code .. [[
    for _ = 1, 40 do require("moth.binding.lib").collect() end
    print(heap() - before, #strings)]])
  return assert(tonumber(text:match "^[%d.]+"), text)
end

-- Unloads the modules that were not used for a while.
local function forget()
  for _ = 1, 40 do lib.collect() end
end

describe("Lua's heap", function()
  it("is small after a first op", function()
    local found = kilobytes "local z = moth.randn(2, 3) + moth.randn(3)"
    assert.is_true(found < 198, found .. " KB")
  end)

  it("is small after a small net's training", function()
    local found = kilobytes [[
      local nn = moth.nn
      local net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
      local optimizer = moth.optim.SGD(net:parameters(), {lr = 0.1})
      for _ = 1, 3 do
        optimizer:zero_grad()
        net(moth.randn(3, 2)):sum():backward()
        optimizer:step()
      end]]
    assert.is_true(found < 640, found .. " KB")
  end)

  it("adds no C types for repeated calls of the operating system", function()
    local cdef, declared = ffi.cdef, 0
    local function ask() return machine.process(), machine.is_terminal(0), machine.entries "nn" end
    ask()
    ffi.cdef = function(...)
      declared = declared + 1
      return cdef(...)
    end
    local ok, problem = pcall(ask)
    ffi.cdef = cdef
    assert(ok, problem)
    assert.equal(0, declared)
  end)
end)

describe("each method of tensors", function()
  it("is in the file that the list names", function()
    local listed = {}
    local tensor = require "moth.tensor"
    for _, text in ipairs(tensor.parts) do
      local part, list = text:match "^(%S+)(.*)"
      local names = {}
      local found = require(part)
      for _, kind in ipairs {"methods", "getters", "setters"} do
        for name in pairs(found[kind] or {}) do names[name] = true end
      end
      for name in list:gmatch "%S+" do
        assert.is_true(names[name], ("%s is not in %s"):format(name, part))
        assert.is_nil(listed[name], name .. " is listed twice")
        listed[name], names[name] = true, nil
      end
      assert.is_nil(next(names), ("%s of %s is not listed"):format(tostring(next(names)), part))
    end
  end)
end)

describe("a call, after the generator of its function was unloaded,", function()
  local x = moth.randn(2, 3, 8, 8)

  it("accepts names, lists and positions as before", function()
    local y, rows = F.max_pool2d{x, kernel_size = 2}, moth.randn(5, 2)
    local picked = rows:index_select(1, {1, 3})
    forget()
    assert.same(y:tolist(), F.max_pool2d{x, kernel_size = 2}:tolist())
    assert.same(y:tolist(), x:max_pool2d({2, 2}):tolist())
    assert.same(picked:tolist(), rows:index_select(1, {1, 3}):tolist())
    assert.same({4, 2}, {unpack(moth.cat({rows, rows}, 1)[{{1, 4}}].shape)})
    assert.same({2, 4}, {unpack(nn.Linear{3, 4}(moth.ones(2, 3)).shape)})
  end)

  it("raises errors with the same texts", function()
    local function mistakes()
      intact.refuses(function() return (F.max_pool2d{x, kernel_sise = 2}) end,
        "'max_pool2d' has no argument 'kernel_sise'; did you mean 'kernel_size'?")
      intact.refuses(function() return (F.max_pool2d(x, true)) end,
        "bad argument 'kernel_size' to 'max_pool2d' (an integer or a list of 2 integers is needed, "
        .. "got true)")
      intact.refuses(function() return (nn.Linear(3, "4")) end, "bad argument 'out_features' to "
        .. "'Linear' (an integer is needed, got a string ('4'))")
    end
    mistakes()
    forget()
    mistakes()
  end)

  it("has its arguments in help", function()
    local help = require "moth.help"
    local of_op, of_class = help.text(F.max_pool2d), help.text(nn.Linear)
    forget()
    assert.equal(of_op, help.text(F.max_pool2d))
    assert.equal(of_class, help.text(nn.Linear))
  end)

  it("does not need the path by which Moth was found", function()
    local text = process.lua [[
      local moth = require "moth"
      local x = moth.ones(2)
      package.path = "nowhere/?.lua"
      for _ = 1, 40 do require("moth.binding.lib").collect() end
      print((x + x):sum():item(), moth.nn.Linear(2, 3)(x).shape)]]
    assert.matches("^4%s+%(3%)", text)
  end)

  it("works after the program leaves the folder of a relative path", function()
    local text = process.lua [[
      local ffi = require "ffi"
      ffi.cdef "int chdir(const char *)"
      package.path = "lua/?.lua;lua/?/init.lua"
      local moth = require "moth"
      assert(ffi.C.chdir "/" == 0)
      print(moth.ones(2):sum():item(), moth.nn.Linear(2, 3)(moth.ones(2)).shape)
      moth.ones(2):view(3)]]
    assert.matches("^2%s+%(3%)", text)
    assert.matches("view", text)
  end)
end)
