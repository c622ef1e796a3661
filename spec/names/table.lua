--- table.lua -- prints for each documented namespace of PyTorch the number of public names that
-- exist here, the number whose error says what to write instead, and the other missing names.
--
--     ./moth spec/names/table.lua

local count = require "spec.names.count"

local FORM = "%-40s %8s %8s %8s"
local rows, totals = count.all()

print(FORM:format("namespace", "present", "told", "silent"))
for _, row in ipairs(rows) do
  print(FORM:format(row.path, row.present, row.told, #row.silent)
    .. (#row.silent > 0 and "  " .. table.concat(row.silent, " ") or ""))
end
print(FORM:format("all", totals.present, totals.told, totals.silent))
