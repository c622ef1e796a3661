-- ONNX files are read as modules. Nets of PyTorch's exporters have PyTorch's results and can be
-- trained, converted and captured. A malformed or unsupported file raises an error before it runs.

local moth = require "moth"
local cuda = require "spec.support.cuda"
local files = require "spec.support.files"
local proto = require "moth.onnx.proto"

local nn = moth.nn
local FOLDER = "spec/golden/data/onnx/"

setup(files.setup)
teardown(files.teardown)

local values = moth.load(FOLDER .. "values.safetensors")

local NAMES = "resnet resnet_11 resnet_new mobilenet mobilenet_new vit vit_new bert bert_new "
  .. "recurrent recurrent_new unet unet_new odds odds_new"

local function of(name, kind)
  local list = {}
  while values[name .. kind .. #list] do list[#list + 1] = values[name .. kind .. #list] end
  return list
end

local function load(name) return moth.onnx.load(FOLDER .. name .. ".onnx") end

describe("a net that PyTorch exported", function()
  for name in NAMES:gmatch "%S+" do
    it("has PyTorch's results: " .. name, function()
      local net, wanted = load(name), of(name, "/out/")
      local got = { moth.no_grad(net, unpack(of(name, "/in/"))) }
      assert.equal(#wanted, #got)
      for i, y in ipairs(wanted) do
        assert.equal(y.dtype, got[i].dtype)
        assert.same({ unpack(y.shape) }, { unpack(got[i].shape) })
        assert.is_true(moth.allclose(got[i], y, { rtol = 1e-4, atol = 1e-5 }))
      end
    end)
  end

  it("accepts inputs by name, and other sizes if they are dynamic", function()
    local net = load "bert"
    local ids, mask = unpack(of("bert", "/in/"))
    assert.is_true(moth.equal(net { mask = mask, ids = ids }, net(ids, mask)))
    net = load "recurrent"
    ids = of("recurrent", "/in/")[1]
    local y = net(ids:tile(2, 2))
    assert.same({ 10, 4, 2 }, { unpack(y.shape) })
    local one = net(ids[{ { 2, 2 } }])
    assert.is_true(moth.allclose(one, (net(ids))[{ {}, { 2, 2 } }], { atol = 1e-6 }))
  end)

  it("has PyTorch's names in its state_dict, and statistics as buffers", function()
    local state = load("mobilenet"):state_dict()
    assert.same({ 8, 3, 1, 1 }, { unpack(state["expand.weight"].shape) })
    local names = {}
    for name in load("resnet_new"):named_parameters() do names[name] = true end
    assert.is_true(names["fc.weight"] and names["fc.bias"])
  end)

  it("can be trained", function()
    for _, name in ipairs { "mobilenet", "vit", "recurrent", "unet" } do
      local net, x = load(name), of(name, "/in/")[1]
      local optimizer = moth.optim.SGD(net:parameters(), { lr = 0.01 })
      local first, last
      for _ = 1, 5 do
        local loss = net(x):pow(2):mean()
        first, last = first or loss:item(), loss:item()
        optimizer:zero_grad()
        loss:backward()
        optimizer:step()
      end
      assert.is_true(last < first)
    end
  end)

  it("has the gradients of the exported net", function()
    local net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 2))
    local x = moth.randn(2, 2, 4, 4)
    moth.onnx.export(net, x, files.path "net.onnx")
    local back = moth.onnx.load(files.path "net.onnx")
    net(x):pow(2):sum():backward()
    back(x):pow(2):sum():backward()
    local grads = {}
    for name, p in net:named_parameters() do grads[name] = p.grad end
    for name, p in back:named_parameters() do
      assert.is_true(moth.allclose(p.grad, grads[name], { rtol = 1e-4, atol = 1e-5 }))
    end
  end)

  it("can be captured after a run with these shapes", function()
    for _, name in ipairs { "resnet", "vit", "bert" } do
      local net, inputs = load(name), of(name, "/in/")
      local wanted = moth.no_grad(net, unpack(inputs))
      local step = moth.capture(function(...) return moth.no_grad(net, ...) end)
      for _ = 1, 3 do assert.is_true(moth.equal(step(unpack(inputs)), wanted)) end
    end
  end)

  it("can run in scopes, and be copied, saved and loaded", function()
    local net, x = load "vit", of("vit", "/in/")[1]
    local wanted = moth.no_grad(net, x)
    for _ = 1, 2 do
      assert.is_true(moth.equal(moth.scope(function() return net(x) end):detach(), wanted))
    end
    local copy = moth.deepcopy(net)
    for _, p in ipairs(copy:parameters()) do p.data:zero_() end
    assert.is_true(moth.equal(net(x):detach(), wanted))
    copy:load_state_dict(net:state_dict())
    assert.is_true(moth.equal(copy(x):detach(), wanted))
  end)

  it("runs in float64, but not on inputs of another dtype or size", function()
    local net = load "resnet"
    local function raises(what, ...)
      local ok, problem = pcall(net, ...)
      assert.is_false(ok)
      assert.is_truthy(problem:find(what), problem)
    end
    raises("'x' to 'forward' %(float32 %(batch, 3, 17, 17%) is needed, got nil")
    raises("got f64 %(2, 3, 17, 17%)", moth.randn(2, 3, 17, 17):double())
    raises("got f32 %(2, 3, 16, 17%)", moth.randn(2, 3, 16, 17))
    raises("got a string", "x")
    raises("1 input is needed, got 2", moth.randn(2, 3, 17, 17), 1)
    raises("there is no input 'y'; the inputs are x", { y = moth.randn(2, 3, 17, 17) })
  end)

  if cuda.here then
    it("runs on " .. cuda.name .. ", and is exported from there", function()
      for _, name in ipairs { "vit", "recurrent" } do
        local net, x = load(name), of(name, "/in/")[1]
        local wanted = net(x):detach()
        net:to("cuda")
        assert.is_true(moth.allclose(net(x:to("cuda")):cpu(), wanted, { rtol = 1e-4, atol = 1e-5 }))
      end
      local net, x = nn.LSTM(3, 4):to("cuda"), moth.randn(5, 2, 3):to("cuda")
      moth.onnx.export(net, x, files.path "net.onnx")
      local back = moth.onnx.load(files.path "net.onnx")
      assert.is_true(moth.allclose(back(x:cpu()), (net(x)):cpu(), { rtol = 1e-4, atol = 1e-5 }))
    end)
  end

  it("prints its structure", function()
    assert.is_truthy(tostring(load "resnet"):find "OnnxModule%(.*resnet.onnx: 12 nodes, opset 17")
  end)
end)

