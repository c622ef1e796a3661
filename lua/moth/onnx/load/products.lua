--- products.lua -- matrix product nodes of an ONNX graph.

local M = require "moth"
local rows = require "moth.onnx.load.rows"

local F, N, row = M.nn.functional, rows.N, rows.row

N.MatMul = row("2", function(_, x, y) return (M.matmul(x, y)) end)

N.Gemm = row("2 alpha=1.0 beta=1.0 transA=0 transB=0 broadcast=1", function(a, x, y, c)
  if a.transA == 0 and a.transB == 1 and a.alpha == 1 and a.beta == 1 and c and c:dim() == 1
     and c:size(1) == y:size(1) then
    return F.linear(x, y, c)
  end
  local dtype = x.dtype
  if a.transA == 1 then x = x:t() end
  if a.transB == 1 then y = y:t() end
  local z = x:mm(y)
  if a.alpha ~= 1 then z = z * a.alpha end
  if c and a.beta ~= 1 then c = c * a.beta end
  z = c and z + c or z
  return z.dtype == dtype and z or z:to(dtype)
end)

N.Einsum = row("equation:string!", function(a, ...) return M.einsum(a.equation, ...) end)
N.Det = row("", function(_, x) return (M.det(x)) end)

return rows
