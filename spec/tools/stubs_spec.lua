-- `moth docs --stubs`: the annotation files for editors are Lua without side effects, contain
-- exactly the public names, and are the same each time.

local cli = require "moth.cli"
local class = require "moth.base.class"
local lfs = require "lfs"
local files = require "spec.support.files"
local moth = require "moth"
local places = require "moth.help.places"
local tensor = require "moth.tensor"

local pages

-- The files that the command writes into a new folder.
local function written(name)
  local found = {}
  local folder = files.path(name)
  local command = ("'%s' docs --stubs '%s' >/dev/null 2>&1"):format(cli.launcher().program, folder)
  assert.equal(0, os.execute(command))
  for file in lfs.dir(folder) do
    if file:find "%.lua$" then found[file] = files.read(folder .. "/" .. file) end
  end
  return found
end

setup(function()
  files.setup()
  pages = written "stubs"
end)
teardown(files.teardown)

-- The value that a page returns, run without globals to read or write.
local function loaded(name)
  local chunk = assert(loadstring(pages[name], "=" .. name))
  local environment = setmetatable({}, {
    __index = function(_, key) error(name .. " reads " .. key, 0) end,
    __newindex = function(_, key) error(name .. " writes " .. key, 0) end,
  })
  return (setfenv(chunk, environment)())
end

local function sorted(set)
  local list = {}
  for name in pairs(set) do list[#list + 1] = name end
  table.sort(list)
  return list
end

-- The annotations right above a line that begins with the text.
local function above(page, start)
  local at = assert(("\n" .. page):find("\n" .. start, 1, true), start)
  local text = ""
  for line in page:sub(1, at - 1):gmatch "[^\n]*\n" do
    text = line:find "^%-%-%-" and text .. line or ""
  end
  return text
end

describe("the annotation files", function()
  it("have exactly the public names of each namespace", function()
    for _, place in ipairs(places.list) do
      local known, space = {}, places.space(place)
      for _, name in ipairs(places.names(place)) do
        if space[name] ~= nil then known[name] = true end
      end
      assert.same(sorted(known), sorted(loaded(place.path .. ".lua")), place.path)
    end
  end)

  it("have exactly the methods and fields of tensors", function()
    local known = {int = true, short = true}
    for _, name in ipairs(tensor.names(true)) do
      if name:find "^%a" then known[name] = true end
    end
    assert.same(sorted(known), sorted(loaded "moth.Tensor.lua"))
    for name in pairs(require("moth.help.fields").of("x").docs) do
      assert.truthy(pages["moth.Tensor.lua"]:find("---@field " .. name .. " ", 1, true), name)
    end
  end)

  it("are the only files, and a language server can read each", function()
    local count = 0
    for name, text in pairs(pages) do
      count = count + 1
      loaded(name)
      assert.equal("---@meta " .. name:gsub("%.lua$", ""), text:match "^[^\n]*")
      assert.is_true(#text < 500000, name .. ": " .. #text) -- the limit of lua-language-server
    end
    assert.equal(#places.list + 3, count) -- of tensors; two of named arguments
  end)

  it("name each argument, its type and its text, and the tables of named arguments", function()
    local text = above(pages["moth.nn.functional.lua"], "function functional.max_pool2d(")
    for _, line in ipairs {
      "---@param kernel_size moth.int|moth.int[]|moth.Size ",
      "---@param ceil_mode? boolean|moth.max_pool2d.Args ",
      "---@return moth.Tensor y\n---@overload",
      "---@overload fun(args: moth.max_pool2d.Args): moth.Tensor, moth.Tensor",
    } do
      assert.truthy(text:find(line, 1, true), line .. "\n" .. text)
    end
    assert.truthy(pages["moth.Args.lua"]:find("---@class moth.max_pool2d.Args\n", 1, true))
    text = above(pages["moth.Tensor.lua"], "function Tensor:view(")
    assert.truthy(text:find("fun(self: self, ...: moth.int|moth.view.Args|nil)", 1, true), text)
  end)

  it("have classes with their bases, fields, constructors and calls", function()
    local page = pages["moth.nn.lua"]
    local text = page:match "%-%-%-@class moth.nn.Linear: moth.nn.Module\n.-\ndo\n"
    assert.truthy(text:find("---@field weight moth.Tensor", 1, true), text)
    assert.truthy(text:find("---@field in_features moth.int", 1, true), text)
    assert.truthy(text:find("---@overload fun(input: moth.Tensor, ...: any): moth.Tensor", 1, true))
    text = above(page, "nn.Linear = {}")
    assert.truthy(text:find("fun(in_features: moth.int, out_features: moth.int, bias?: boolean",
      1, true), text)
    assert.truthy(text:find("names: moth.nn.Linear.Args): moth.nn.Linear", 1, true), text)
    for _, line in ipairs {
      "fun(start_dim?: moth.int, end_dim?: moth.int|moth.nn.Flatten.Args): moth.nn.Flatten",
      "fun(args: moth.nn.Flatten.Args): moth.nn.Flatten",
      "fun(negative_slope?: number, inplace?: boolean|moth.nn.LeakyReLU.Args): moth.nn.LeakyReLU",
    } do
      assert.truthy(page:find("\n---@overload " .. line .. "\n", 1, true), line)
    end
  end)

  it("define each type that they name", function()
    local known, used = {}, {}
    for _, text in pairs(pages) do
      for name in text:gmatch "%-%-%-@class ([%w_.]+)" do known[name] = true end
      for name in text:gmatch "%-%-%-@alias ([%w_.]+)" do known[name] = true end
      for line in text:gmatch "%-%-%-@[oprft][^\n]+" do
        line = line:gsub('"[^"]*"', ""):match "^%-%-%-@%a+ [%w_?%[%]]* ?[^ ]*" or ""
        for name in line:gmatch "%f[%w.]moth%.[%w_.]*[%w_]" do used[name] = true end
      end
    end
    assert.truthy(used["moth.Tensor"])
    for _, name in ipairs(sorted(used)) do assert.is_true(known[name], name) end
  end)

  it("cover each class", function()
    local all = table.concat({pages["moth.lua"], pages["moth.nn.lua"], pages["moth.optim.lua"]})
    for _, name in ipairs {"moth.Generator", "moth.nn.Conv2d", "moth.optim.AdamW"} do
      assert.truthy(all:find("---@class " .. name .. "[:\n]"), name)
    end
    assert.equal(moth.nn.Module, class.base(moth.nn.Conv2d))
  end)

  it("are the same each time", function()
    local again = written "again"
    for name, text in pairs(pages) do
      local next_line = again[name]:gmatch "[^\n]*"
      for line in text:gmatch "[^\n]*" do assert.equal(line, next_line()) end
      assert.is_nil(next_line())
    end
  end)
end)
