--- The records of ops and functions contain all facts that the rest of Moth needs: no other file
-- lists ops by name.

local moth = require "moth"
local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"
local registry = require "moth.binding.registry"

local C = lib.C
local F = moth.nn.functional

-- Lines of files that match a pattern of grep, without comments.
local function lines_with(pattern, files)
  local list = {}
  local pipe = assert(io.popen(("grep -rnE '%s' %s"):format(pattern, files)))
  for line in pipe:lines() do
    if not line:find "^[^:]+:%d+:%s*%-%-" then list[#list + 1] = line end
  end
  pipe:close()
  return list
end

describe("the record of an op", function()
  it("has flags for the treatment of an op in the core", function()
    local known = { -- a view with arbitrary strides; the last step of a kernel's pass
      ["op == &moth_op_as_strided"] = true, ["op == &moth_op_sum"] = true,
    }
    local found = {}
    for _, line in ipairs(lines_with("[!=]= &moth_op_", "--include=*.c --include=*.h core")) do
      local path, text = line:match "^([^:]+):%d+:(.*)$"
      if not path:find "core/op/" and not known[text:match "%w+ [!=]= &moth_op_[%w_]+"] then
        found[#found + 1] = line
      end
    end
    assert.same({}, found)
  end)

  it("has names of flags, whose numbers Lua does not copy", function()
    assert.same({}, lines_with("0x[0-9]+.*MOTH_OP_|= [0-9]+ -- MOTH_OP", "lua nn"))
    assert.equal(C.MOTH_OP_STRIDED, 0x10000)
  end)

  it("describes an argument by its kind", function()
    local loss = registry.describe "nll_loss"
    assert.equal("ignored", loss.args[loss.ignored].row.name)
    assert.equal("ignore_index", loss.args[loss.ignored].name)
    assert.equal(3, registry.describe("masked_fill_").value)
    assert.equal(4, registry.describe("index_fill").value)
    assert.equal("clamp_tensor", registry.describe("clamp").other)
    assert.equal("clamp_tensor_", registry.describe("clamp_").other)
    assert.is_nil(registry.describe("add").other)
    local add = registry.describe "add"
    assert.is_true(add.args[add.index.other].number)
    assert.is_nil(add.args[add.index.out].number)
  end)

  it("has the flag of ops that accept requires_grad", function()
    local makes = {}
    for i = 0, C.moth_op_count() - 1 do
      local name = require("ffi").string(C.moth_op_describe(C.moth_op_at(i)).name)
      if registry.describe(name).index.requires_grad then makes[#makes + 1] = name end
    end
    assert.equal("arange empty empty_like eye full full_like linspace ones ones_like rand "
      .. "rand_like randint randn randn_like zeros zeros_like", table.concat(makes, " "))
    assert.is_true(moth.rand({2}, {requires_grad = true}).requires_grad)
  end)
end)

describe("a function that is written in Lua", function()
  it("is in the file that the namespace's list names", function()
    local seen = 0
    local function check(mark, find)
      lazy.each(bind.written, function(name, module)
        local found = find(name, module)
        assert.is_not_nil(found, name .. " of " .. module)
        seen = seen + 1
      end, mark)
    end
    check(nil, function(name) return moth[name] end)
    check("*", function(name) return F[name] end)
    check(":", function(name, module)
      local method = bind.method(name)
      local from = require(module)
      assert.equal(from[name .. "_method"] or from[name], method, name)
      return method
    end)
    assert.is_true(seen > 250, tostring(seen))
  end)

  it("is in that list if its module is", function()
    local listed, modules = {}, {}
    for _, mark in ipairs {"", ":"} do
      lazy.each(bind.written, function(name, module)
        listed[name], modules[module] = true, true
      end, mark)
    end
    local function elsewhere(name) -- in a namespace below moth
      for _, space in ipairs {moth.linalg, moth.special, moth.func} do
        if getmetatable(space).__built_in(name) ~= nil then return true end
      end
      return type(bind.written[name]) == "table"
    end
    local missing = {}
    for module in pairs(modules) do
      local found = not module:find "%*" and require(module)
      local plain = type(found) == "table" and not class.isclass(found)
      for name, value in pairs(plain and found or {}) do
        local sig = type(value) == "function" and bind.signature(value)
        if sig and sig.name == name and not listed[name] and not elsewhere(name) then
          missing[#missing + 1] = module .. "." .. name
        end
      end
    end
    table.sort(missing)
    assert.same({}, missing)
  end)

  it("is in no other list", function()
    local listed, again = {}, {}
    lazy.each(bind.written, function(name) listed[name] = true end)
    local rows = lines_with("lazy[.]from", "lua/moth/binding/bind.lua nn/functional/init.lua")
    for _, line in ipairs(rows) do
      for name in line:match(', *"([^"]*)'):gmatch "%S+" do
        if listed[name] then again[#again + 1] = name end
      end
    end
    assert.is_true(#rows > 5)
    assert.same({}, again)
  end)
end)

describe("a module of Moth", function()
  it("keeps fields that a program assigns", function()
    local names = {"moth.binding.forms", "moth.binding.kinds", "moth.binding.registry",
      "moth.binding.writer", "moth.error.instead",
      "moth.error.instead.nn"}
    local held = {}
    for i, name in ipairs(names) do
      held[i] = require(name)
      held[i]["put there"] = i
    end
    for _ = 1, 80 do lib.collect() end
    for i, name in ipairs(names) do
      assert.equal(held[i], require(name))
      assert.equal(i, require(name)["put there"])
      held[i]["put there"] = nil
    end
    assert.equal(3, moth.ones(3):sum():item())
  end)
end)
