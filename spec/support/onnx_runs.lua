--- onnx_runs.lua -- the results of the cases of onnx_cases.lua, for the spec and for comparisons
-- with another runtime.

local lib = require "moth.binding.lib"
local moth = require "moth"

local runs = {}

-- The tensors in a list and in the lists in it.
local function tensors(list, n, into)
  for i = 1, n do
    if lib.istensor(list[i]) then into[#into + 1] = list[i]
    else tensors(list[i], #list[i], into) end
  end
  return into
end

--- The tensors among arguments, one after the other.
function runs.inputs(args) return tensors(args, #args, {}) end

--- The tensors that a net returns for arguments.
function runs.outputs(net, args)
  local list = lib.pack(moth.no_grad(function() return net(unpack(args)) end))
  return tensors(list, list.n, {})
end

--- Returns the arguments of a case. The dynamic axes of the first argument, of size n, get size
-- 2 n + 1.
function runs.longer(args, options)
  local _, dims = next(options.dynamic_axes)
  local x = args[1]
  for dim in pairs(dims) do
    local list = {}
    for i = 1, x:size(dim) * 2 + 1 do list[i] = i * 7 % x:size(dim) + 1 end
    x = x:index_select(dim, list)
  end
  return { x, unpack(args, 2) }
end

--- The arguments of a case, with the first one's dynamic axes of size 0.
function runs.empty(args, options)
  local _, dims = next(options.dynamic_axes)
  local x = args[1]
  for dim in pairs(dims) do x = x:narrow(dim, 1, 0) end
  return { x, unpack(args, 2) }
end

return runs
