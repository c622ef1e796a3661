--- jobs.lua -- runs spec files in parallel, each in its own process, so that a crash or a full
-- heap does not affect the next file. Output is printed file by file, in the order in which they
-- end; the counts are summed. Output and counts of each file are kept in specs/ of the build
-- folder.
--
-- If a process ends in the middle of a file (a crash; a GPU that does not answer; after
-- MOTH_SPEC_LIMIT seconds), one claim fails and another process continues with the next claim.
-- MOTH_SPEC_UNDER has words to put before the command, for example compute-sanitizer.

local lfs = require "lfs"

local report = dofile "spec/support/report.lua"

local jobs = {}

local function quoted(word) return "'" .. word:gsub("'", "'\\''") .. "'" end

local function quoted_all(words)
  local list = {}
  for i, word in ipairs(words) do list[i] = quoted(word) end
  return table.concat(list, " ")
end

-- These folders run only if they are named: they need programs of other packages.
local NAMED = {"%f[^/%z]spec/hosts$", "%f[^/%z]spec/distributed$"}

local function runs_if_named(path)
  for _, pattern in ipairs(NAMED) do
    if path:find(pattern) then return true end
  end
end

--- The spec files at these paths: files as they are; the files of folders, sorted. The folders
-- spec/hosts and spec/distributed are left out unless they are named.
function jobs.files(paths)
  local list, known = {}, {}
  local function add(path, named)
    if lfs.attributes(path, "mode") == "directory" then
      if not named and runs_if_named(path) then return end
      local names = {}
      for name in lfs.dir(path) do
        if name:sub(1, 1) ~= "." then names[#names + 1] = path:gsub("/$", "") .. "/" .. name end
      end
      table.sort(names)
      for _, name in ipairs(names) do add(name) end
    elseif not known[path] and path:find(named and "%.lua$" or "_spec%.lua$") then
      known[path] = true
      list[#list + 1] = path
    end
  end
  for _, path in ipairs(paths) do add(path, true) end
  return list
end

--- The number of processors.
function jobs.processors()
  local pipe = io.popen "nproc 2>/dev/null"
  local n = tonumber(pipe and pipe:read "*a" or "")
  if pipe then pipe:close() end
  return n or 1
end

-- One spec file: the number of finished claims, and its path. It reports its position in one line,
-- short enough for an atomic write.
local ONE = [[
  name=$(printf %s "$2" | tr / +)
  rm -f "$MOTH_SPECS/$name.lua"
  export MOTH_SPEC_AFTER="$1" MOTH_SPEC_REPORT="$MOTH_SPECS/$name.lua"
  ${MOTH_SPEC_LIMIT:+timeout -k 5 "$MOTH_SPEC_LIMIT"} $MOTH_SPEC_UNDER \
    "$MOTH_PROGRAM" test OPTIONS "$2" >"$MOTH_SPECS/$name.log" 2>&1
  echo "$? $2"]]

local MOST_RESUMED = 40 -- times that a file is resumed

-- parts: a list of {finished claims, path}.
local function start(launcher, parts, options, n)
  local folder = launcher.program:match "^(.*)/[^/]*$" .. "/specs"
  local words = {}
  for _, part in ipairs(parts) do
    words[#words + 1], words[#words + 2] = tostring(part[1]), part[2]
  end
  local one = ONE:gsub("OPTIONS", function() return quoted_all(options) end)
  local command = ("mkdir -p %s && printf '%%s\\0' %s | MOTH_SPECS=%s MOTH_PROGRAM=%s "
    .. "xargs -0 -n 2 -P %d sh -c %s sh"):format(quoted(folder), quoted_all(words),
    quoted(folder), quoted(launcher.program), n, quoted(one))
  return assert(io.popen(command)), folder
end

local function text_of(path)
  local file = io.open(path, "rb")
  local text = file and file:read "*a" or ""
  if file then file:close() end
  return text
end

-- The results of a process for one file: its report, and the number of finished claims.
local function outcome(path, status, stem)
  local part, done = report.read(stem .. ".lua"), nil
  local why = "ended with status " .. status
  if status == "124" or status == "137" then why = why .. " (MOTH_SPEC_LIMIT?)" end
  local function fail(text)
    part.failed = part.failed + 1
    table.insert(part.failures, text)
    io.stdout:write("\nFAILED ", text, "\n")
  end
  if not part then
    part = report.new()
    fail(path .. ": " .. why .. ", before all was run")
  elseif part.gone then
    done = part.done
    io.stdout:write("\nthe GPU answers no more; another process takes up what follows\n")
  elseif part.now then
    done = part.done
    fail(part.now .. ": its process " .. why)
  elseif status ~= "0" and report.good(part) then
    fail(path .. ": " .. why)
  end
  return part, done
end

--- Runs the files, n at a time. @return true if all passed
function jobs.run(launcher, files, options, n)
  local all, left = report.new(), {}
  for i, path in ipairs(files) do left[i] = { 0, path } end
  for round = 0, MOST_RESUMED do
    local pipe, folder = start(launcher, left, options, n)
    local seen, again = 0, {}
    for line in pipe:lines() do
      local status, path = line:match "^(%d+) (.*)$"
      local stem = folder .. "/" .. path:gsub("/", "+")
      seen = seen + 1
      io.stdout:write(text_of(stem .. ".log"))
      local part, done = outcome(path, status, stem)
      if done then again[#again + 1] = { done, path } end
      report.add(all, part)
      io.stdout:flush()
    end
    pipe:close()
    if seen < #left or (round == MOST_RESUMED and #again > 0) then
      all.failed = all.failed + 1
      all.failures[#all.failures + 1] = seen < #left
        and ("%d of %d files were run"):format(seen, #left)
        or again[1][2] .. ": given up, after so many processes"
    end
    left = again
    if #left == 0 then break end
  end
  report.show(all)
  return report.good(all)
end

return jobs
