--- mistaken_calls.lua -- calls every public function, method and class whose signature is known as
-- its first example says, with one argument at a time replaced; classes also when their instances
-- are called.

local moth = require "moth"
local bind = require "moth.binding.bind"
local class = require "moth.base.class"
local registry = require "spec.support.registry"
local samples = require "moth.help.samples"

local nn = moth.nn
local mistaken = {}

-- Not called: they write files, run for long, wait, or change the process.
local SKIPPED = {
  "^save$", "^load", "^open$", "^profile", "^capture$", "seed", "set_", "^timer$", "^doctor",
  "^help",
  "^Timer$", "^progress$", "^export$", "use_deterministic", "^download", "^source$", "^compile$",
}

--- The usual wrong values: {name, value or function of the right value}.
mistaken.WRONG = {
  {"string", "wrong"}, {"fraction", 0.37}, {"nan", 0 / 0}, {"-1", -1},
  {"table", function() return {"wrong"} end},
  {"rank", function(x)
    local sizes = {}
    for d = 1, 7 do sizes[d] = 1 end
    return moth.ones(sizes, {dtype = moth.is_tensor(x) and x.dtype or nil})
  end},
  {"dtype", function(x)
    if not moth.is_tensor(x) then return moth.ones(2, 3):bool() end
    return x.dtype.is_floating_point and x:long() or x:double() + 0.5
  end},
  {"size", function(x)
    if not moth.is_tensor(x) or x:dim() == 0 then return moth.ones(5, 3) end
    local sizes = {unpack(x.shape)}
    sizes[#sizes] = sizes[#sizes] + 1
    return moth.ones(sizes, {dtype = x.dtype})
  end},
}

--- The namespaces below moth; "" is moth itself.
mistaken.SPACES = {"", "nn.functional", "linalg", "fft", "special", "signal.windows", "func",
  "autograd", "ops", "random", "nn.utils", "nn.utils.rnn", "nn.init", "nn", "optim",
  "optim.lr_scheduler", "distributions", "data", "onnx", "testing"}

-- The values of a call's arguments by position, including those passed by name.
local function by_position(sig, packed)
  local n, last = packed.n, packed[packed.n]
  local values = {}
  local named = false
  if n > 0 and type(last) == "table" and getmetatable(last) == nil then
    for key in pairs(last) do named = named or type(key) == "string" and sig.index[key] ~= nil end
  end
  if named and #last > 0 and n == 1 then
    for i = 1, #last do values[i] = last[i] end
  end
  local first = sig.args[1]
  if first and first.row.collects and type(packed[1]) == "number" then
    values[1] = {}
    for i = 1, named and n - 1 or n do values[1][i] = packed[i] end
    n = named and 1 or 0
  end
  for i = 1, named and n - 1 or n do values[i] = packed[i] end
  for key, value in pairs(named and last or {}) do
    if type(key) == "string" then values[sig.index[key]] = value end
  end
  return values
end

local function without_out(sig)
  local args = {}
  for i, argument in ipairs(sig.args) do
    if argument.name ~= "out" then args[i] = argument end
  end
  return args
end

-- The arguments of a sample for a class, and for an instance.
local function calls_of(path, space, name)
  local signature = space[name].signature
  local line, lines_of = samples.of(path, signature and bind.signature(signature))
  local text = line or lines_of
  if not text then return nil end
  local made, called
  local instance = setmetatable({}, {__call = function(_, ...)
    called = called or {n = select("#", ...), ...}
    error("STOP", 0)
  end, __index = function() error("STOP", 0) end})
  local function recorder(...)
    made = made or {n = select("#", ...), ...}
    return instance
  end
  local env = setmetatable({F = nn.functional, nn = nn, optim = moth.optim, data = moth.data,
    moth = setmetatable({}, {__index = moth})}, {__index = _G})
  local at = env
  for part in path:gmatch "[%w_]+" do
    if part == name then at[part] = recorder break end
    at[part] = setmetatable({}, {__index = at[part]})
    at = at[part]
  end
  local chunk = loadstring("return " .. text) or loadstring(text)
  if not chunk then return nil end
  pcall(setfenv(chunk, env))
  return made, called
end

--- Calls all of them.
-- @param options  only: a Lua pattern of names; skip: patterns of names that are not called;
-- spaces: namespaces; methods = false: no methods of tensors; wrong: wrong values; visit:
-- function(title, names, argument, wrong, args, fine, result): result is the error, or what
-- `describe` returns for the results; describe: function(...), called before they are released
-- @return the number of functions, of classes, the list of those that were not called
function mistaken.each(options)
  local functions, classes, unsearched, done = 0, 0, {}, {}
  local visit, wrongs = options.visit, options.wrong or mistaken.WRONG
  local describe = options.describe or function() end

  local function skipped(name)
    for _, pattern in ipairs(SKIPPED) do
      if name:find(pattern) then return true end
    end
    for _, pattern in ipairs(options.skip or {}) do
      if name:find(pattern) then return true end
    end
    return options.only and not name:find(options.only)
  end

  -- Calls fn with each argument in turn replaced.
  -- @param title  the printed name of the function
  -- @param names  a message should contain one of these
  -- @param args   the arguments of the signature
  -- @param make   function() -> a new list of the right values, by position
  local function search(title, names, args, fn, make)
    local ok, values = pcall(make)
    if not ok or not values or not pcall(fn, values) then return false end
    for i, argument in ipairs(args) do
      for _, wrong in ipairs(wrongs) do
        local list = make()
        local value = wrong[2]
        if type(value) == "function" then value = value(list[i]) end
        list[i] = value
        moth.manual_seed(1)
        local result
        local fine, problem = pcall(moth.scope, function() result = describe(fn(list)) end)
        visit(title, names, argument, wrong[1], args, fine, fine and result or problem)
      end
    end
    return true
  end

  local function search_function(full, name, fn)
    local sig = bind.signature(fn)
    if done[fn] or not sig or skipped(name) then return end
    done[fn] = true
    local example = sig.examples and sig.examples ~= "" and registry.examples(sig.examples)[1]
    if not example or #sig.args == 0 then return end
    local args = without_out(sig)
    local found = search(full, {name, sig.name}, args, function(list)
      local function all(...) return ... end -- keeps the line: no tail call
      return all(fn(unpack(list, 1, #args)))
    end, function() return by_position(sig, example.arguments()) end)
    if found then functions = functions + 1 else unsearched[#unsearched + 1] = full end
  end

  local function search_class(path, space, name)
    local Class = space[name]
    if type(Class) ~= "table" or done[Class] or skipped(name) then return end
    done[Class] = true
    local sig = Class.signature and bind.signature(Class.signature)
    local ok, made, called = pcall(calls_of, path, space, name)
    if not ok or not made then unsearched[#unsearched + 1] = path return end
    classes = classes + 1
    local function arguments() return select(2, pcall(calls_of, path, space, name)) end
    if sig and #sig.args > 0 then
      search(path, {name}, without_out(sig), function(list)
        local instance = Class(unpack(list, 1, #sig.args))
        return instance
      end, function() return by_position(sig, arguments()) end)
    end
    if not called or path:find "^data" then return end -- data loaders are not called
    local args = {}
    local forward = type(Class.forward) == "function" and class.written(Class.forward)
    local declared = forward and bind.signature(forward)
    for i = 1, called.n do
      args[i] = declared and declared.args[i]
        or {name = forward and debug.getlocal(forward, i + 1) or "x", row = {name = "input"}}
    end
    search(path .. "()", {name}, args, function(list)
      local instance = Class(unpack(made, 1, made.n))
      local y = instance(unpack(list, 1, #args))
      return y
    end, function()
      local _, _, again = pcall(calls_of, path, space, name)
      return {unpack(again, 1, again.n)}
    end)
  end

  for _, space in ipairs(options.spaces or mistaken.SPACES) do
    local from = moth
    for part in space:gmatch "[%w_]+" do from = from[part] end
    local meta = getmetatable(from)
    local names = type(meta) == "table" and meta.__names and meta.__names() or {}
    table.sort(names)
    for _, name in ipairs(names) do
      local ok, value = pcall(function() return from[name] end)
      local full = space == "" and name or space .. "." .. name
      if ok and type(value) == "function" then search_function(full, name, value)
      elseif ok and type(value) == "table" and class.isclass(value) then
        local short = space:find "^nn" or space:find "^optim" or space:find "^data"
        search_class(short and full or "moth." .. full, from, name)
      end
    end
  end
  for _, name in ipairs(options.methods ~= false and bind.method_names() or {}) do
    local fn = bind.method(name)
    if fn then search_function("x:" .. name, name, fn) end
  end
  return functions, classes, unsearched
end

return mistaken
