--- refusals.lua -- checks that a call raises an error with a text.

local refusals = {}

--- f(...) raises an error whose message contains `text`.
function refusals.fails(text, f, ...)
  local ok, problem = pcall(f, ...)
  if ok then error("no error; wanted: " .. text, 2) end
  local message = type(problem) == "table" and problem.message
  if message and message:find(text, 1, true) then return end
  message = tostring(problem)
  if not message:find(text, 1, true) then error(message .. "\nlacks: " .. text, 2) end
end

--- A claim for each row {name, text, f}: f() raises an error that contains the text.
-- @param it  Busted's `it`, which only specs see
function refusals.each(it, rows)
  for _, row in ipairs(rows) do
    it(row[1], function() refusals.fails(row[2], row[3]) end)
  end
end

return refusals
