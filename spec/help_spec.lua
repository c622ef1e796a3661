-- help: signature, arguments, example and source of whatever can be called.

local moth = require "moth"
local help = require "moth.help"
local intact = require "spec.support.intact"
local registry = require "spec.support.registry"

local nn, F = moth.nn, moth.nn.functional

local function has(text, part) assert.truthy(text:find(part, 1, true), part .. " in:\n" .. text) end

describe("help", function()
  it("shows an op's signature, arguments, example and source", function()
    local text = help.text(F.max_pool2d)
    has(text, "max_pool2d(input, kernel_size, stride = kernel_size, padding = 0")
    has(text, "-> y")
    has(text, "kernel_size")
    has(text, "example: moth.max_pool2d(moth.randn(2, 3, 8, 8), 2)")
    has(text, "core/op/pool.c")
    has(text, "x:max_pool2d(")
    assert.equal(text, help.text("max_pool2d"))
    assert.equal(text, help.text("F.max_pool2d"))
  end)

  it("counts dims and positions from 1", function()
    has(help.text(moth.cat), "dim = 1")
    has(help.text(moth.flatten), "start_dim = 1")
    has(help.text(moth.flatten), "end_dim = -1")
    has(help.text(moth.add), "alpha = 1")
  end)

  it("knows every op, and its first example runs as shown", function()
    for _, op in ipairs(registry.ops()) do
      if not op.hidden then
        local text = help.text(moth[op.name])
        has(text, op.name .. "(")
        for _, arg in ipairs(op.args) do has(text, "  " .. arg.name) end
        local call = text:match("example: ([^\n]+)")
        assert.is_string(call, op.name)
        local chunk = assert(loadstring("local moth = ... return " .. call))
        assert.has_no_error(function() chunk(moth) end)
        assert.is_nil(text:find(require("moth.error").root, 1, true))
      end
    end
  end)

  it("knows functions written in Lua, classes and their objects", function()
    has(help.text(moth.arange), "arange(start")
    has(help.text(moth.tensor), "tensor(data")
    has(help.text(nn.Conv2d), "Conv2d(in_channels, out_channels, kernel_size")
    assert.equal(help.text(nn.Conv2d), help.text("nn.Conv2d"))
    has(help.text(nn.Linear(2, 3)), "Linear(")
    has(help.text(moth.optim.SGD), "SGD(")
    has(help.text(function() end), "a function, written at spec/help_spec.lua:")
    assert.equal("f32 (2, 3)", help.text(moth.ones(2, 3)))
    has(help.text(), "conv2d")
  end)

  it("names the nearest for a name that is none", function()
    intact.refuses(function() return (help.text("conv3dd")) end,
      "there is no 'conv3dd'; did you mean")
  end)

  it("prints", function()
    local kept, out = io.write, {}
    io.write = function(...) out[#out + 1] = table.concat({ ... }) end -- luacheck: ignore 122
    moth.help(moth.add)
    io.write = kept -- luacheck: ignore 122
    has(table.concat(out), "add(input, other, alpha = 1")
  end)
end)

describe("moth.names", function()
  it("lists everything once, sorted, and all of it is there", function()
    local names = moth.names()
    for i, name in ipairs(names) do
      assert.is_true(i == 1 or names[i - 1] < name)
      assert.is_not_nil(moth[name])
    end
    assert.is_true(#names > 150)
  end)
end)
