--- Moth inside Neovim: the plugin of examples/hosts/neovim learns a file, without a screen.

local lib = require "moth.binding.lib"
local process = require "spec.support.process"

local root = require("moth.error").root
local libdir = lib.path:match("^(.*)/[^/]*$")

local SCRIPT = [==[
  local moth = require "moth"
  local plugin = require "moth_complete"
  local wall, cpu, inner = {}, {}, moth.budget
  function moth.budget(...)
    local began, cpu_began = vim.loop.hrtime(), os.clock()
    inner(...)
    wall[#wall + 1] = (vim.loop.hrtime() - began) / 1e6
    cpu[#cpu + 1] = (os.clock() - cpu_began) * 1e3
  end
  moth.manual_seed(1)
  local function report(name, value) print(("%s = %s"):format(name, value)) end

  local lines = {}
  for _ = 1, 20 do
    vim.list_extend(lines, {"local name = require 'module'", "if name == nil then return end",
      "for key, value in pairs(name) do print(key, value) end"})
  end
  vim.api.nvim_buf_set_lines(0, 0, -1, false, lines)
  local buffer = vim.api.nvim_get_current_buf()
  local turns = 0 -- of the editor's loop, meanwhile
  local other = vim.loop.new_timer()
  other:start(0, 5, function() turns = turns + 1 end)

  vim.cmd "MothComplete"
  vim.wait(5000, function() return plugin.state(buffer) > 0 end, 1)
  report("first loss", select(2, plugin.state(buffer)))
  vim.wait(9000, function() return plugin.state(buffer) >= 600 end, 5)
  report("last loss", select(2, plugin.state(buffer)))
  report("turns", turns)
  report("after for", plugin.words(buffer, "for key, value in ", "")[1])
  report("with prefix", table.concat(plugin.words(buffer, "for key, value in ", "re"), " "))

  vim.cmd "normal Goif name == nil then \24\21"
  report("typed", vim.api.nvim_get_current_line())

  vim.api.nvim_buf_set_lines(buffer, -1, -1, false, {"zebra = 1"})
  vim.wait(3000, function() return #plugin.words(buffer, "", "zeb") > 0 end, 20)
  report("new word", plugin.words(buffer, "", "zeb")[1])

  vim.cmd "bwipeout!"
  vim.wait(100)
  report("after the end", #plugin.words(buffer, "", ""))
  for name, list in pairs {["slices of 2 ms"] = wall, ["slices of 2 ms, CPU time"] = cpu} do
    table.sort(list)
    report(name, ("median %.2f, p99 %.2f, worst %.2f ms"):format(list[math.ceil(#list / 2)],
      list[math.ceil(#list * 0.99)], list[#list]))
  end
  print ""
  vim.cmd "qa!"
]==]

describe("a plugin of Neovim", function()
  local missing = not process.shell("command -v nvim"):find("rc=0", 1, true)
  if missing or process.sanitized then
    pending(missing and "it is not installed: apt-get install neovim"
      or "Neovim does not load a library with sanitizers")
    return
  end

  local text

  setup(function()
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write(SCRIPT)
    file:close()
    text = process.shell(([[unset MOTH_LIB; export LUA_PATH='%slua/?.lua;%slua/?/init.lua' \
      LUA_CPATH='%s/?.so'; timeout 60 nvim --headless -u NONE -i NONE -n \
      --cmd 'set rtp+=%sexamples/hosts/neovim' --cmd 'runtime! plugin/moth_complete.lua' \
      -c 'luafile %s']]):format(root, root, libdir, root, path)):gsub("\r", "")
    os.remove(path)
  end)

  local function value(name)
    return (assert(text:match(name .. " = ([^\n]*)"), text))
  end

  it("learns in slices, while the editor's loop goes on", function()
    print("\n" .. text:match "^(.-)%s*rc=%d+%s*$")
    assert.is_true(tonumber(value "last loss") < 0.5 * value "first loss", text)
    assert.is_true(tonumber(value "turns") > 20, text)
  end)

  it("completes the likeliest word first", function()
    assert.are.equal("pairs", value "after for")
    assert.are.equal("if name == nil then return", value "typed")
  end)

  it("completes words that begin with the typed letters", function()
    local words = value "with prefix"
    assert.is_true(words == "require return" or words == "return require", words)
  end)

  it("learns words that are added later", function()
    assert.are.equal("zebra", value "new word")
  end)

  it("ends with its buffer", function()
    assert.are.equal("0", value "after the end")
    assert.is_truthy(text:find("rc=0", 1, true), text)
    assert.is_falsy(text:find("Error", 1, true), text)
  end)
end)