-- ---- handmade files ----

local function bytes_of(message, value)
  local parts = {}
  for i, piece in ipairs(proto.encode(message, value)) do parts[i] = piece end
  return table.concat(parts)
end

local function info(name, dims, kind)
  local list = {}
  for i, size in ipairs(dims) do list[i] = { dim_value = size } end
  return { name = name, type = { tensor_type = { elem_type = kind or 1, shape = { dim = list } } } }
end

local function node(op, inputs, outputs, attributes, more)
  local new = { op_type = op, name = op:lower(), input = inputs, output = outputs,
                attribute = attributes }
  for key, value in pairs(more or {}) do new[key] = value end
  return new
end

local F4 = "\0\0\128\63"

-- A model of these nodes: from x (2) and the weight w (2) to y.
local function model(nodes, more)
  local graph = { name = "g", node = nodes, input = { info("x", { 2 }) },
    output = { info("y", { 2 }) },
    initializer = { { name = "w", dims = { 2 }, data_type = 1, raw_data = F4 .. F4 } } }
  local value = { ir_version = 8, opset_import = { { domain = "", version = 17 } }, graph = graph }
  for key, v in pairs(more or {}) do
    if key == "opset" then value.opset_import = { { version = v } } else graph[key] = v end
  end
  return bytes_of("Model", value)
