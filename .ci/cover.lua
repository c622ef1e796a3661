--- cover.lua -- measures the lines that each spec file executes, for .ci/mutate. It runs the spec
-- once with an instrumented library and instrumented Lua files (cover.c), and stores the result
-- in a folder, a file for each spec file:
--
--   seconds of CPU time in the plain build, whether it passed there
--   FILE: LINE LINE ...
--
-- The lines are the first lines of basic blocks. Needs gcc, objdump and addr2line.

local cover = {}

local MARKS, TEXT = 2 ^ 20, 64 * 2 ^ 20
-- Seconds of CPU time: a slower spec file is not measured.
local SLOW = tonumber(os.getenv "MOTH_MUTATE_SLOW") or 30

local function run(command)
  if os.execute(command) ~= 0 then error("this failed: " .. command, 0) end
end

local function read(path)
  local file = io.open(path, "rb")
  if not file then return end
  local text = file:read "*a"
  file:close()
  return text
end

local function output(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read "*a"
  pipe:close()
  return text
end

-- Inserts marks into a Lua file, from number `first` on; returns the lines of the marks.
local function instrumented(text, code, first)
  local at, out, lines = 1, {}, {}
  local line, counted = 1, 1
  local function mark(after)
    out[#out + 1] = text:sub(at, after) .. (" MARKS_[%d]=1 "):format(first + #lines)
    at = after + 1
    while true do
      local newline = code:find("\n", counted, true)
      if not newline or newline > after then break end
      counted, line = newline + 1, line + 1
    end
    lines[#lines + 1] = line
  end
  local i = 1
  while true do
    local start, stop, word = code:find("%f[%w_](%a+)%f[^%w_]", i)
    if not start then break end
    i = stop + 1
    if word == "function" then
      stop = select(2, code:find("^[%s%w_.:]*%b()", i))
      i = stop + 1
      mark(stop)
    elseif word == "then" or word == "else" or word == "do" or word == "repeat" then
      mark(stop)
    end
  end
  out[#out + 1] = text:sub(at)
  return "local MARKS_ = rawget(_G, 'MOTH_MARKS') or {} MARKS_[" .. first + #lines .. "]=1 "
    .. table.concat(out), lines
end

-- Puts marks into the Lua files of a tree. The list: number of a mark -> "FILE:LINE".
local function instrument(folder, code_of)
  local places = {}
  for path in output(("cd '%s' && find lua/moth nn -name '*.lua' | LC_ALL=C sort"):format(folder))
    :gmatch "[^\n]+" do
    local text = read(folder .. "/" .. path)
    local new, lines = instrumented(text, code_of(text), #places)
    lines[#lines + 1] = 1
    for _, line in ipairs(lines) do places[#places + 1] = path .. ":" .. line end
    if loadstring(new) then
      local file = assert(io.open(folder .. "/" .. path, "wb"))
      file:write(new)
      file:close()
    end
  end
  local file = assert(io.open(folder .. "/places", "w"))
  file:write(table.concat(places, "\n"), "\n")
  file:close()
end

--- Builds the instrumented library of the tree in tree/build-cover, and a copy of the tree with
-- instrumented Lua files in tree/build-cover/tree. code_of: blanks comments and strings.
function cover.build(tree, here, code_of)
  local folder = tree .. "/build-cover"
  run(("mkdir -p '%s' && gcc -O2 -shared -fPIC $(pkg-config --cflags luajit) '%s/cover.c' "
    .. "-o '%s/cover.so' -ldl"):format(folder, here, folder))
  run(("gcc -O2 -fPIC -DCOVER_STUB -c '%s/cover.c' -o '%s/stub.o'"):format(here, folder))
  run(("cd '%s' && nice cmake -S . -B build-cover -DCMAKE_C_COMPILER=gcc -DCMAKE_BUILD_TYPE=Cover "
    .. "-DCMAKE_C_FLAGS='-O1 -DNDEBUG -g1 -fsanitize-coverage=trace-pc' -DMOTH_WERROR=OFF "
    .. "-DCMAKE_SHARED_LINKER_FLAGS='%s/stub.o' -DCMAKE_EXE_LINKER_FLAGS='%s/stub.o' "
    .. ">build-cover/log 2>&1 && nice cmake --build build-cover >>build-cover/log 2>&1")
    :format(tree, folder, folder))
  run(("cd '%s' && rm -rf build-cover/tree && mkdir build-cover/tree && for one in *; do "
    .. "case $one in build*) ;; *) cp -r \"$one\" build-cover/tree ;; esac; done && "
    .. "cp .[a-z]* build-cover/tree 2>/dev/null; mkdir build-cover/tree/build && "
    .. "cp build-cover/moth build-cover/libmoth.so build-cover/tree/build"):format(tree))
  instrument(folder .. "/tree", code_of)
end

-- Puts the instrumented library back if a spec has built another one, and marks the build as new:
-- `./moth` would build it again, without marks.
local function restore_build(tree)
  run(("cd '%s/build-cover' && for one in moth libmoth.so; do cmp -s $one tree/build/$one || "
    .. "{ rm -f tree/build/$one; cp $one tree/build; } || exit 1; done; "
    .. "touch tree/build/.stamp tree/build/.data-asked"):format(tree))
end

-- Return address of a tracer call -> "FILE:LINE FILE:LINE ...", with inlined callers.
local function blocks(tree)
  local library = tree .. "/build-cover/libmoth.so"
  local list, after = {}, false
  local pipe = assert(io.popen("objdump -d --no-show-raw-insn '" .. library .. "'"))
  for line in pipe:lines() do
    local at, rest = line:match "^%s+(%x+):%s+(.*)$"
    if at then
      if after then list[#list + 1] = at end
      after = rest:find("__sanitizer_cov_trace_pc", 1, true) ~= nil
    end
  end
  pipe:close()
  local wanted = os.tmpname()
  local file = assert(io.open(wanted, "w"))
  for _, at in ipairs(list) do file:write(("%x\n"):format(tonumber(at, 16) - 1)) end
  file:close()
  local map, now = {}, nil
  pipe = assert(io.popen(("addr2line -a -i -e '%s' <'%s'"):format(library, wanted)))
  for line in pipe:lines() do
    local at = line:match "^0x(%x+)$"
    local path, number = line:match "(core/[%w_./]+):(%d+)"
    if at then
      now = tonumber(at, 16) + 1
      map[now] = {}
    elseif path and now then
      path = path:gsub("[%w_]+/%.%./", "")
      table.insert(map[now], path .. ":" .. number)
    end
  end
  pipe:close()
  os.remove(wanted)
  return map
end

local function add(found, path, line)
  found[path] = found[path] or {}
  found[path][tonumber(line)] = true
end

local function lists(found)
  local out = {}
  for name, set in pairs(found) do
    local list = {}
    for line in pairs(set) do list[#list + 1] = line end
    table.sort(list)
    out[#out + 1] = name .. ": " .. table.concat(list, " ") .. " \n"
  end
  return table.concat(out)
end

local function write(path, text)
  local file = assert(io.open(path .. ".new", "w"))
  file:write(text)
  file:close()
  assert(os.rename(path .. ".new", path))
end

-- Keeps the first lines of basic blocks.
local function keep_blocks(path, map, list)
  local found = {}
  for _, place in ipairs(list) do add(found, place:match "^(.*):(%d+)$") end
  for _, places in pairs(map) do
    for _, place in ipairs(places) do add(found, place:match "^(.*):(%d+)$") end
  end
  write(path, "\n" .. lists(found))
end

-- The marked lines of a run: file -> set of lines.
local function marked(path, map, places)
  local text, found = read(path), {}
  local k = text:find("\1", 1, true)
  while k do
    if k <= MARKS then
      add(found, places[k]:match "^(.*):(%d+)$")
    else
      for _, place in ipairs(map[k - MARKS - 1] or {}) do add(found, place:match "^(.*):(%d+)$") end
    end
    k = text:find("\1", k + 1, true)
  end
  return found
end

-- The name of the result file of a spec file.
local function stem(spec) return (spec:gsub("/", "+")) end

--- Measures each spec without results in the folder; for a slow spec only its time. timed(spec):
-- seconds of CPU time and whether it passed in the plain build.
function cover.measure(tree, specs, folder, timed)
  local map, list
  run("mkdir -p '" .. folder .. "'")
  for i, spec in ipairs(specs) do
    local path = folder .. "/" .. stem(spec)
    if not read(path) then
      if not map then
        map, list = blocks(tree), {}
        for place in io.lines(tree .. "/build-cover/tree/places") do list[#list + 1] = place end
        keep_blocks(folder .. "/blocks", map, list)
      end
      local seconds, passed = timed(spec)
      local found, marks = {}, tree .. "/build-cover/marks"
      if seconds < SLOW then
        restore_build(tree)
        run(("rm -f '%s' && truncate -s %d '%s'"):format(marks, MARKS + TEXT, marks))
        os.execute(("cd '%s/build-cover/tree' && LD_PRELOAD='%s/build-cover/cover.so' "
          .. "MOTH_MARKS='%s' timeout -k 5 120 build/moth test '%s' >/dev/null 2>&1")
          :format(tree, tree, marks, spec))
        found = marked(marks, map, list)
        os.remove(marks)
      end
      write(path, ("%.2f %s\n"):format(seconds, passed and "passed" or "failed") .. lists(found))
      io.stderr:write(("measured %d of %d: %s, %.1f s\n"):format(i, #specs, spec, seconds))
    end
  end
end

--- The results of a spec: seconds, passed, file -> " LINE LINE ... ".
function cover.of(folder, spec)
  local text = read(folder .. "/" .. stem(spec))
  if not text then return end
  local seconds, passed = text:match "^(%S+) (%a+)\n"
  local lines, size = {}, 0
  for name, list in text:gmatch "\n([^\n:]+):( [%d ]*)" do
    lines[name] = list
    size = size + #list
  end
  return { path = spec, seconds = tonumber(seconds), passed = passed == "passed", lines = lines,
    size = size }
end

cover.read, cover.run, cover.output = read, run, output

return cover
