-- Each operator that moth.onnx.load reads, in each of its forms, has the results of the standard's
-- reference implementation.

local ffi = require "ffi"

local moth = require "moth"
local files = require "spec.support.files"
local lib = require "moth.binding.lib"

setup(files.setup)
teardown(files.teardown)

local function text_of(x) return ffi.string(lib.data(x, "text_of"), x:numel()) end

local store = moth.load{bytes = text_of(moth.load("spec/golden/data/onnx/nodes.npz").bytes)}

-- The tensors NAME/in/0, NAME/in/1 and so on.
local function list(name, kind)
  local found = {}
  while store[name .. kind .. #found] do found[#found + 1] = store[name .. kind .. #found] end
  return found
end

-- Forms that are not read, by a part of the name: why.
local REFUSED = {
  ["^ai_onnx_ml_"] = "has no opset",
  ["^flexattention_"] = "does not support",
  ["^not_%dd"] = "is of opset 1; 7 to ",
  ["^optional_.*_optional_"] = "of a type that Moth does not support",
  ["^optional_has_element_tensor"] = "of a type that Moth does not support",
}

local function refused(name)
  for part, why in pairs(REFUSED) do
    if name:find(part) then return why end
  end
end

local names = {}
for key in pairs(store) do names[#names + 1] = key:match "^(.*)/model$" end
table.sort(names)

describe("moth.onnx.load has the results of the standard's reference:", function()
  for _, name in ipairs(names) do
    it(name, function()
      local bytes, why = text_of(store[name .. "/model"]), refused(name)
      local function run()
        local path = files.path "node.onnx"
        local file = io.open(path, "wb")
        file:write(bytes)
        file:close()
        local net = moth.onnx.load(path, {mmap = false})
        return lib.pack(moth.no_grad(net, unpack(list(name, "/in/"))))
      end
      if why then return assert.error_matches(run, why) end
      local got = run()
      for i, wanted in ipairs(list(name, "/out/")) do
        local y = got[i]
        assert.equal(wanted.dtype, y.dtype)
        assert.same({unpack(wanted.shape)}, {unpack(y.shape)})
        if wanted.dtype.is_floating_point then
          assert.is_true(moth.allclose(y, wanted, {rtol = 1e-3, atol = 1e-4, equal_nan = true}),
            ("output %d: %s\n%s"):format(i, y, wanted))
        else
          assert.is_true(moth.equal(y, wanted), ("output %d: %s\n%s"):format(i, y, wanted))
        end
      end
    end)
  end
end)
