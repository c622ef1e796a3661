--- chrome.lua -- a profile's Chrome trace, read again.

local json = require "moth.json"

local chrome = {}

--- What prof:export_chrome_trace writes, as a table.
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