end

local good = { node("Add", { "x", "w" }, { "y" }) }

local function weight(fields)
  local t = { name = "w", dims = { 2 }, data_type = 1, raw_data = F4 .. F4 }
  for key, value in pairs(fields) do t[key] = value end
  return { initializer = { t } }
end

local function axis(value, kind) return { { name = "axis", i = value, type = kind or 2 } } end

-- name, bytes, the text of the message, the code if it is not E_FORMAT
local hostile = {
  { "empty file", "", "is empty" },
  { "text", "hello, I am no model", "" },
  { "zip", "PK\3\4" .. ("x"):rep(60), "" },
  { "zeros", ("\0"):rep(64), "field 0" },
  { "endless number", ("\255"):rep(64), "more than ten bytes" },
  { "field beyond the file", "\58\255\255\255\255\15", "a field of 4294967295 bytes where 0 are" },
  { "field of 2^63 bytes", "\58\255\255\255\255\255\255\255\255\127", "a field of" },
  { "negative field", "\58\255\255\255\255\255\255\255\255\255\1", "a field of %-1 bytes" },
  { "a group", "\59", "wire type 3" },
  { "graph that is a number", "\56\1", "wire type 0 for field 'graph'" },
  { "no graph", bytes_of("Model", { ir_version = 8 }), "it has no graph" },
  { "no opset", bytes_of("Model", { graph = { name = "g" } }), "has no opset" },
  { "opset from before", model(good, { opset = 6 }), "opset 6; 7 to 28 are supported",
    "E_UNSUPPORTED" },
  { "opset to come", model(good, { opset = 99 }), "opset 99", "E_UNSUPPORTED" },
  { "unknown op", model { node("Ad", { "x", "w" }, { "y" }) },
    "node 'ad' %(Ad%), which Moth does not support; did you mean 'Add'", "E_UNSUPPORTED" },
  { "op of another domain", model { node("Gelu", { "x" }, { "y" }, nil,
    { domain = "com.microsoft" }) }, "of com.microsoft, which Moth does not", "E_UNSUPPORTED" },
  { "unknown attribute", model { node("Add", { "x", "w" }, { "y" }, axis(1)) },
    "the unknown attribute 'axis' at node 'add' %(Add%)", "E_UNSUPPORTED" },
  { "attribute of another type", model { node("Softmax", { "x" }, { "y" }, axis(1, 1)) },
    "'axis' of node 'softmax' %(Softmax%) is of type 1" },
  { "attribute without a type", model { node("Softmax", { "x" }, { "y" }, { { name = "axis" } }) },
    "'axis' of node 'softmax' %(Softmax%) has no type" },
  { "value that Moth lacks", model { node("BatchNormalization", { "x", "w", "w", "w", "w" },
    { "y" }, { { name = "spatial", i = 0, type = 2 } }) }, "only 1 is supported", "E_UNSUPPORTED" },
  { "cycle", model { node("Add", { "x", "z" }, { "y" }), node("Relu", { "y" }, { "z" }) },
    "node 'add' %(Add%) reads 'z', which no node before it computes" },
  { "node that reads itself", model { node("Relu", { "y" }, { "y" }) }, "reads 'y'" },
  { "node that reads nothing", model { node("Relu", {}, { "y" }) }, "reads nothing" },
  { "node that lacks an operand", model { node("Gather", { "x" }, { "y" }) },
    "node 'gather' %(Gather%) has no operand 2" },
  { "node whose operand is left out", model { node("Where", { "x", "", "x" }, { "y" }) },
    "node 'where' %(Where%) has no operand 2" },
  { "node that lacks an attribute", model { node("Concat", { "x", "w" }, { "y" }) },
    "node 'concat' %(Concat%) has no attribute 'axis'" },
  { "node that gives nothing", model { node("Relu", { "x" }, {}) }, "has no output" },
  { "value given twice", model { node("Relu", { "x" }, { "y" }), node("Relu", { "x" }, { "y" }) },
    "two values are called 'y'" },
  { "output of nowhere", model { node("Relu", { "x" }, { "z" }) },
    "no node computes the output 'y'" },
  { "no output", model(good, { output = {} }), "it has no output" },
  { "input that is no tensor", model(good, { input = { { name = "x" } } }), "input 'x' of a type",
    "E_UNSUPPORTED" },
  { "input of strings", model(good, { input = { info("x", { 2 }, 8) } }), "input 'x'",
    "E_UNSUPPORTED" },
  { "two weights of one name", model(good, { initializer = {
    { name = "w", dims = {}, data_type = 1, raw_data = F4 },
    { name = "w", dims = {}, data_type = 1, raw_data = F4 } } }), "two values are called 'w'" },
  { "too few bytes", model(good, weight { raw_data = F4 }), "'w' needs 8 bytes, the file has 4" },
  { "too many bytes", model(good, weight { raw_data = F4 .. F4 .. F4 }), "the file has 12" },
  { "no bytes", model(good, { initializer = { { name = "w", dims = { 2 }, data_type = 1 } } }),
    "'w' has no values" },
  { "no name and no bytes", model(good, { initializer = { { dims = { 2 }, data_type = 1 } } }),
    "tensor '' has no values" },
  { "no name and too few bytes", model(good, { initializer = { { dims = { 2 }, data_type = 1,
    raw_data = F4 } } }), "tensor '' needs 8 bytes" },
  { "no name and a negative size", model(good, { initializer = { { dims = { -2 },
    data_type = 1 } } }), "tensor '' has impossible sizes" },
  { "no name and nine dimensions", model(good, { initializer = { {
    dims = { 1, 1, 1, 1, 1, 1, 1, 1, 2 }, data_type = 1 } } }), "tensor '' of 9 dimensions",
    "E_UNSUPPORTED" },
  { "no name and an unknown type", model(good, { initializer = { { dims = { 2 },
    data_type = 8 } } }), "tensor '' of element type 8", "E_UNSUPPORTED" },
  { "no name and bytes elsewhere", model(good, { initializer = { { dims = { 2 }, data_type = 1,
    data_location = 1, external_data = { { key = "location", value = "../x" } } } } }),
    "tensor '' in '../x'" },
  { "negative size", model(good, weight { dims = { -2 } }), "'w' has impossible sizes" },
  { "sizes that overflow", model(good, weight { dims = { 2 ^ 40, 2 ^ 40 } }), "impossible sizes" },
  { "sizes that wrap", model(good, weight { dims = { 2 ^ 62, 4, 2 } }), "impossible sizes" },
  { "huge and empty", model(good, weight { dims = { 2 ^ 62, 0 }, raw_data = "" }), "impossible" },
  { "nine dimensions", model(good, weight { dims = { 1, 1, 1, 1, 1, 1, 1, 1, 2 } }),
    "'w' of 9 dimensions", "E_UNSUPPORTED" },
  { "strings as weights", model(good, weight { data_type = 8 }), "of element type 8",
    "E_UNSUPPORTED" },
  { "weights elsewhere", model(good, { initializer = { { name = "w", dims = { 2 }, data_type = 1,
    data_location = 1, external_data = { { key = "location", value = "../../etc/passwd" } } } } }),
    "stores the tensor 'w' in '../../etc/passwd', which is not in the folder of the file" },
  { "weights in a file that is not there", model(good, { initializer = { { name = "w",
    dims = { 2 }, data_type = 1, data_location = 1, external_data = { { key = "location",
    value = "gone.data" } } } } }), "cannot open '.*/gone.data': No such file", "E_IO" },
  { "constant without a value", model { node("Constant", {}, { "y" }) }, "with no value",
    "E_UNSUPPORTED" },
}

