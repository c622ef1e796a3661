-- The README's Lua: each block runs as it is.

local moth = require "moth"

local function blocks()
  local file = assert(io.open("README.md"))
  local text = file:read("*a")
  file:close()
  local list, line = {}, 1
  for before, code in text:gmatch("(.-)```lua\n(.-)\n```") do
    line = line + select(2, before:gsub("\n", "")) + 1
    list[#list + 1] = { code = code, line = line }
    line = line + select(2, code:gsub("\n", "")) + 1
  end
  return list
end

describe("the README", function()
  for _, block in ipairs(blocks()) do
    it("has code that runs, at line " .. block.line, function()
      local out = {}
      local scope = setmetatable({ print = function(...) out[#out + 1] = (...) end },
        { __index = _G })
      local chunk = assert(loadstring(block.code, "=README.md"))
      setfenv(chunk, scope)()
      for name in pairs(scope) do assert.equal("print", name) end
    end)
  end

  it("has a training script, a module and a dataset", function()
    assert.is_true(#blocks() >= 2)
  end)

  it("uses the right class labels", function()
    local collate = moth.data.default_collate
    assert.equal(moth.int64, collate({ 1LL, 2LL }).dtype)
    assert.equal(moth.int64, collate({ moth.tensor(1LL), moth.tensor(2LL) }).dtype)
    assert.equal(moth.float32, collate({ 1, 2 }).dtype)
  end)
end)
