--- fillers.lua -- how the functions of nn.init are defined, and what arguments they share.

local define = require "moth.binding.define"
local errors = require "moth.error"

local fillers = {
  TENSOR = {"tensor", "tensor", "what is filled"},
  GENERATOR = {"generator", "generator", "source of random numbers", optional = true},
}

--- Defines them. Each refuses a parameter that is still uninitialized before it looks at its shape.
-- @param into  a table that gets them by name
-- @param rows  as `define` takes them
function fillers.add(into, rows)
  for _, row in ipairs(rows) do
    local name, run = row.name, row.run
    function row.run(x, ...)
      local waiting = require("moth.nn.module.parameter").waiting[x]
      if waiting ~= nil then
        errors.argument(name, "tensor", "uninitialized until its layer's first call"
          .. (waiting and ": " .. waiting or ""), "E_STATE")
      end
      return (run(x, ...))
    end
    row.outputs, row.scoped = "tensor", true
    into[name] = define(row)
  end
end

return fillers
