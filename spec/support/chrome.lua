--- chrome.lua -- reads the Chrome trace of a profile.

local json = require "moth.json"

local chrome = {}

--- The file of prof:export_chrome_trace, as a table.
function chrome.trace_of(prof)
  local path = os.tmpname()
  prof:export_chrome_trace(path)
  local file = assert(io.open(path))
  local trace = json.decode(file:read "*a")
  file:close()
  os.remove(path)
  return trace
end

return chrome
