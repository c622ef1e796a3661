-- moth.onnx.export of every op: the examples of the registry, exported and read again, have the
-- same results, with the oldest and the newest opset. Ops without a counterpart raise.

local moth = require "moth"
local files = require "spec.support.files"
local registry = require "spec.support.registry"

local flat = registry.flat

setup(files.setup)
teardown(files.teardown)

local function same(want, got, what)
  assert.equal(#want, #got, what)
  for i, y in ipairs(want) do
    if y.dtype ~= got[i].dtype or tostring(y.shape) ~= tostring(got[i].shape)
      or not moth.allclose(y:double(), got[i]:double(),
        {rtol = 1e-4, atol = 1e-5, equal_nan = true}) then
      error(("%s, result %d: %s, not %s"):format(what, i, tostring(got[i]), tostring(y)), 0)
    end
  end
end

local exported = {}

describe("an op exported and read again", function()
  for _, op in ipairs(registry.ops()) do
    if not op.random and not op.mutates and not op.hidden and #op.examples > 0 then
      it("has the same results, or raises: " .. op.name, function()
        for _, example in ipairs(op.examples) do
          local arguments = example.arguments()
          local tensors = registry.tensors(arguments)
          local function net(...)
            local list = registry.replace(arguments, {...})
            local function all(...) return ... end
            return all(op.fn(unpack(list, 1, list.n)))
          end
          for _, opset in ipairs(#tensors > 0 and {17, 21} or {}) do
            local path = files.path "op.onnx"
            local fine, problem = pcall(moth.onnx.export, net, tensors, path,
              {opset_version = opset})
            if fine then
              exported[op.name] = true
              local back = moth.onnx.load(path)
              same(flat(moth.no_grad(net, unpack(tensors))), flat(back(unpack(tensors))),
                ("%s(%s), opset %d"):format(op.name, example.code, opset))
            elseif not tostring(problem):find("E_UNSUPPORTED", 1, true)
              and moth.errcode() ~= "E_UNSUPPORTED" then
              error(("%s(%s): %s"):format(op.name, example.code, tostring(problem)), 0)
            end
          end
        end
      end)
    end
  end

  -- name, function, tensors
  local x, at = moth.randn(3, 4), moth.tensor {{-1LL, 2LL}, {1LL, -3LL}}
  for _, row in ipairs {
    {"rows at positions from the end", function(a, i) return a[{i}] end, x, at},
    {"rows and columns at positions from the end", function(a, i) return a[{i, i}] end, x, at},
    {"columns at positions from the end", function(a, i) return a[{{}, i}] end, x, at},
    {"a broadcast take_along_dim", function(a, i) return a:take_along_dim(i, 1) end, x,
      moth.tensor {{1LL}, {3LL}}},
    {"take_along_dim of a broadcast tensor", function(a, i) return a:take_along_dim(i, -1) end,
      moth.randn(1, 4), moth.tensor {{1LL}, {3LL}, {4LL}}},
    {"a mask that broadcasts the tensor", function(a, m) return a:masked_select(m) end,
      moth.randn(3, 1), moth.tensor {true, false, true}},
  } do
    it("has the same results: " .. row[1], function()
      local path, tensors = files.path "op.onnx", {row[3], row[4]}
      moth.onnx.export(row[2], tensors, path)
      same(flat(row[2](unpack(tensors))), flat(moth.onnx.load(path)(unpack(tensors))),
        row[1])
    end)
  end

  it("is possible for most ops", function()
    local n = 0
    for _ in pairs(exported) do n = n + 1 end
    assert.is_true(n > 225, n)
  end)
end)
