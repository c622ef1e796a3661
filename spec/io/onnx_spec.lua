-- moth.onnx.export: the exported file, read again, has the same results (spec/golden/check_onnx.py
-- compares with onnxruntime, by hand). Named sizes may vary. Unsupported ops raise an error that
-- names the op and the module.

local moth = require "moth"
local proto = require "moth.onnx.proto"
local cases = require "spec.support.onnx_cases"
local runs = require "spec.support.onnx_runs"
local files = require "spec.support.files"

local nn, F = moth.nn, moth.nn.functional
local path_of = files.path

setup(files.setup)
teardown(files.teardown)

local x = moth.randn(4, 2)

local function same(got, wanted)
  assert.equal(#wanted, #got)
  for i, y in ipairs(wanted) do
    assert.equal(y.dtype, got[i].dtype)
    assert.same({ unpack(y.shape) }, { unpack(got[i].shape) })
    assert.is_true(moth.allclose(got[i], y, { rtol = 1e-4, atol = 1e-5, equal_nan = true }))
  end
end

local function model_of(path)
  local file = require("moth.io.bytes").open(path, "spec")
  return proto.decode(file, "Model", 0, file.size)
end

local function export(net, args, options)
  local path = path_of "net.onnx"
  options = options or {}
  options.opset_version = options.opset_version or 17
  moth.onnx.export(net, args, path, options)
  return path
end

describe("a net exported and read again", function()
  for i, case in ipairs(cases) do
    it(("has the same results: %d, %s"):format(i, case[1]), function()
      local _, net, args, options = unpack(case)
      if type(net) ~= "function" then net:eval() end
      local back = moth.onnx.load(export(net, args, options))
      same(runs.outputs(back, runs.inputs(args)), runs.outputs(net, args))
      if not options.dynamic_axes then return end
      local other = runs.longer(args, options)
      same(runs.outputs(back, runs.inputs(other)), runs.outputs(net, other))
    end)
  end
end)

describe("an exported net", function()
  it("has its parameters under their names in the state_dict", function()
    local net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)):eval()
    local back = moth.onnx.load(export(net, x))
    local wanted = net:state_dict()
    for name, y in back:state_dict():items() do assert.is_true(moth.equal(y, wanted[name])) end
    assert.equal(#net:parameters(), #back:parameters())
    back:load_state_dict(net:state_dict(), { strict = false })
  end)

  it("is run in eval mode, and has its own mode afterwards, also after an error", function()
    local net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.BatchNorm1d(2))
    net[2]:eval()
    export(net, x)
    assert.is_true(net.training and net[1].training and not net[2].training and net[3].training)
    assert.has_error(function() export(net, moth.ones(2, 3)) end)
    assert.is_true(net.training and not net[2].training)
    assert.equal(0, net[3].num_batches_tracked:item())
  end)

  it("keeps its gradients and the grad mode", function()
    local net = nn.Linear(2, 1)
    net(x):sum():backward()
    local grad = net.weight.grad:clone()
    export(net, x)
    assert.is_true(moth.equal(net.weight.grad, grad) and moth.is_grad_enabled())
  end)

  it("names inputs, outputs and axes", function()
    local net = nn.Linear(2, 3)
    local graph = model_of(export(net, x, { input_names = { "data" }, output_names = { "scores" },
      dynamic_axes = { data = { [1] = "batch" } } })).graph
    assert.equal("data", graph.input[1].name)
    assert.equal("scores", graph.output[1].name)
    local dims = graph.output[1].type.tensor_type.shape.dim
    assert.equal("batch", dims[1].dim_param)
    assert.equal(3, dims[2].dim_value)
  end)

  it("may also name axes by a list, and dims from the end", function()
    local graph = model_of(export(nn.ReLU(), x, { dynamic_axes = { input = { 1, 2 } } })).graph
    assert.equal("input_dynamic_axes_2", graph.output[1].type.tensor_type.shape.dim[2].dim_param)
    graph = model_of(export(nn.ReLU(), x, { dynamic_axes = { input = { [-1] = "wide" } } })).graph
    assert.equal("wide", graph.output[1].type.tensor_type.shape.dim[2].dim_param)
    assert.equal(4, graph.output[1].type.tensor_type.shape.dim[1].dim_value)
  end)

  it("names the opset that it needs", function()
    for opset = 17, 21 do
      assert.equal(opset, model_of(export(nn.ReLU(), x, { opset_version = opset })).opset_import[1]
        .version)
    end
  end)

  it("has no node that no output needs, and each parameter once", function()
    local linear = nn.Linear(2, 2)
    local graph = model_of(export(function(y)
      local _ = y:exp():sum()
      return linear(linear(y)) + moth.ones(2) * 0
    end, x)).graph
    assert.equal(3, #graph.node)
    assert.equal(3, #graph.initializer)
  end)

  it("has the mean of var_mean only if the net uses it", function()
    for name, wanted in pairs { var = 1, std = 1, var_mean = 2, std_mean = 2 } do
      local means = 0
      for _, node in ipairs(model_of(export(function(y) return moth[name](y, 1) end, x)).graph.node)
      do
        if node.op_type == "ReduceMean" then means = means + 1 end
      end
      assert.equal(wanted, means, name)
    end
  end)

  it("may be a function of tensors in lists, with other arguments", function()
    local function f(pair, scale, last) return pair[1] * scale + pair[2] - last end
    local back = moth.onnx.load(export(f, { { x, x * 2 }, 3, x }))
    assert.is_true(moth.allclose(back(x, x * 2, x), x * 4))
  end)

  it("may return an input, one tensor twice, or a constant", function()
    local back = moth.onnx.load(export(function(y) return y, y, moth.ones(2), y:detach() end, x))
    same({ back(x) }, { x, x, moth.ones(2), x })
  end)

  it("may write whole tensors in place, and parts of constants", function()
    same({ moth.onnx.load(export(function(y)
      local z, c = y * 1, moth.zeros(4, 2)
      c[{ 1 }] = 5
      z:add_(1):mul_(c)
      return z:relu_()
    end, x))(x) }, { ((x + 1) * moth.tensor { { 5 }, { 0 }, { 0 }, { 0 } }):relu() })
  end)

  it("accepts strided and empty examples, half types and float64", function()
    local net = nn.Linear(2, 3)
    same({ moth.onnx.load(export(net, moth.randn(2, 4):t()))(x) }, { net(x):detach() })
    assert.same({ 0, 3 }, { unpack(moth.onnx.load(export(net, moth.zeros(0, 2)))(moth.zeros(0, 2))
      .shape) })
    net:half()
    same({ moth.onnx.load(export(net, x:half()))(x:half()) }, { net(x:half()):detach() })
    net:double()
    same({ moth.onnx.load(export(net, x:double()))(x:double()) }, { net(x:double()):detach() })
  end)

  it("is written completely or not at all", function()
    local path = path_of "kept.onnx"
    moth.onnx.export(nn.ReLU(), x, path)
    local before = files.read(path)
    assert.has_error(function() moth.onnx.export(function(y) return moth.linalg.inv(y) end,
      moth.eye(2), path) end)
    assert.equal(before, files.read(path))
  end)

  it("leaks no tensor", function()
    local net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    local function once() export(net, x, { dynamic_axes = { input = { "batch" } } }) end
    once()
    moth.collect()
    local before = moth.memory().live_tensors
    once()
    moth.collect()
    assert.equal(before, moth.memory().live_tensors)
  end)
end)

describe("an unsupported net", function()
  local P = os.tmpname()
  teardown(function() os.remove(P) end)

  local lin, outer = nn.Linear(2, 3), moth.zeros(4, 2)
  local batch = { dynamic_axes = { input = { "batch" } } }
  local bad = { -- name, net, args, options, the error
    { "no net", 3, x, nil, "argument 'net' .*a module or a function is needed, got 3" },
    { "no args", lin, "x", nil, "argument 'args' .*got a string" },
    { "no tensor", lin, { 3 }, nil, "argument 'args' .*it contains no tensor" },
    { "args by name", lin, { { x = x } }, nil, "argument 'args' .*a table with 'x'" },
    { "names that are no list", lin, x, { input_names = "x" }, "'input_names' .*a list of names" },
    { "too many names", lin, x, { input_names = { "a", "b" } }, "2 names for 1 tensor" },
    { "a name twice", moth.add, { x, x }, { input_names = { "a", "a" } }, "'a' occurs twice" },
    { "too many outputs", lin, x, { output_names = { "a", "b" } }, "2 names for 1 tensor" },
    { "a name that is a number", lin, x, { input_names = { 3 } }, "strings are needed, got 3" },
    { "an output with an input's name", lin, x, { output_names = { "input" } },
      "'output_names' .*'input' is the name of an input" },
    { "an input with a parameter's name", lin, x, { input_names = { "weight" } },
      "'input_names' .*'weight' is the name of a parameter" },
    { "an axis of nothing", lin, x, { dynamic_axes = { inptu = { "b" } } },
      "'dynamic_axes' .*there is no input 'inptu'; did you mean 'input'" },
    { "an axis without braces", lin, x, { dynamic_axes = { input = "b" } }, "such as {'batch'}" },
    { "an axis too many", lin, x, { dynamic_axes = { input = { [3] = "b" } } },
      "'input' has dimensions 1 to 2, got 3" },
    { "an axis that the net fixes", lin, x, { dynamic_axes = { input = { [2] = "b" } } },
      "'dynamic_axes' .*the net fails: .*2 features" },
    { "a step that is no integer", lin, x, { dynamic_axes = { input = { [1] = { step = 1.5 } } } },
      "a step is an integer from 1 on, got 1.5" },
    { "an axis with another field", lin, x, { dynamic_axes = { input = { [1] = { size = 2 } } } },
      "an axis of 'input' has a name and a step, got 'size'" },
    { "no weights", lin, x, { export_params = false },
      "'export_params' .*the file always contains the weights" },
    { "axes of two sizes", moth.add, { x, x[{ { 1, 1 } }] },
      { dynamic_axes = { input_1 = { "b" }, input_2 = { "b" } } },
      "axis 'b' has the sizes 4 and 1 in the inputs" },
    { "an opset from before", lin, x, { opset_version = 9 }, "17 to 21 are supported, got 9" },
    { "a misspelt option", lin, x, { input_name = { "x" } },
      "no argument 'input_name'; did you mean 'input_names'" },
    { "half an option's name", lin, x, { opset = 17 },
      "no argument 'opset'; did you mean 'opset_version'" },
    { "an op without a node", function(y) return moth.linalg.inv(y) end, moth.eye(2), nil,
      "'linalg_inv' in net cannot be written: Moth has no ONNX node" },
    { "an op in a module", nn.Sequential(nn.ReLU(), nn.Sequential(nn.ReLU(),
      nn.MaxPool2d(2, { return_indices = true }))), moth.ones(1, 1, 2, 2), nil,
      "'max_pool2d' in net%[2%]%[2%] cannot be written: ONNX numbers the positions" },
    { "random numbers", function(y) return y + moth.randn(2) end, x, nil, "it reads random" },
    { "dropout in training", function(y) return F.dropout(y) end, x, nil, "it draws random" },
    { "random numbers of the input's shape", function(y) return y + moth.rand_like(y) end, x, nil,
      "it draws random numbers" },
    { "an input's values in a tensor from outside", function(y)
      outer[{ 1 }] = y[1]
      return outer * 2
    end, x, nil, "changed in place later" },
    { "a constant that changes later", function(y)
      local c = moth.zeros(2)
      local z = y + c
      c:add_(1)
      return z
    end, x, nil, "'add' in net cannot be written: .*changed in place" },
    { "no result", function() end, x, nil, "'net' .*it returns nothing" },
    { "a result that is no tensor", function() return 3 end, x, nil, "must return tensors, got 3" },
    { "results by name", function(y) return { y = y } end, x, nil, "a table with 'y'" },
    { "a loop over the batch", function(y)
      local sum = 0
      for i = 1, y:size(1) do sum = sum + y[i] end
      return sum
    end, x, batch, "the ops of the net depend on the sizes.*set a step" },
    { "a number made of a size", function(y) return y / math.sqrt(y:size(1)) end, x, batch,
      "a number is 2, .* for different sizes of the dynamic axes" },
    { "a table made of a size", function(y)
      local list = {}
      for i = 1, y:size(1) do list[i] = i * i end
      return y * moth.tensor(list):view(-1, 1)
    end, x, batch, "it reads a tensor that no op computed" },
    { "a variance over a free axis", function(y) return y:var(1) end, x, batch,
      "cannot depend on a dynamic axis" },
    { "a captured step", function(y) return moth.capture(function(z) return z * 2 end)(y) end, x,
      nil, "a captured step cannot be exported" },
    { "autocast", function(y)
      return moth.autocast("cpu", moth.bfloat16, function() return lin(y) end)
    end, x, nil, "the casts of autocast cannot be exported" },
    { "an export in an export", function(y)
      moth.onnx.export(lin, y, P)
      return y
    end, x, nil, "a function is being traced or logged already" },
  }
  for _, case in ipairs(bad) do
    it(case[1] .. " raises an error", function()
      local options = case[4] or { opset_version = 17 }
      local ok, problem = pcall(moth.onnx.export, case[2], case[3], P, options)
      assert.is_false(ok)
      assert.is_truthy(problem:find(case[5]), problem)
      assert.is_truthy(problem:find("onnx_spec.lua:", 1, true), problem)
      moth.onnx.export(lin, x, P) -- no file is left
    end)
  end

  it("raises with an error code", function()
    pcall(moth.onnx.export, nn.ReLU(), x, "/nowhere/net.onnx")
    assert.equal("E_IO", moth.errcode())
    pcall(moth.onnx.export, function(y) return moth.linalg.inv(y) end, moth.eye(2), P)
    assert.equal("E_UNSUPPORTED", moth.errcode())
  end)
end)

describe("values that a net reads during export", function()
  local warn, told = moth.warn, nil
  before_each(function()
    told = {}
    moth.warn = function(text) told[#told + 1] = text end -- luacheck: ignore 122
  end)
  after_each(function() moth.warn = warn end) -- luacheck: ignore 122

  it("cause a warning, once a line, if they depend on an input", function()
    export(function(y)
      for _ = 1, 2 do y = y * y:detach():max():item() end
      return y + y:tolist()[1][1]
    end, x)
    assert.equal(2, #told)
    for _, text in ipairs(told) do
      assert.is_truthy(text:find("at .*onnx_spec.lua:%d+ the net reads values"), text)
    end
  end)

  it("cause none if they do not", function()
    export(function(y) return y * moth.ones(2):sum():item() end, x)
    assert.same({}, told)
    assert.equal(2, moth.ones(2):sum():item())
  end)
end)