describe("a file", function()
  it("whose lists are too short raises an error with the node", function()
    local perm = { { name = "perm", ints = {}, type = 7 } }
    local net = moth.onnx.load(files.write("short.onnx", model { node("Transpose", { "x" }, { "y" },
      perm) }))
    assert.error_matches(function() net(moth.ones(2)) end, "an operand or an attribute lacks "
      .. "numbers: .* %(in node 'transpose', Transpose, of '.*short.onnx'%)")
  end)

  it("shows its names without control characters", function()
    local evil, path = files.evil, files.path "bad.onnx"
    for _, bytes in ipairs { model { node(evil, { "x" }, { "y" }) },
      model { node("Add", { evil, "x" }, { "y" }) }, model({ node("Relu", { "x" }, { evil }) }),
      model { node("Relu", { "x" }, { "y" }, nil, { domain = evil }) },
      model { node("Add", { "x", "w" }, { "y" }, { { name = evil, i = 1, type = 2 } }) },
      model(good, weight { name = evil, dims = { 3 } }),
      model(good, { output = { info(evil, {}) } }),
      model(good, { initializer = { { name = evil, dims = { 2 }, data_type = 1, data_location = 1,
        external_data = { { key = "location", value = "/" .. evil } } } } }),
    } do
      files.write("bad.onnx", bytes)
      files.refusal(path, moth.onnx.load, path)
    end
    files.write("bad.onnx", model({ node("Relu", { evil }, { "y" }) },
      { input = { info(evil, { evil }) } }))
    files.refusal("", moth.onnx.load(path), 3)
    files.write("bad.onnx", model { node("Pad", { "x", "w" }, { "y" }, { { name = "mode", s = evil,
      type = 3 } }, { name = evil }) })
    files.refusal(path, moth.onnx.load(path), moth.ones(2))
  end)

  it("that is complete is read", function()
    local net = moth.onnx.load(files.write("good.onnx", model(good)))
    assert.same({ 3, 4 }, net(moth.tensor { 2, 3 }):tolist())
    assert.equal(1, #net:parameters())
  end)

  for _, case in ipairs(hostile) do
    it("raises an error: " .. case[1], function()
      local ok, problem = pcall(moth.onnx.load, files.write("bad.onnx", case[2]))
      assert.is_false(ok)
      assert.is_truthy(problem:find("bad argument 'path' to 'onnx.load'", 1, true), problem)
      assert.is_truthy(problem:find(case[3]), problem)
      assert.equal(case[4] or "E_FORMAT", moth.errcode())
    end)
  end

  it("that is cut anywhere, or has a wrong byte, raises or is another net", function()
    local whole = files.read(FOLDER .. "mobilenet_new.onnx")
    local x = of("mobilenet_new", "/in/")[1]
    local function try(bytes)
      local ok, net = pcall(moth.onnx.load, files.write("bad.onnx", bytes))
      if ok then ok, net = pcall(net, x) end
      if not ok then assert.is_string(net) end
    end
    for size = 0, #whole - 1, 13 do try(whole:sub(1, size)) end
    local seed = 1
    for _ = 1, 300 do
      seed = seed * 16807 % 2147483647
      local at = seed % #whole + 1
      try(whole:sub(1, at - 1) .. string.char(seed % 251) .. whole:sub(at + 1))
    end
  end)

  it("may have weights in another file of its folder", function()
    files.write("w.data", "1234" .. F4 .. F4)
    local entries = { { key = "location", value = "w.data" }, { key = "offset", value = "4" },
                      { key = "length", value = "8" } }
    local path = files.write("beside.onnx", model(good, { initializer = { { name = "w",
      dims = { 2 }, data_type = 1, data_location = 1, external_data = entries } } }))
    assert.same({ 3, 4 }, moth.onnx.load(path)(moth.tensor { 2, 3 }):tolist())
    files.write("w.data", "1234")
    assert.has_error(function() moth.onnx.load(path) end)
  end)

  it("may have numbers in lists, and names that are no Lua names", function()
    for _, t in ipairs { { float_data = F4 .. F4, data_type = 1 }, { int32_data = { 1, 1 },
        data_type = 6 }, { int64_data = { 1, 1 }, data_type = 7 } } do
      t.name, t.dims = "forward.a..b", { 2 }
      local nodes = { node("Cast", { t.name }, { "z" }, { { name = "to", i = 1, type = 2 } }),
                      node("Add", { "x", "z" }, { "y" }) }
      local net = moth.onnx.load(files.write("lists.onnx", model(nodes, { initializer = { t } })))
      assert.same({ 3, 4 }, net(moth.tensor { 2, 3 }):tolist())
    end
  end)

  it("that fails at run time names the node", function()
    local net = moth.onnx.load(files.write("fails.onnx", model {
      node("Constant", {}, { "s" }, { { name = "value_ints", ints = { 3, 3 }, type = 7 } }),
      node("Reshape", { "x", "s" }, { "y" }) }))
    local ok, problem = pcall(net, moth.ones(2))
    assert.is_false(ok)
    assert.is_truthy(problem:find "in node 'reshape', Reshape, of .*fails.onnx", problem)
    assert.is_truthy(problem:find("onnx_load_spec.lua:", 1, true), problem)
  end)
end)

-- A model of these nodes and weights, (name, dims) each, of ones; x has the given dims.
local function net_of(nodes, weights, dims, kind)
  local list = {}
  for i, w in ipairs(weights) do
    local n = 1
    for _, size in ipairs(w[2]) do n = n * size end
    list[i] = { name = w[1], dims = w[2], data_type = 1, raw_data = F4:rep(n) }
  end
  return moth.onnx.load(files.write("of.onnx", model(nodes, { initializer = list,
    input = { info("x", dims, kind) } })))
end

describe("a Slice", function()
  local function slice(first, last, step)
    local names, nodes = { "x", "s", "e", "a", "t" }, {}
    for i, value in ipairs { first, last, 0, step } do
      nodes[i] = node("Constant", {}, { names[i + 1] },
        { { name = "value_ints", ints = { value }, type = 7 } })
    end
    nodes[5] = node("Slice", names, { "y" })
    return net_of(nodes, {}, { 5 })(moth.arange(5):float()):tolist()
  end

  it("has steps in both directions, and bounds outside of the tensor", function()
    assert.same({ 1, 3 }, slice(1, 4, 2))
    assert.same({ 4, 2, 0 }, slice(9, -9, -2))
    assert.same({ 3, 2 }, slice(-2, 1, -1))
    assert.same({ 0 }, slice(-8, -9, -2))
    assert.same({}, slice(3, 1, 2))
    assert.has_error_like(function() slice(0, 5, 0) end, "steps of 0")
  end)
end)

describe("the parameters of a loaded net", function()
  local function names(net)
    local list = {}
    for name in net:named_parameters() do list[#list + 1] = name end
    return list
  end

  it("do not include a single number that the exporter named", function()
    for _, name in ipairs { "val_68", "onnx::Mul_3", "constant_1" } do
      local net = net_of({ node("Mul", { "x", name }, { "y" }) }, { { name, { 1 } } }, { 2 })
      assert.same({}, names(net))
      assert.same({ 2, 3 }, net(moth.tensor { 2, 3 }):tolist())
    end
    for _, name in ipairs { "scale", "fc.bias" } do
      local net = net_of({ node("Mul", { "x", name }, { "y" }) }, { { name, { 1 } } }, { 2 })
      assert.same({ name }, names(net))
    end
    local net = load "vit_new"
    assert.is_nil(net.val_58)
    assert.same({ 8, 24 }, { unpack(net.val_13.shape) }) -- a transposed weight
    assert.is_nil(load("bert_new").zeros_like)
  end)

  it("do not include the initial state of a recurrent net", function()
    local net = load "recurrent_new"
    assert.is_nil(net.val_16)
    assert.is_nil(net.val_243)
    assert.is_truthy(net.val_109) -- gates, in ONNX's order
    for layers = 1, 2 do
      moth.onnx.export(nn.LSTM(2, 3, layers), moth.randn(4, 1, 2), files.path "lstm.onnx")
      local back = moth.onnx.load(files.path "lstm.onnx")
      assert.equal(3 * layers, #back:parameters())
      for _, p in ipairs(back:parameters()) do assert.is_true(p:abs():sum():item() > 0) end
    end
    local Begun = nn.class("Begun", nn.Module)
    function Begun:init() self.gru, self.h = nn.GRU(2, 3), nn.Parameter(moth.zeros(1, 1, 3)) end
    function Begun:forward(x) return (self.gru(x, self.h)) end
    moth.onnx.export(Begun(), moth.randn(4, 1, 2), files.path "begun.onnx")
    assert.is_truthy(moth.onnx.load(files.path "begun.onnx").h)
  end)
end)

describe("an error of a loaded net", function()
  local I64 = 7

  local function error_of(net, input)
    local ok, problem = pcall(net, input)
    assert.is_false(ok)
    return problem
  end

  it("counts positions as the caller does", function()
    local net = net_of({ node("Gather", { "w", "x" }, { "y" }) }, { { "w", { 4, 2 } } }, { 1 }, I64)
    for _, at in ipairs { 4, 25 } do
      local problem = error_of(net, moth.tensor({ at }):long())
      assert.is_truthy(problem:find("position " .. at .. " (from 0) is out of range", 1, true),
        problem)
      assert.equal("E_INDEX", moth.errcode())
    end
    assert.is_truthy(error_of(net, moth.tensor({ -5 }):long()):find "a negative position is before")
    net = net_of({ node("GatherElements", { "w", "x" }, { "y" }) }, { { "w", { 4 } } }, { 1 }, I64)
    local problem = error_of(net, moth.tensor({ 4 }):long())
    assert.is_truthy(problem:find("position 4 (from 0) is out of range", 1, true), problem)
  end)

  it("has the line and the module's path once", function()
    local net = net_of({ node("MatMul", { "x", "w" }, { "y" }) }, { { "w", { 3, 2 } } }, { 2 })
    for _, case in ipairs { { net, "OnnxModule" }, { nn.Sequential(net), "Sequential%[1%]" } } do
      local problem = error_of(case[1], moth.ones(2))
      assert.is_truthy(problem:find("_spec.lua:%d+: in " .. case[2] .. ": bad argument"), problem)
      local _, lines = problem:gsub("onnx_load_spec.lua:", "")
      assert.equal(1, lines)
    end
  end)
end)

-- ---- weights in separate files ----

local function outside(name, dims, offset, kind)
  return { name = name, dims = dims, data_type = kind or 1, data_location = 1, external_data = {
    { key = "location", value = "w.bin" }, { key = "offset", value = tostring(offset) } } }
end

local both = { node("Add", { "x", "w" }, { "z" }), node("Mul", { "z", "v" }, { "y" }) }

describe("weights in a file next to the model", function()
  local function both_of(v, options)
    return moth.onnx.load(files.write("out.onnx", model(both,
      { initializer = { outside("w", { 2 }, 4), v } })), options)
  end

  it("are read from their offset, and are separate tensors", function()
    local path = files.write("w.bin", "skip" .. F4 .. F4 .. F4)
    for _, mmap in ipairs { true, false } do
      for _, offset in ipairs { 4, 8 } do -- all bytes of w, and more
        local net = both_of(outside("v", { 2 }, offset), { mmap = mmap })
        moth.no_grad(function() net.w:fill_(7) end)
        assert.same({ 1, 1 }, net.v:tolist())
        assert.same({ 8, 9 }, net(moth.tensor { 1, 2 }):tolist())
      end
    end
    assert.equal("skip" .. F4 .. F4 .. F4, files.read(path))
  end)

  it("raise with their names if the file does not have them", function()
    files.write("w.bin", "skip" .. F4 .. F4)
    for _, offset in ipairs { 8, -4, 0.5, 1e300, "x" } do
      assert.error_matches(function() both_of(outside("v", { 2 }, offset)) end,
        "'w.bin' ends within the tensor 'v'")
    end
  end)

  it("may be beyond 2 GiB, and larger; unused ones are not read", function()
    if jit.os == "Windows" then return end -- Windows reads files
    local file = assert(io.open(files.path "w.bin", "wb"))
    file:seek("set", 3 * 2 ^ 30 - 4) -- a hole in the file
    file:write(F4)
    file:close()
    moth.collect()
    local before = moth.memory().live_bytes
    local net = both_of(outside("v", { 3 * 2 ^ 28 - 3 }, 12))
    assert.equal(1, net.v[-1]:item())
    assert.is_true(moth.memory().live_bytes - before < 2 ^ 20)
    os.remove(files.path "w.bin")
  end)
end)

describe("a node with very many outputs", function()
  it("is split into them, up to the limit of a call", function()
    local function split(n)
      local names = {}
      for i = 1, n do names[i] = i == n and "y" or "y" .. i end
      local axes = { { name = "axis", i = 0, type = 2 }, { name = "num_outputs", i = n, type = 2 } }
      return moth.onnx.load(files.write("split.onnx", model({ node("Split", { "x" }, names, axes) },
        { opset = 18, input = { info("x", { n }) }, output = { info("y", { 1 }) },
          initializer = {} })))
    end
    assert.same({ 3999 }, split(4000)(moth.arange(4000):float()):tolist())
    assert.error_matches(function() split(4001) end, "4001 outputs; at most 4000 are supported")
  end)
end)

describe("help", function()
  it("knows the functions of files", function()
    assert.is_truthy(moth.help and require("moth.help").text("moth.onnx.load"):find(
      "^moth.onnx.load%(path, mmap = true%)"))
    local text = require("moth.help").text "moth.onnx.export"
    assert.is_truthy(text:find("^moth.onnx.export%(net, args, path, .-%) %-> nothing"), text)
    assert.is_truthy(require("moth.help").text("onnx"):find "export")
  end)
end)

describe("load", function()
  it("needs a path to a file", function()
    assert.error_matches(function() moth.onnx.load() end, "'path' to 'onnx.load' %(a string")
    assert.error_matches(function() moth.onnx.load(3) end, "a string is needed, got 3")
    assert.error_matches(function() moth.onnx.load "/nowhere.onnx" end, "No such file")
    assert.error_matches(function() moth.onnx.load "/" end, "is a directory")
    assert.error_matches(function() return moth.onnx.loda end,
      "moth.onnx has no 'loda'; did you mean 'load'")
  end)
end)

it("nodes that no output needs are not run", function()
  local models = require "spec.support.onnx_models"
  local nodes = {models.node("Neg", "x", "a"), models.node("Gather", "x far", "b"),
    models.node("Neg", "b", "c"), models.node("Neg", "a", "y")}
  local net = models.load(models.graph(nodes, "x", "y", {far = moth.tensor {9LL}}), {moth.ones(2)})
  assert.same({3, 4}, net(moth.tensor {3, 4}):tolist())
  net = models.load(models.graph(nodes, "x", "y c", {far = moth.tensor {9LL}}), {moth.ones(2)})
  assert.has_error_like(function() net(moth.tensor {3, 4}) end, "Gather")
end)
