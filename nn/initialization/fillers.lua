--- fillers.lua -- defines the functions of nn.init and their common arguments.

local define = require "moth.binding.define"
local errors = require "moth.error"

local fillers = {
  TENSOR = {"tensor", "tensor", "the tensor to fill"},
  GENERATOR = {"generator", "generator", "source of random numbers", optional = true},
}

--- Defines fillers. Each raises for an uninitialized parameter before it checks the shape.
-- @param into  the table to which the functions are added
-- @param rows  the arguments of `define`, one table for each function
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
