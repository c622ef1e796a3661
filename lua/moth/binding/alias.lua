--- alias.lua -- PyTorch's other names of the same functions: concat is cat, x:clip_() is
-- x:clamp_(). bind.lua binds them as the op itself; messages use the name in the call.

local alias = {}

-- op -> its other names
local ROWS = {
  cat = "concat concatenate", vstack = "row_stack", outer = "ger", clamp = "clip",
  abs = "absolute", neg = "negative", trunc = "fix", mul = "multiply", div = "divide true_divide",
  sub = "subtract", gt = "greater", ge = "greater_equal", lt = "less", le = "less_equal",
  ne = "not_equal", acos = "arccos", asin = "arcsin", atan = "arctan", acosh = "arccosh",
  asinh = "arcsinh", atanh = "arctanh", atan2 = "arctan2",
}

local op_of, names = {}, {}
for op, others in pairs(ROWS) do
  for name in others:gmatch "%S+" do
    op_of[name], names[#names + 1] = op, name
  end
end
table.sort(names)

--- The op of which this is another name, also for in-place forms; nil if it is not another name.
function alias.op(name)
  local bare = name:match "^(.*[^_])_$"
  if bare and op_of[bare] then return op_of[bare] .. "_" end
  return op_of[name]
end

--- All other names, sorted, without in-place forms.
function alias.names() return names end

return alias
