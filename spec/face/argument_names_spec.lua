-- Messages name what they mean: in each call that raises an error, the function's name is that of a
-- function, the argument's name that of an argument, and the code is the last value. The claims
-- read the source, so that rarely raised messages are checked too.

local moth = require "moth"
local bind = require "moth.binding.bind"

local function read(path)
  local file = assert(io.open(path))
  local text = file:read "*a"
  file:close()
  return text
end

local files = {}
for path in io.popen("find lua/moth nn -name '*.lua' | sort"):lines() do
  files[#files + 1] = {path, read(path)}
end

-- ---- known names ----

local functions, arguments = {}, {["..."] = true, profile = true} -- an option by its key

local function add_last(name)
  functions[name:match "([%w_]+)$" or name] = true
end

for _, file in ipairs(files) do
  local text = file[2]
  for _, pattern in ipairs {'name = "([%w_.]+)"', 'signature%("([%w_.]+)"', 'class%s?%(?"(%w+)"',
      "function%s+[%w_.:]-([%w_]+)%s*%(", "([%w_]+)%s*=%s*function"} do
    for name in text:gmatch(pattern) do add_last(name) end
  end
  for name in text:gmatch '{"[%w?_-]+",%s*"([%w_]+)"' do arguments[name] = true end
  for name in text:gmatch '{"[%w?_-]+"%s*%.%.%s*%w+,%s*"([%w_]+)"' do arguments[name] = true end
  for list in text:gmatch "function%s*[%w_.:]*%s*(%b())" do
    for name in list:gmatch "[%w_]+" do arguments[name] = true end
  end
  for name in text:gmatch "%-%- @param%s+([%w_]+)" do arguments[name] = true end
end

for _, name in ipairs(bind.names()) do
  functions[name] = true
  local found = bind.signature(bind.ops[name])
  for _, arg in ipairs(found and found.args or {}) do arguments[arg.name] = true end
end
for _, space in ipairs {moth, moth.nn, moth.nn.functional, moth.optim, moth.linalg, moth.fft,
    moth.distributions, moth.ops, moth.models, moth.audio, moth.transforms,
    moth.transforms.functional, moth.metrics, moth.plot, moth.signal.windows,
    moth.optim.lr_scheduler} do
  for _, name in ipairs(getmetatable(space).__names(space)) do functions[name] = true end
end

-- ---- calls ----

-- The values of a call as texts; `at` is the position of its opening parenthesis.
local function values_at(text, at)
  local list, depth, from, i = {}, 0, at + 1, at
  while i <= #text do
    local c = text:sub(i, i)
    if c == '"' or c == "'" then
      repeat
        i = text:find("[\\" .. c .. "]", i + 1)
        if text:sub(i, i) == "\\" then i = i + 1 end
      until text:sub(i, i) == c and text:sub(i - 1, i - 1) ~= "\\"
    elseif c:find "[%(%[{]" then
      depth = depth + 1
    elseif c:find "[%)%]}]" then
      depth = depth - 1
      if depth == 0 then
        list[#list + 1] = text:sub(from, i - 1)
        break
      end
    elseif c == "," and depth == 1 then
      list[#list + 1] = text:sub(from, i - 1)
      from = i + 1
    end
    i = i + 1
  end
  for k, value in ipairs(list) do list[k] = value:match "^%s*(.-)%s*$" end
  return list
end

-- Calls check(values, complain) for each call of errors.NAME.
local function each_call(name, check)
  local count, wrong = 0, {}
  for _, file in ipairs(files) do
    local path, text = unpack(file)
    local at = 1
    while true do
      local first, last = text:find("errors%." .. name .. "%(", at)
      if not first then break end
      local values = values_at(text, last)
      count = count + 1
      check(values, function(why)
        local _, line = text:sub(1, first):gsub("\n", "\n")
        wrong[#wrong + 1] = ("%s:%d: %s: %s"):format(path, line + 1, why,
          table.concat(values, ", "):sub(1, 120))
      end)
      at = last + 1
    end
  end
  assert(#wrong == 0, "\n" .. table.concat(wrong, "\n"))
  return count
end

local function literal(value) return value and value:match '^"([^"]*)"$' end

local function is_code(value) return value and value:find '^"E_%u+"$' ~= nil end

-- A code may be chosen: dtype and "E_DTYPE" or "E_SHAPE".
local function has_code(value) return value and value:find '"E_%u+"' ~= nil end

local function check_names(values, complain, most)
  local fname, aname, text = literal(values[1]), literal(values[2]), literal(values[3])
  if fname and not functions[fname:match "([%w_]+)$" or fname] then
    complain "no function has this name"
  end
  if aname and not arguments[aname] then complain "no argument has this name" end
  if #values < 3 then complain "too few values" end
  if text and not text:find " " and (functions[text] or arguments[text]) then
    complain "a name in place of the text"
  end
  for i = 1, #values do
    if is_code(values[i]) and i ~= most then complain "the code is not the last value" end
  end
  if values[most] and values[most]:find '^"' and not is_code(values[most]) then
    complain "no code as the last value"
  end
end

describe("a message", function()
  it("names a function, an argument and a text, then the code", function()
    local count = each_call("argument", function(values, complain)
      check_names(values, complain, 4)
    end)
    count = count + each_call("refuse", function(values, complain)
      check_names(values, complain, 5)
    end)
    assert.is_true(count > 900, count)
  end)

  it("without an argument is a text, then the code", function()
    local count = each_call("raise", function(values, complain)
      if is_code(values[1]) then complain "a code in place of the text" end
      if values[2] and values[2]:find '^"' and not is_code(values[2]) then
        complain "a text in place of the code"
      end
      if has_code(values[1]) and not values[1]:find "%(" then complain "a code in the text" end
    end)
    assert.is_true(count > 200, count)
  end)

  it("of a status begins with the status", function()
    each_call("status", function(values, complain)
      if literal(values[1]) then complain "a name in place of the status" end
      local fname = literal(values[2])
      if fname and not functions[fname:match "([%w_]+)$"] then
        complain "no function has this name"
      end
    end)
  end)

  it("of a dimension names a function, the argument, then the dimension", function()
    each_call("dim", function(values, complain)
      local fname, aname = literal(values[1]), literal(values[2])
      if fname and not functions[fname] then complain "no function has this name" end
      if aname and not arguments[aname] then complain "no argument has this name" end
      for i = 3, #values do
        if literal(values[i]) then complain "a text in place of a number" end
      end
    end)
  end)
end)

describe("a parser of arguments", function()
  it("is registered as that of a function, not the other way round", function()
    local count = 0
    for _, file in ipairs(files) do
      for fn, parser in file[2]:gmatch "\ndefine%.takes%(([%w_.]+), ([%w_.]+)" do
        count = count + 1
        assert.is_nil(fn:find "parse", file[1] .. ": " .. fn)
        assert.truthy(parser:find "parse", file[1] .. ": " .. parser)
      end
    end
    assert.is_true(count > 40, count)
  end)
end)
