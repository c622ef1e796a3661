--- House rules that a program can check: the top-level folder, the length of files and functions,
-- a comment at the top of each file, and luacheck.

local SOURCE = "%.[ch][up]?[hp]?$" -- .c .h .cu .cuh .cpp
local MAX_LINES, MAX_FUNCTION, MAX_COLUMNS, MAX_EXAMPLE = 800, 60, 100, 150

local TOP = {}
for name in ([[moth CMakeLists.txt core cuda lua nn examples spec rockspec docs README.md
    LICENSE CHANGELOG.md CONTRIBUTING.md SECURITY.md CMakePresets.json]]):gmatch("%S+") do
  TOP[name] = true
end

local function lines_of(command)
  local list = {}
  local pipe = assert(io.popen(command))
  for line in pipe:lines() do list[#list + 1] = line end
  pipe:close()
  return list
end

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

--- The files in our own folders that match one of these patterns.
local function sources(...)
  local endings, found = { ... }, {}
  local where = "moth CMakeLists.txt core cuda lua nn examples spec rockspec .ci"
  for _, path in ipairs(lines_of("find " .. where .. " -type f 2>/dev/null | sort")) do
    for _, ending in ipairs(endings) do
      if path:find(ending) and not path:find("__pycache__", 1, true) then
        found[#found + 1] = path
        break
      end
    end
  end
  assert(#found > 0, "no sources found: run the specs from the root of the checkout")
  return found
end

--- Fails with all complaints in one message.
local function none(complaints)
  assert(#complaints == 0, "\n" .. table.concat(complaints, "\n"))
end

local function count_lines(text)
  local _, n = text:gsub("\n", "")
  return n
end

describe("the source", function()
  it("has no cycle of includes above five files", function()
    local lines = lines_of("luajit .ci/include_cycles.lua && echo fine")
    assert.equal("fine", lines[#lines], lines[1])
  end)

  it("has only known files in its top-level folder", function()
    local complaints = {}
    for _, name in ipairs(lines_of("ls")) do
      if not TOP[name] and not name:find("^build") then
        complaints[#complaints + 1] = name .. " does not belong at the top level"
      end
    end
    none(complaints)
  end)

  it("has no file above 800 lines, no example above 150", function()
    local complaints = {}
    for _, path in ipairs(sources(SOURCE, "%.lua$", "%.py$", "^moth$", "%.txt$")) do
      local n = count_lines(read(path))
      local most = path:find("^examples/%d+_") and MAX_EXAMPLE or MAX_LINES
      local data = path:find "^spec/golden/.*%.txt$" or path:find "^spec/names/.*%.txt$"
      if n > most and not data then
        complaints[#complaints + 1] = ("%s: %d lines"):format(path, n)
      end
    end
    none(complaints)
  end)

  it("has no line above 100 columns and no tabs in C and Lua", function()
    local complaints = {}
    for _, path in ipairs(sources(SOURCE, "%.lua$")) do
      local number = 0
      for line in (read(path) .. "\n"):gmatch("(.-)\n") do
        number = number + 1
        local _, continuation = line:gsub("[\128-\191]", "")
        if #line - continuation > MAX_COLUMNS then
          complaints[#complaints + 1] = ("%s:%d: %d columns"):format(path, number, #line)
        elseif line:find("\t", 1, true) or line:find("%s$") then
          complaints[#complaints + 1] = ("%s:%d: a tab or a blank at the end"):format(path, number)
        end
      end
    end
    none(complaints)
  end)

  it("makes arrays of a length known at run time only with lib.array", function()
    local complaints = {}
    for _, path in ipairs(sources("^lua/.+%.lua$", "^nn/.+%.lua$")) do
      if path ~= "lua/moth/binding/lib.lua" and read(path):find("[?]", 1, true) then
        complaints[#complaints + 1] = path .. ": see lib.array for what goes wrong"
      end
    end
    none(complaints)
  end)

  it("has a comment about its purpose at the top of each file", function()
    local complaints = {}
    for _, path in ipairs(sources(SOURCE, "%.lua$", "%.py$", "%.cmake$", "^moth$",
        "^CMakeLists")) do
      local text = read(path):gsub("^#!.-\n", "")
      if not (text:find("^/%*") or text:find("^//") or text:find("^%-%-") or text:find("^#")
        or text:find('^"""')) then
        complaints[#complaints + 1] = path .. ": does not open with a comment"
      end
    end
    none(complaints)
  end)

  -- A function starts at a line with a name in the first column and an opening brace at the end. It
  -- ends at a brace in the first column.
  it("has no C function above 60 lines", function()
    local complaints = {}
    for _, path in ipairs(sources("^core/.*%.c$", "^cuda/.*%.cuh?$",
        "^cuda/.*%.cpp$")) do
      local number, start = 0, nil
      for line in (read(path) .. "\n"):gmatch("(.-)\n") do
        number = number + 1
        if line:find("^[%a_][^=;]*%(") and not line:find(";$") and not line:find("^[%u%d_]+%(") then
          start = start or number
        elseif line:find("^}") and start then
          if number - start + 1 > MAX_FUNCTION then
            complaints[#complaints + 1] =
              ("%s:%d: a function of %d lines"):format(path, start, number - start + 1)
          end
          start = nil
        elseif line:find("^[^%s]") and line:find(";$") then
          start = nil
        end
      end
    end
    none(complaints)
  end)

  -- The linker finds the members of a type, and functions generated for it, by the type's name in
  -- the whole plugin. If two types have the same name, it keeps only the members of one type.
  it("has no two types of the same name in the CUDA plugin", function()
    local complaints, where = {}, {}
    for _, path in ipairs(sources("^cuda/.*%.cuh?$", "^cuda/.*%.h$", "^cuda/.*%.cpp$")) do
      for line in read(path):gmatch "[^\n]+" do
        local name = line:gsub("^template %b<> ", ""):gsub("alignas%b() ", "")
          :match "^struct ([%w_]+) [:{]"
        if name and path:find "/ptx/" or path:find "preamble" then name = nil end -- programs
        if name and where[name] and where[name] ~= path then
          complaints[#complaints + 1] = ("%s: '%s' is also a type of %s"):format(path, name,
            where[name])
        end
        if name then where[name] = path end
      end
    end
    none(complaints)
  end)

  it("has no path of one machine and no unfinished code", function()
    -- The words are concatenated, so that this file passes its own check.
    local wrong = {
      "/ho" .. "me/", "/wo" .. "rk/", "/tm" .. "p/w/", "TO" .. "DO", "FIX" .. "ME",
      "not imple" .. "mented",
    }
    local complaints = {}
    for _, path in ipairs(sources(SOURCE, "%.lua$", "%.py$", "%.md$", "%.cmake$",
        "^moth$", "%.txt$", "rockspec$", "^%.ci/")) do
      local text = read(path)
      for _, word in ipairs(wrong) do
        if text:find(word, 1, true) then
          complaints[#complaints + 1] = ("%s: holds '%s'"):format(path, word)
        end
      end
    end
    none(complaints)
  end)

  it("passes luacheck", function()
    if not lines_of("command -v luacheck")[1] then
      pending("luacheck is not installed")
      return
    end
    local found = {}
    for _, folder in ipairs { "lua", "nn", "examples", "spec" } do
      if lines_of("ls -d " .. folder .. " 2>/dev/null")[1] then found[#found + 1] = folder end
    end
    local report = lines_of("env -u LD_PRELOAD luacheck --no-color --codes -qq "
      .. table.concat(found, " ") .. " 2>&1; echo \"status $?\"")
    local status = table.remove(report)
    assert(status == "status 0", "\n" .. table.concat(report, "\n"))
  end)
end)
