-- Writes the nets of spec/support/onnx_cases.lua as ONNX files, with inputs and results, for
-- check_onnx.py. ./moth spec/golden/write_onnx.lua FOLDER

local moth = require "moth"
local json = require "moth.json"
local lib = require "moth.binding.lib"
package.path = "./?.lua;" .. package.path
local cases = require "spec.support.onnx_cases"
local runs = require "spec.support.onnx_runs"

local folder = arg[1]
local TYPES = { float32 = "<f4", float64 = "<f8", int64 = "<i8", int32 = "<i4", bool = "?" }
local files = 0

local function tensor(x)
  local info = lib.inspect(x)
  local size = tonumber(info.numel * info.itemsize)
  local bytes = lib.array("uint8_t", math.max(size, 1))
  lib.check(lib.C.moth_bytes(lib.ctx, x, bytes, size), "write_onnx")
  files = files + 1
  local shape = {}
  for d = 1, x:dim() do shape[d] = x:size(d) end
  local record = { file = files .. ".bin", dtype = TYPES[x.dtype.name], shape = shape }
  local file = assert(io.open(folder .. "/" .. record.file, "wb"))
  file:write(require("ffi").string(bytes, size))
  file:close()
  return record
end

local function run(net, args)
  local record = { inputs = {}, outputs = {} }
  for i, x in ipairs(runs.inputs(args)) do record.inputs[i] = tensor(x) end
  for i, y in ipairs(runs.outputs(net, args)) do record.outputs[i] = tensor(y) end
  return record
end

local function encode(x)
  if type(x) == "string" then return json.string(x) end
  if type(x) ~= "table" then return tostring(x) end
  local parts = {}
  for _, value in ipairs(x) do parts[#parts + 1] = encode(value) end
  if #parts > 0 or next(x) == nil then return "[" .. table.concat(parts, ",") .. "]" end
  for key, value in pairs(x) do parts[#parts + 1] = json.string(key) .. ":" .. encode(value) end
  return "{" .. table.concat(parts, ",") .. "}"
end

local rows = {}
for i, case in ipairs(cases) do
  local name, net, args, options = unpack(case)
  if type(net) ~= "function" then net:eval() end
  local inputs = runs.inputs(args)
  local names = options.input_names or {}
  for k = 1, #inputs do names[k] = names[k] or #inputs == 1 and "input" or "input_" .. k end
  local path = folder .. "/" .. i .. ".onnx"
  local ok, problem = pcall(moth.onnx.export, net, args, path, options)
  if not ok then print(name, problem) end
  local row = { name = name, model = i .. ".onnx", inputs = names, runs = { run(net, args) } }
  if options.dynamic_axes then
    row.runs[2] = run(net, runs.longer(args, options))
    -- onnxruntime 1.32 ends the process for recurrent nets without a batch
    local possible, empty = pcall(run, net, runs.empty(args, options))
    if possible and not name:find "LSTM" and not name:find "GRU" then row.runs[3] = empty end
  end
  if ok then rows[#rows + 1] = row end
end
local file = assert(io.open(folder .. "/cases.json", "w"))
file:write(encode(rows))
file:close()
print(#rows .. " of " .. #cases .. " nets are written to " .. folder)
