-- The guide: the Lua blocks of each page run in order, as one script, and print the page's output.
--
-- A block of text right after a Lua block is its output. `...` at the end of a line of output
-- matches the rest of that line. `MOTH_GUIDE=show ./moth test spec/tools/guide_spec.lua` prints the
-- output of all blocks.

local lfs = require "lfs"
local files = require "spec.support.files"

local FOLDER = "docs/guide/"
local show = os.getenv "MOTH_GUIDE" == "show"

setup(files.setup)
teardown(files.teardown)

local function read(path)
  local file = assert(io.open(path))
  local text = file:read "*a"
  file:close()
  return text
end

-- The fenced blocks of a page: {language, text, line}, and whether one follows another directly.
local function blocks_of(text)
  local list, block, line, last = {}, nil, 0, nil
  for row in (text .. "\n"):gmatch "(.-)\n" do
    line = line + 1
    local fence = row:match "^```(.*)$"
    if fence and not block then
      block = {language = fence, line = line + 1, after = last}
    elseif fence then
      block.text = table.concat(block, "\n")
      list[#list + 1] = block
      last, block = block, nil
    elseif block then
      block[#block + 1] = row
    elseif row ~= "" then
      last = nil
    end
  end
  return list
end

-- The Lua blocks of a page as one chunk, each at its line of the page; the output of each block.
local function outputs_of(page, blocks)
  local rows, output, now = {}, {}, nil
  for i, block in ipairs(blocks) do
    if block.language == "lua" then
      for k, row in ipairs(block) do
        rows[block.line + k - 1] = (k == 1 and ("next_block(%d) "):format(i) or "") .. row
      end
    end
  end
  local last = 0
  for line in pairs(rows) do last = math.max(last, line) end
  for line = 1, last do rows[line] = rows[line] or "" end
  local function next_block(i)
    now = {}
    output[blocks[i]] = now
  end
  local function print(...)
    local row = {}
    for i = 1, select("#", ...) do row[i] = tostring((select(i, ...))) end
    now[#now + 1] = table.concat(row, "\t")
  end
  local scope = setmetatable({next_block = next_block, print = print}, {__index = _G})
  setfenv(assert(loadstring(table.concat(rows, "\n"), "=" .. page)), scope)()
  for block, lines in pairs(output) do output[block] = table.concat(lines, "\n") end
  return output
end

local function same(wanted, got)
  local rows, at = {}, 0
  for row in (got .. "\n"):gmatch "(.-)\n" do rows[#rows + 1] = row end
  for row in (wanted .. "\n"):gmatch "(.-)\n" do
    at = at + 1
    local start = row:match "^(.-)%.%.%.$"
    local found = rows[at] or ""
    if start and found:sub(1, #start) ~= start or not start and found ~= row then return false end
  end
  return at == #rows
end

local function pages()
  local list = {}
  for name in read(FOLDER .. "README.md"):gmatch "%((%w+%.md)%)" do list[#list + 1] = name end
  return list
end

-- The library that a page needs and that is not installed, or nil.
local function missing(page)
  for _, name in ipairs(page == "images.md" and {"jpeg", "png"} or {}) do
    if not require("moth.io.image." .. name).find() then return name end
  end
end

describe("the guide", function()
  for _, name in ipairs(pages()) do
    local blocks = blocks_of(read(FOLDER .. name))

    it("prints the output on the page: " .. name, function()
      local library = missing(name)
      if library then return pending("there is no library for " .. library) end
      local home = lfs.currentdir()
      finally(function() lfs.chdir(home) end)
      lfs.chdir(files.folder)
      local output = outputs_of(FOLDER .. name, blocks)
      for _, block in ipairs(blocks) do
        local got = output[block] or block.after and output[block.after]
        if show and output[block] then
          io.write(FOLDER, name, ":", block.line, "\n", got, "\n")
        elseif block.language == "text" and got then
          assert.is_true(same(block.text, got),
            ("%s%s:%d says\n%s\nbut the script prints\n%s")
            :format(FOLDER, name, block.line, block.text, got))
        end
      end
    end)
  end

  it("has links to pages that exist", function()
    for _, name in ipairs(pages()) do
      for link in read(FOLDER .. name):gmatch "%]%(([^)#:]+)#?[^)]*%)" do
        local file = io.open(FOLDER .. link)
        assert(file, name .. " links to " .. link)
        file:close()
      end
    end
  end)
end)
