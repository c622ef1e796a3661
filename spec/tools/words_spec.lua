-- Plain words: comments, documentation and messages use the field's terms (docs/dev/words.md).

local root = require("moth.error").root

-- Words that were private to this code base -> what to write.
local WORDS = {
  ["anew"] = "again",
  ["kin"] = "family, related",
  ["stand%-in"] = "GPU emulator",
  ["stands for a GPU"] = "GPU emulator",
  ["lister"] = "observer",
  ["whole number"] = "integer",
  ["whole numbers"] = "integers",
  ["truths"] = "bools",
  ["of one's own"] = "your own",
  ["none other"] = "no other",
  ["as may be"] = "as possible",
  ["that which"] = "the noun",
  ["lets go"] = "frees",
}

-- Folders and files that are checked.
local CHECKED = [[README.md CONTRIBUTING.md SECURITY.md docs core lua nn cuda examples spec .ci]]

local function files()
  local list = {}
  local pipe = io.popen(("cd '%s' && git ls-files %s"):format(root, CHECKED))
  for path in pipe:lines() do
    if path:find "%.[chu]+$" or path:find "%.cpp$" or path:find "%.lua$" or path:find "%.md$" then
      list[#list + 1] = path
    end
  end
  pipe:close()
  return list
end

local EXEMPT = {["docs/dev/words.md"] = true, ["spec/tools/words_spec.lua"] = true}

-- The comments of C and Lua; the whole text of a page.
local function text_of(path, line)
  if path:find "%.md$" then return line end
  if path:find "%.lua$" then return line:match "%-%-.*" or "" end
  return line:match "/%*.*" or line:match "^%s*%*%*.*" or ""
end

describe("plain words", function()
  it("are used in comments and pages", function()
    local found = {}
    for _, path in ipairs(files()) do
      local number = 0
      for line in io.lines(root .. path) do
        number = number + 1
        local text = " " .. text_of(path, line):lower() .. " "
        for word, better in pairs(WORDS) do
          if not EXEMPT[path] and text:find("[^%w_]" .. word .. "[^%w_]") then
            found[#found + 1] = ("%s:%d: '%s': write: %s"):format(path, number, word, better)
          end
        end
      end
    end
    assert.equal("", table.concat(found, "\n"))
  end)
end)
