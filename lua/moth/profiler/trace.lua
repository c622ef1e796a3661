--- trace.lua -- exports a profile in the Trace Event Format, for ui.perfetto.dev and
-- chrome://tracing: the CPU and each GPU have a track, live bytes are a counter.

local averages = require "moth.profiler.averages"
local bytes = require "moth.io.bytes"
local ffi = require "ffi"
local json = require "moth.json"
local lib = require "moth.binding.lib"

local C = lib.C
local format = string.format

-- A text as JSON; invalid UTF-8 bytes become question marks.
local function text_of(s)
  local bad = json.bad_utf8(s)
  while bad do
    s = s:sub(1, bad - 1) .. "?" .. s:sub(bad + 1)
    bad = json.bad_utf8(s)
  end
  return json.string(s)
end

local function lane_name(tid, name)
  return format('{"ph":"M","pid":0,"tid":%d,"name":"thread_name","args":{"name":%s}}', tid,
    json.string(name))
end

-- Calls put(line) for each event of the file.
local function each_line(recorded, put)
  local at, name = recorded.at, averages.namer(recorded)
  local devices = {}
  put(lane_name(0, "CPU"))
  for i = 0, recorded.n - 1 do
    local e = at[i]
    local shown, args = text_of(name(i)), {}
    local kind = averages.kind(recorded, i)
    local shapes = averages.shapes(recorded, i)
    if shapes then args[#args + 1] = '"shapes":' .. json.string(shapes) end
    if e.line > 0 then args[#args + 1] = '"line":' .. text_of(recorded.lines[e.line]) end
    if e.status < 0 then
      args[#args + 1] = '"error":' .. json.string(ffi.string(C.moth_error_name(e.status)))
    end
    args[#args + 1] = format('"bytes":%d', tonumber(e.bytes))
    put(format('{"ph":"X","pid":0,"tid":0,"name":%s,"cat":"%s","ts":%.3f,"dur":%.3f,"args":{%s}}',
      shown, kind, e.begin, e["end"] - e.begin, table.concat(args, ",")))
    if e.self_bytes ~= 0 then
      put(format('{"ph":"C","pid":0,"name":"live bytes","ts":%.3f,"args":{"CPU":%d}}', e["end"],
        tonumber(e.live)))
    end
    if e.device > 0 then
      if not devices[e.device] then
        devices[e.device] = true
        put(lane_name(e.device, format("cuda:%d", e.device - 1)))
      end
      put(format('{"ph":"X","pid":0,"tid":%d,"name":%s,"cat":"cuda","ts":%.3f,"dur":%.3f}',
        e.device, shown, e.device_begin, e.device_time))
    end
  end
end

--- Writes the file; an error leaves no partial file.
return function(recorded, path)
  local pieces = {'{"displayTimeUnit":"ms","traceEvents":['}
  each_line(recorded, function(line)
    pieces[#pieces + 1] = (#pieces == 1 and "\n" or ",\n") .. line
  end)
  pieces[#pieces + 1] = "\n]}\n"
  bytes.save(path, {table.concat(pieces)}, "export_chrome_trace", false)
end
