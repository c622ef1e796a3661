-- Values of moth.audio against torchaudio (spec/golden/audio.py).

local moth = require "moth"
local json = require "moth.json"
local audio = moth.audio

local file = assert(io.open("spec/golden/audio.json", "rb"))
local golden = json.decode(file:read "*a")
file:close()

local WINDOWS = { hann = moth.hann_window, hamming = moth.hamming_window }

-- The signals of audio.py.
local function signal(shape)
  local n, rows = shape[#shape], 1
  for i = 1, #shape - 1 do rows = rows * shape[i] end
  local k = moth.arange(n)
  local all = (3 * k * k + 7 * k):unsqueeze(1) + 13 * moth.arange(rows):unsqueeze(2)
  return ((all:remainder(101) - 50):to(moth.float32) / 64):reshape(shape)
end

local function is_null(value) return value == nil or value == json.null end

local function result_of(case)
  if case.module then
    local args = {}
    for name, value in pairs(case.args) do
      args[name] = is_null(value) and moth.none or value
    end
    if args.window_fn then args.window_fn = WINDOWS[args.window_fn] end
    local net = next(args) and audio[case.module](args) or audio[case.module]()
    return net(signal(case.shape))
  end
  local args, n = {}, #case.args
  for i = 1, n do
    local value = case.args[i]
    if is_null(value) then value = moth.none
    elseif value == "signal" then
      value = signal(case.shape)
      if case.absolute then value = value:abs() end
    elseif WINDOWS[value] then value = WINDOWS[value](case.window) end
    if case.double and moth.is_tensor(value) then value = value:double() end
    args[i] = value
  end
  if case.noise then
    args = {args[1], args[1]:flip(2) * 2, moth.tensor(args[2]), moth.is_tensor(args[3]) and args[3]
      or type(args[3]) == "table" and #args[3] > 0 and moth.tensor(args[3]) or nil}
    n = args[4] and 4 or 3
  end
  return audio.functional[case["function"]](unpack(args, 1, n))
end

describe("torchaudio's values", function()
  for i, case in ipairs(golden) do
    it(("of %s (%d)"):format(case.module or case["function"], i), function()
      local y = result_of(case)
      assert.same(case.size, { unpack(y.shape) })
      y = y:flatten()
      local got = y:index_select(1, moth.arange(0, y:size(1), case.stride) + 1):tolist()
      -- MFCCs are sums of large numbers of both signs.
      local largest = case.module == "MFCC" and math.max(unpack(case.values)) or 1
      for k, wanted in ipairs(case.values) do
        local near = math.abs(tonumber(got[k]) - wanted)
          <= 1e-5 * math.max(largest, math.abs(wanted))
        assert.is_true(near, ("%d: wanted %.9g, got %.9g"):format(k, wanted, tonumber(got[k])))
      end
    end)
  end
end)
