--- moth.onnx -- reads and writes ONNX files.
--
--     moth.onnx.export(net, moth.randn(1, 3, 224, 224), "net.onnx")
--     local net = moth.onnx.load "net.onnx"
--     local y = net(moth.randn(1, 3, 224, 224))
--
-- export/: given.lua checks the arguments, call_log.lua reads the calls of a net, plan.lua
-- converts them to a graph (graph.lua) with the rows of elements, shapes, indexing, layers and
-- losses.lua.
-- load/: reader.lua checks a file (tensors.lua reads its tensors), init.lua builds a net that runs
-- the rows of the other files, one file for each subject; rows.lua lists the file of each op.
-- proto.lua defines the file format.

local bytes = require "moth.io.bytes"
local define = require "moth.binding.define"
local errors = require "moth.error"
local lazy = require "moth.base.lazy"
local lib = require "moth.binding.lib"
local given = require "moth.onnx.export.given"

local refuse = given.refuse

local onnx = {}

local MOST_BYTES = 2 ^ 31 - 1 -- of a message, in protobuf
local FIRST, LAST = 17, 21    -- opsets that export can write

--- Writes a net as an ONNX file. The net runs once on the examples, in eval mode and without
-- gradients; the ops that it calls become the graph. As with PyTorch's tracer, shapes, branches
-- and numbers are those of that run. Only sizes named in dynamic_axes may vary: the net then runs
-- twice more, on larger examples, to find the numbers that depend on them. A tensor that depends
-- on no input is a constant; parameters and buffers keep their names in the state_dict. Positions
-- and token ids in inputs and results count from 1, as everywhere in Moth: wrap the net to add or
-- subtract 1 if readers of the file count from 0.
-- @param net   a module, or a function of tensors
-- @param args  an example input; or a list of all arguments, tensors, lists of tensors and others
-- @param path  the file to write; written completely or not at all
-- @param input_names, output_names  lists of names, one for each tensor, with nested lists
-- flattened (defaults: "input", or "input_1" and so on; "output")
-- @param dynamic_axes  name of an input -> its dimensions whose sizes may vary, from 1: a list {1,
-- 2}, or names by dimension {[1] = "batch"}, or {"batch"} for the first. If a net takes only some
-- sizes, as a U-Net takes multiples of 16, write {[3] = {name = "height", step = 16}}; without a
-- step, steps that are powers of 2 are tried if the net fails at sizes that differ by 1
-- @param opset_version  17 to 21 (default 17)
-- @param export_params  must be true: the file always contains the weights
-- @param do_constant_folding  accepted as in PyTorch; values that depend on no input are always
-- constants
-- Raises E_UNSUPPORTED for an op without an ONNX counterpart, with the module's path; for a size
-- that cannot vary; for more than 2 GiB. Format: onnx.ai, "Open Neural Network Exchange
-- Intermediate Representation Specification".
onnx.export = define {
  name = "onnx.export",
  doc = [[
Writes a net as an ONNX file, by running it once on example inputs, in eval mode. Branches, and
numbers that item or tolist read, are those of that run (a warning names reads that depend on an
input). With dynamic_axes it also runs at two larger sizes, to find the numbers that depend on them;
a branch at other sizes is not seen. Positions and token ids count from 1, as in Moth.]],
  outputs = "nothing",
  examples = "moth.nn.Linear(2, 3), moth.randn(1, 2), os.tmpname()\n"
    .. "moth.nn.Linear(2, 3), {moth.randn(1, 2)}, os.tmpname(), "
    .. "{input_names = {'x'}, output_names = {'y'}, dynamic_axes = {x = {'batch'}}, "
    .. "opset_version = 18}",
  args = {
    {"any", "net", "a module, or a function of tensors"},
    {"any", "args", "an example input, or a list of all arguments"},
    {"string", "path", "the file to write"},
    {"any", "input_names", "names of the inputs, one for each tensor", optional = true},
    {"any", "output_names", "names of the results", optional = true},
    {"any", "dynamic_axes", "name of an input -> dimensions whose sizes may vary",
      optional = true},
    {"int", "opset_version", "17 to 21", default = FIRST},
    {"bool", "export_params", "must be true: the file always contains the weights", default = true},
    {"bool", "do_constant_folding", "accepted: values without inputs are always constants",
      default = true},
  },
  run = function(net, args, path, input_names, output_names, dynamic_axes, opset, params)
    local export = require "moth.onnx.export"
    if type(net) ~= "function" and not require("moth.nn").isinstance(net, require("moth.nn").Module)
    then
      refuse("net", "a module or a function is needed, got " .. errors.describe(net), "E_TYPE")
    end
    if opset < FIRST or opset > LAST then
      refuse("opset_version", ("%d to %d are supported, got %d"):format(FIRST, LAST,
        tonumber(opset)), "E_UNSUPPORTED")
    end
    if not params then
      refuse("export_params", "the file always contains the weights, got false", "E_UNSUPPORTED")
    end
    if lib.istensor(args) then args = {args} end
    if not lib.is_plain(args) then
      refuse("args", "a tensor or a list of arguments is needed, got " .. errors.describe(args),
        "E_TYPE")
    end
    local list = {n = table.maxn(args)}
    for i = 1, list.n do list[i] = args[i] end
    local inputs = export.inputs(list)
    if #inputs == 0 then refuse("args", "it contains no tensor", "E_TYPE") end
    local names = given.names(input_names, #inputs, "input_names", "input")
    local function outputs(n) return given.names(output_names, n, "output_names", "output") end
    local model = export.model(net, list, {input_names = names, output_names = outputs,
      axes = given.axes(dynamic_axes, names, inputs, output_names), opset = tonumber(opset)})
    local proto = require "moth.onnx.proto"
    local pieces = proto.encode("Model", model)
    if pieces.size > MOST_BYTES then
      refuse("net", ("%.1f GiB are too large for an ONNX file; external data is not supported")
        :format(pieces.size / 2 ^ 30), "E_UNSUPPORTED")
    end
    bytes.save(path, pieces, "onnx.export")
  end,
}

return (lazy.namespace("moth.onnx", onnx, {load = {"moth.onnx.load", "load"}}))
