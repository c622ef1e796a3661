-- Each op's examples on a GPU and on the CPU, in each dtype that the op declares, also with
-- strided inputs: kernels are compiled for each dtype and layout, and golden data cover few of
-- them. MOTH_SPEC_OP=PATTERN selects ops.

local moth = require "moth"
local cuda = require "spec.support.cuda"
local registry = require "spec.support.registry"

local only = os.getenv "MOTH_SPEC_OP"
-- The first two report where a tensor is, and the third needs NVRTC.
local OTHERS = { positions = true, positions_there = true, fused = true }

local DTYPES = { [0] = "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16",
                 "float32", "float64" }
-- The tolerance, relative to the largest element.
local MOST = { float16 = 0.01, bfloat16 = 0.08, float32 = 1e-4, float64 = 1e-9 }

local LAYOUTS = {
  whole = function(x) return x end,
  apart = function(x)
    local n = x:dim() + 1
    return n > 1 and moth.stack({ x, x }, n):select(n, 2) or x
  end,
}

-- An example's float tensors in another dtype; or its integer tensors, without zeros, if the op
-- has no others.
local function cast(x, dtype, domain, whole)
  if not registry.isfloat(x) then return whole and x:to(moth[dtype]) or x end
  if domain or MOST[dtype] then return x:to(moth[dtype]) end
  return (x:abs() * 3 + 1):to(moth[dtype])
end

local function results(op, arguments)
  moth.manual_seed(7)
  local got = { op.fn(unpack(arguments, 1, arguments.n)) }
  return op.list and got[1] or got
end

local function apart(want, got)
  if want.dtype ~= got.dtype or tostring(want.shape) ~= tostring(got.shape) then
    return ("%s %s, wanted %s %s"):format(got.dtype, got.shape, want.dtype, want.shape)
  end
  got = got:cpu()
  local most = MOST[tostring(want.dtype):match "%w+$"]
  if want:numel() == 0 or want:equal(got) then return end
  local x, y = want:double(), got:double()
  local near = x:nan_to_num(0):clamp(-1e300, 1e300)
  local limit = (most or 0) * (1 + near:abs():max():item())
  if moth.allclose(y, x, { rtol = 0, atol = limit, equal_nan = true }) then return end
  return ("%s, wanted %s"):format(got, want)
end

-- The errors of an example's results in one dtype and layout.
local function wrong(op, example, dtype, lay)
  local arguments = example.arguments()
  local list, any = registry.tensors(arguments), false
  for i, x in ipairs(list) do
    list[i] = cast(x, dtype, example.domain, op.dtypes < 64)
    any = any or tostring(list[i].dtype):match "%w+$" == dtype
  end
  if not any then return end
  local function placed(where)
    local copies = {}
    for i, x in ipairs(list) do copies[i] = lay(x:to(where)) end
    return registry.replace(arguments, copies)
  end
  local fine, want = pcall(results, op, placed "cpu")
  if not fine then return end -- ops_spec checks which dtypes may be refused
  local done, got = pcall(results, op, placed "cuda")
  if not done then
    -- Kernels that exist only on the CPU; public functions call them for CPU tensors.
    local alone = op.hidden and tostring(got):find("there is no kernel for it", 1, true)
    return not alone and tostring(got) or nil
  end
  for i = 1, #want do
    local text = apart(want[i], got[i])
    if text then return text end
  end
end

describe("on a GPU, in each dtype and layout,", function()
  if not cuda.here then return pending("ops give what they give on the CPU: " .. cuda.why) end

  for _, op in ipairs(registry.ops()) do
    local same = not (OTHERS[op.name] or op.random or op.mutates or op.derived or op.view
      or op.outputs == "" or op.name:find "^empty" or only and not op.name:match(only))
    if same then
      it(op.name .. " gives what it gives on the CPU", function()
        for d = 0, 9 do
          for name, lay in pairs(LAYOUTS) do
            for _, example in ipairs(bit.band(op.dtypes, bit.lshift(1, d)) ~= 0 and op.examples
              or {}) do
              local text = wrong(op, example, DTYPES[d], lay)
              assert(not text, ("%s(%s) in %s, %s: %s"):format(op.name, example.code, DTYPES[d],
                name, text))
            end
          end
        end
      end)
    end
  end

  it("functions with a kernel only on the CPU return its values", function()
    local F = moth.nn.functional
    local a, b, list = moth.randn(5, 3), moth.randn(4, 3), moth.tensor {1LL, 4LL, 2LL, 2LL}
    local weights = moth.rand(2, 2)
    local cases = {
      cdist = {function(x, y) return moth.cdist(x, y) end, a, b},
      ["cdist, p = 1"] = {function(x, y) return moth.cdist(x, y, {p = 1}) end, a, b},
      pdist = {function(x) return F.pdist(x) end, a},
      prod = {function(x) return x:prod(2) end, a},
      embedding_bag = {function(w, i) return F.embedding_bag(i:view(2, 2), w) end, a, list},
      ["weighted embedding_bag"] = {function(w, i, s)
        return F.embedding_bag(i:view(2, 2), w, {mode = "sum", per_sample_weights = s})
      end, a, list, weights},
      tril_indices = {function(x)
        return x:sum() + moth.tril_indices(3, 4, {device = x.device}):sum()
      end, a},
    }
    for name, case in pairs(cases) do
      local function both(where)
        local given = {}
        for i = 2, #case do
          given[i - 1] = case[i]:detach():to(where)
          if registry.isfloat(case[i]) then given[i - 1]:requires_grad_() end
        end
        local y = case[1](unpack(given))
        y:pow(2):sum():backward()
        return y:detach(), given[1].grad
      end
      local y, dx = both "cpu"
      local there, dthere = both "cuda"
      assert(not apart(y, there), name)
      assert(not apart(dx, dthere), name .. ", its gradient")
    end
  end)

  it("integer powers equal the CPU's", function()
    for d = 0, 9 do
      local x = (moth.arange(70) % 7 + 1):to(moth[DTYPES[d]])
      for _, power in ipairs(DTYPES[d] ~= "bool" and {1, 3, -1, -2} or {}) do
        if power > 0 or DTYPES[d]:find "float" then
          for name, lay in pairs(LAYOUTS) do
            local want, got = lay(x):pow(power), lay(x:cuda()):pow(power)
            assert(not apart(want, got), ("%d in %s, %s"):format(power, DTYPES[d], name))
          end
        end
      end
    end
  end)
end)
