--- jobs.lua -- spec files side by side, each in a process of its own: what one leaves behind (a
-- heap full of samples, a crash) is not met by the next. Their output is shown file by file, in
-- the order in which they end, and their counts are added up. Output and counts of each stay in
-- the build folder's specs/.

local lfs = require "lfs"

local report = dofile "spec/support/report.lua"

local jobs = {}

local function quoted(word) return "'" .. word:gsub("'", "'\\''") .. "'" end

local function quoted_all(words)
  local list = {}
  for i, word in ipairs(words) do list[i] = quoted(word) end
  return table.concat(list, " ")
end

--- The spec files in those places, sorted: files as they are, those of folders by their names.
function jobs.files(paths)
  local list, known = {}, {}
  local function add(path, named)
    if lfs.attributes(path, "mode") == "directory" then
      for name in lfs.dir(path) do
        if name:sub(1, 1) ~= "." then add(path:gsub("/$", "") .. "/" .. name) end
      end
    elseif not known[path] and path:find(named and "%.lua$" or "_spec%.lua$") then
      known[path] = true
      list[#list + 1] = path
    end
  end
  for _, path in ipairs(paths) do add(path, true) end
  table.sort(list)
  return list
end

--- How many processors there are.
function jobs.processors()
  local pipe = io.popen "nproc 2>/dev/null"
  local n = tonumber(pipe and pipe:read "*a" or "")
  if pipe then pipe:close() end
  return n or 1
end

-- Its words are the options of the specs and, the last one, the file. It tells where it is by one
-- line, which is short enough to come whole.
local ONE = [[
  for path; do :; done
  name=$(printf %s "$path" | tr / +)
  rm -f "$MOTH_SPECS/$name.lua"
  MOTH_SPEC_REPORT="$MOTH_SPECS/$name.lua" "$MOTH_PROGRAM" test "$@" >"$MOTH_SPECS/$name.log" 2>&1
  echo "$? $path"]]

local function start(launcher, files, options, n)
  local folder = launcher.program:match "^(.*)/[^/]*$" .. "/specs"
  local command = ("mkdir -p %s && printf '%%s\\0' %s | MOTH_SPECS=%s MOTH_PROGRAM=%s "
    .. "xargs -0 -n 1 -P %d sh -c %s sh %s"):format(quoted(folder), quoted_all(files),
    quoted(folder), quoted(launcher.program), n, quoted(ONE), quoted_all(options))
  return assert(io.popen(command)), folder
end

local function text_of(path)
  local file = io.open(path, "rb")
  local text = file and file:read "*a" or ""
  if file then file:close() end
  return text
end

--- Runs the files, n at a time. @return whether all went well
function jobs.run(launcher, files, options, n)
  local pipe, folder = start(launcher, files, options, n)
  local all, seen = report.new(), 0
  for line in pipe:lines() do
    local status, path = line:match "^(%d+) (.*)$"
    local stem = folder .. "/" .. path:gsub("/", "+")
    seen = seen + 1
    io.stdout:write(text_of(stem .. ".log"))
    local part = report.read(stem .. ".lua")
    if not part then
      part = report.new()
      part.failed, part.failures[1] = 1, path .. ": ended with status " .. status
      io.stdout:write("\nFAILED ", part.failures[1], ", before all was run\n")
    end
    report.add(all, part)
    io.stdout:flush()
  end
  pipe:close()
  if seen < #files then
    all.failed = all.failed + 1
    all.failures[#all.failures + 1] = ("%d of %d files were run"):format(seen, #files)
  end
  report.show(all)
  return report.good(all)
end

return jobs
