--- results.lua -- the files of `moth bench cuda`: a line of JSON for each row.
--
-- A run with PyTorch marks its rows: "side" is "moth" or "pytorch", "round" counts; a row of side
-- "run" has the machine and the time. Files of several runs can be read together: rounds of
-- different files are different rounds.

local json = require "moth.json"

local results = {}

local function text_of(value)
  if type(value) == "string" then return json.string(value) end
  if type(value) ~= "number" then return tostring(value) end
  return value - value == 0 and ("%.14g"):format(value) or "null" -- JSON has no inf and no nan
end

--- A row as JSON: a list of {key, value}.
function results.line(fields)
  local parts = {}
  for i, field in ipairs(fields) do
    parts[i] = json.string(field[1]) .. ": " .. text_of(field[2])
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

--- The line of a process, marked with its side and round. @return the line and the row; or nil for
-- other lines
function results.marked(text, side, round)
  local row = text:find "^{" and json.decode(text)
  if not (row and type(row.name) == "string") then return nil end
  row.side, row.round = side, round
  return ('{"side": "%s", "round": %d, %s'):format(side, round, text:sub(2)), row
end

--- All rows of some files; row.round becomes a unique key. @return the rows; or nil and the error
function results.read(paths)
  local list = {}
  for i, path in ipairs(paths) do
    local file, problem = io.open(path)
    if not file then return nil, "cannot read " .. problem end
    local number = 0
    for text in file:lines() do
      number = number + 1
      local row = json.decode(text)
      if type(row) ~= "table" or not (row.side and row.name and row.round) then
        file:close()
        return nil, ("%s:%d: not a row of moth bench cuda --peer --json"):format(path, number)
      end
      row.round = ("%d.%d"):format(i, row.round)
      list[#list + 1] = row
    end
    file:close()
  end
  return list
end

return results
