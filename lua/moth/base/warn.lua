--- warn.lua -- moth.warn prints warnings. A program replaces it to redirect them:
-- `moth.warn = function(text) log(text) end`.

local errors = require "moth.error"

--- Writes a warning to stderr, with the position in the user's code.
-- @param text  what is wrong, without a newline
return function(text)
  if type(text) ~= "string" then
    errors.refuse("warn", "text", "a string is needed", text, "E_TYPE")
  end
  local place = errors.where()
  io.stderr:write("moth: warning: ", place and place .. ": " or "", text, "\n")
end
