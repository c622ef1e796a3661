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

-- ---- files that lack a field ----

local function varint(text, at)
  local value, scale = 0, 1
  while true do
    local b = text:byte(at)
    if not b then return nil end
    value, at = value + b % 128 * scale, at + 1
    if b < 128 then return value, at end
    scale = scale * 128
    if scale > 2 ^ 56 then return nil end
  end
end

local function varint_text(n)
  local out = ""
  while n >= 128 do n, out = math.floor(n / 128), out .. string.char(n % 128 + 128) end
  return out .. string.char(n)
end

-- The fields of a message: {text, and for bytes: head, body}; nil if the text is no message.
local function fields(text)
  local parts, at = {}, 1
  while at <= #text do
    local key, stop = varint(text, at)
    if not key or key < 8 then return nil end
    local wire, body = key % 8, nil
    if wire == 0 then
      stop = select(2, varint(text, stop))
    elseif wire == 2 then
      local size, start = varint(text, stop)
      if not size then return nil end
      body, stop = text:sub(start, start + size - 1), start + size
    elseif wire == 1 or wire == 5 then
      stop = stop + (wire == 1 and 8 or 4)
    else
      return nil
    end
    if not stop or stop > #text + 1 then return nil end
    parts[#parts + 1] = {text = text:sub(at, stop - 1), head = varint_text(key), body = body}
    at = stop
  end
  return parts
end

-- The message without its k-th field, counted through all messages in it; and the number of fields
-- that are left to count.
local function without(text, k)
  local parts, out = fields(text) or {}, {}
  for _, field in ipairs(parts) do
    k = k - 1
    if k == 0 then
      out[#out + 1] = ""
    elseif field.body and #field.body > 1 and k > 0 then
      local inner
      inner, k = without(field.body, k)
      out[#out + 1] = field.head .. varint_text(#inner) .. inner
    else
      out[#out + 1] = field.text
    end
  end
  return #parts > 0 and table.concat(out) or text, k
end

describe("an ONNX file that lacks a field", function()
  it("is read, or refused by a message of moth.onnx.load", function()
    local path, read, refusals = files.path "part.onnx", 0, 0
    for i, name in ipairs(names) do
      local whole = text_of(store[name .. "/model"])
      local _, left = without(whole, 1e6)
      local part = without(whole, i * 7 % (1e6 - left) + 1)
      assert.is_true(#part < #whole)
      local file = io.open(path, "wb")
      file:write(part)
      file:close()
      local ok, net = pcall(moth.onnx.load, path, {mmap = false})
      if ok then
        read = read + 1
        local done, problem = pcall(moth.no_grad, net, unpack(list(name, "/in/")))
        problem = tostring(problem)
        assert.is_true(done or problem:find "%(in node" ~= nil or not problem:find "attempt to",
          name .. ": " .. problem)
      else
        refusals = refusals + 1
        assert.truthy(tostring(net):find "bad argument 'path' to 'onnx.load'",
          name .. ": " .. tostring(net))
      end
    end
    assert.is_true(read > 100 and refusals > 100, ("%d read, %d refused"):format(read, refusals))
  end)
end)
