--- conformance.lua -- runs the cases that conformance.py has written: ./moth conformance.lua FOLDER
--
-- FOLDER/list has a line for each case: name, number of data sets, rtol, atol, with tabs between.
-- FOLDER/NAME/model.onnx is the model, FOLDER/NAME/setI.safetensors has in0 ... and out0 ...
-- Prints a line for each case: outcome, name, reason. Outcomes: agree, wrong, unknown op, refused
-- (an attribute or a form of an op, by its own message), error.

local moth = require "moth"

local folder = arg[1]

-- Half types are computed with their own rounding: 3 and 8 bits fewer than the reference has.
local COARSE = { [moth.float16] = 2e-3, [moth.bfloat16] = 2e-2 }

local function shape_of(x) return "(" .. table.concat(x.shape, ", ") .. ")" end

-- The difference between a result and the expected one as text, or nil.
local function difference(got, wanted, rtol, atol)
  if got == nil then return "no result" end
  if got.dtype ~= wanted.dtype then
    return ("%s, wanted %s"):format(tostring(got.dtype), tostring(wanted.dtype))
  elseif shape_of(got) ~= shape_of(wanted) then
    return ("shape %s, wanted %s"):format(shape_of(got), shape_of(wanted))
  elseif not wanted:is_floating_point() then
    local n = got:ne(wanted):sum():item()
    return n ~= 0 and ("%d of %d elements differ"):format(tonumber(n), wanted:numel()) or nil
  end
  local coarse = COARSE[wanted.dtype] or 0
  local a, b = got:double(), wanted:double()
  local close = moth.isclose(a, b, { rtol = math.max(rtol, coarse), atol = math.max(atol, coarse),
                                     equal_nan = true })
  local n = close:logical_not():sum():item()
  if n ~= 0 then
    local gap = (a - b):abs():masked_fill(close, 0)
    return ("%d of %d elements differ, by up to %g"):format(tonumber(n), wanted:numel(),
      gap:max():item())
  end
end

local function run_set(net, path, rtol, atol)
  local values, inputs, wanted = moth.load(path), {}, {}
  while values["in" .. #inputs] do inputs[#inputs + 1] = values["in" .. #inputs] end
  while values["out" .. #wanted] do wanted[#wanted + 1] = values["out" .. #wanted] end
  local got = { moth.no_grad(net, unpack(inputs)) }
  for i, y in ipairs(wanted) do
    local what = difference(got[i], y, rtol, atol)
    if what then return ("output %d: %s"):format(i, what) end
  end
end

local function outcome_of(problem)
  if problem:find "node .*which Moth does not support" then
    return "unknown op"
  end
  return moth.errcode() == "E_UNSUPPORTED" and "refused" or "error"
end

local function run(name, sets, rtol, atol)
  local place = folder .. "/" .. name
  local ok, net = pcall(moth.onnx.load, place .. "/model.onnx")
  if not ok then return outcome_of(net), net end
  for i = 0, sets - 1 do
    local done, what = pcall(run_set, net, ("%s/set%d.safetensors"):format(place, i), rtol, atol)
    if not done then return outcome_of(what), what end
    if what then return "wrong", what end
  end
  return "agree", ""
end

io.stdout:setvbuf "line"
for line in io.lines(folder .. "/list") do
  local name, sets, rtol, atol = line:match "^(.-)\t(.-)\t(.-)\t(.-)$"
  local outcome, reason = run(name, tonumber(sets), tonumber(rtol), tonumber(atol))
  reason = reason:gsub("[%c]+", " "):gsub(folder:gsub("%p", "%%%0") .. "/", "")
  print(("%s\t%s\t%s"):format(outcome, name, reason))
end
