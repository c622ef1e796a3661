--- proto.lua -- the messages of ONNX files, by the field names of onnx.proto, and the codes in
-- them. io/protobuf.lua reads and writes them; for a weight it stores only the position of the
-- bytes.
--
-- Format: onnx/onnx.proto (IR version 11).

local protobuf = require "moth.io.protobuf"

-- ---- the fields: number -> {name, type, repeated} ----

local proto = protobuf.codec("ONNX", {
  Model = {[1] = {"ir_version", "int"}, [2] = {"producer_name", "text"},
    [3] = {"producer_version", "text"}, [7] = {"graph", "Graph"},
    [8] = {"opset_import", "Opset", true}, [25] = {"functions", "Function", true}},
  Opset = {[1] = {"domain", "text"}, [2] = {"version", "int"}},
  Function = {[1] = {"name", "text"}, [4] = {"input", "text", true},
    [5] = {"output", "text", true}, [7] = {"node", "Node", true},
    [9] = {"opset_import", "Opset", true}, [10] = {"domain", "text"},
    [11] = {"attribute_proto", "Attribute", true}},
  Graph = {[1] = {"node", "Node", true}, [2] = {"name", "text"},
    [5] = {"initializer", "Tensor", true}, [11] = {"input", "ValueInfo", true},
    [12] = {"output", "ValueInfo", true}, [15] = {"sparse_initializer", "Sparse", true}},
  Sparse = {},
  Node = {[1] = {"input", "text", true}, [2] = {"output", "text", true},
    [3] = {"name", "text"}, [4] = {"op_type", "text"}, [5] = {"attribute", "Attribute", true},
    [7] = {"domain", "text"}},
  Attribute = {[1] = {"name", "text"}, [2] = {"f", "float"}, [3] = {"i", "int"},
    [4] = {"s", "text"}, [5] = {"t", "Tensor"}, [6] = {"g", "Graph"},
    [7] = {"floats", "float", true}, [8] = {"ints", "int", true},
    [9] = {"strings", "text", true}, [20] = {"type", "int"},
    [21] = {"ref_attr_name", "text"}},
  ValueInfo = {[1] = {"name", "text"}, [2] = {"type", "Type"}},
  Type = {[1] = {"tensor_type", "TensorType"}},
  TensorType = {[1] = {"elem_type", "int"}, [2] = {"shape", "Shape"}},
  Shape = {[1] = {"dim", "Dim", true}},
  Dim = {[1] = {"dim_value", "int"}, [2] = {"dim_param", "text"}},
  Entry = {[1] = {"key", "text"}, [2] = {"value", "text"}},
  Tensor = {[1] = {"dims", "int", true}, [2] = {"data_type", "int"},
    [4] = {"float_data", "bytes"}, [5] = {"int32_data", "int", true},
    [7] = {"int64_data", "int64", true}, [8] = {"name", "text"}, [9] = {"raw_data", "place"},
    [10] = {"double_data", "bytes"}, [11] = {"uint64_data", "int64", true},
    [13] = {"external_data", "Entry", true}, [14] = {"data_location", "int"}},
})

--- Codes of element types in files, by Moth's dtype, and the reverse; and the C type of an element
-- (half types: their bits).
proto.types = {[0] = 9, 2, 3, 5, 6, 7, 10, 16, 1, 11}
proto.dtypes = {}
for code, number in pairs(proto.types) do proto.dtypes[number] = code end
proto.ctypes = {[0] = "uint8_t", "uint8_t", "int8_t", "int16_t", "int32_t", "int64_t", "uint16_t",
                 "uint16_t", "float", "double"}

--- Codes of attribute types in files, by the field that holds the value.
proto.attribute_types = {f = 1, i = 2, s = 3, t = 4, g = 5, floats = 6, ints = 7, strings = 8}

local TYPES = {[0] = "undefined", "float32", "uint8", "int8", "uint16", "int16", "int32", "int64",
  "string", "bool", "float16", "float64", "uint32", "uint64", "complex64", "complex128", "bfloat16",
  "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4", "int4", "float4e2m1",
  "float8e8m0", "uint2", "int2"}

--- The name of an element type in files.
function proto.type_name(number) return TYPES[number] or tostring(number) end

return proto
