-- Errors of public functions for unusual arguments are Moth's own: they name the user's line and
-- arguments, not variables and lines within Moth.

local lfs = require "lfs"

local moth = require "moth"
local places = require "moth.help.places"

local nn = moth.nn

-- The arguments; made again for each call, since some functions keep or write them.
local function odd()
  return {
    ["()"] = {n = 0}, ["(nil, nil)"] = {n = 2}, ["({})"] = {{}, n = 1}, ['("x")'] = {"x", n = 1},
    ["(3)"] = {3, n = 1}, ["(true)"] = {true, n = 1}, ["({1, 2})"] = {{1, 2}, n = 1},
    ["({foo = 1})"] = {{foo = 1}, n = 1}, ["(function)"] = {function() end, n = 1},
    ["(module)"] = {nn.Linear(3, 2), n = 1}, ["(tensor)"] = {moth.ones(2, 3), n = 1},
    ['(tensor, "x")'] = {moth.ones(2, 3), "x", n = 2},
    ["(three tensors)"] = {moth.ones(2, 3), moth.ones(2, 3), moth.ones(2, 3), n = 3},
  }
end

local INNER = {"attempt to %a+", "%a+ expected, got", "lua/moth/[%w_/]+%.lua:",
  "/?nn/[%w_/]+%.lua:"}

-- Functions that are not called: they change a setting for all, or end something that is open.
local LEFT_OUT = {}
for name in ([[seed manual_seed set_printoptions set_default_dtype set_default_device help warn
  set_memory_limit set_memory_floor set_num_threads set_detect_anomaly set_grad_enabled collect
  set_rng_state use_deterministic_algorithms set_float32_matmul_precision exit save
  init_process_group TarWriter
  set_default_validate_args]]):gmatch "%S+" do
  LEFT_OUT[name] = true
end

-- Networks of some gigabytes; smaller ones of the same function are made.
for _, name in ipairs {"gpt2_medium", "gpt2_large", "gpt2_xl", "bert_large"} do
  LEFT_OUT[name] = true
end

local function callable(f)
  local meta = type(f) == "table" and getmetatable(f)
  return type(f) == "function" or type(meta) == "table" and meta.__call ~= nil
end

describe("odd arguments", function()
  local tried = 0
  local folder, home = os.tmpname() .. ".d", lfs.currentdir()

  setup(function() -- some functions create files
    lfs.mkdir(folder)
    lfs.chdir(folder)
  end)

  teardown(function()
    lfs.chdir(home)
    os.execute("rm -rf '" .. folder .. "'")
  end)

  for _, place in ipairs(places.list) do
    it("of the functions in " .. place.path .. " cause no error of the insides", function()
      local space = places.space(place)
      for _, name in ipairs(places.names(place)) do
        local found, f = pcall(function() return space[name] end)
        for shown, args in pairs(found and callable(f) and not LEFT_OUT[name] and odd() or {}) do
          local ok, problem = pcall(function() return f(unpack(args, 1, args.n)) end)
          tried = tried + 1
          if moth.memory().live_bytes > 2 ^ 28 then moth.collect() end -- a large network
          for _, pattern in ipairs(ok and {} or INNER) do
            if tostring(problem):match("^[^\n]*"):find(pattern) then
              error(("%s.%s%s: %s"):format(place.short, name, shown, problem), 0)
            end
          end
        end
      end
    end)
  end

  it("are passed to existing functions", function()
    assert.is_true(tried > 5000, tried .. " calls")
  end)
end)

describe("a warning", function()
  it("has a text", function()
    assert.has_error_like(function() moth.warn({}) end, "'text' to 'warn' %(a string is needed")
  end)
end)

describe("a module, a schedule or a transform", function()
  it("without a tensor or a number raises an error that says so", function()
    local optimizer = moth.optim.SGD(nn.Linear(1, 1):parameters(), {lr = 1})
    local schedule = moth.optim.lr_scheduler.StepLR(optimizer, 1)
    for text, f in pairs {
      ["'input' to 'BatchNorm2d' %(a tensor is needed, got nil"] = nn.BatchNorm2d(3),
      ["'destination' to 'state_dict' %(a table is needed"] = function()
        nn.Linear(1, 1):state_dict("x")
      end,
      ["'epoch' to 'step' %(a number, or nothing, is needed"] = function()
        schedule:step(moth.ones(1))
      end,
      ["'x' to 'TanhTransform' %(a tensor is needed, got 3"] = function()
        moth.distributions.TanhTransform()(3)
      end,
    } do
      assert.has_error_like(function() f(nil) end, text)
    end
  end)
end)
