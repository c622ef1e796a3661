--- messages.lua -- the messages of TensorBoard's event files, for io/protobuf.lua.
--
-- Format: tensorboard/compat/proto (event, summary, tensor, graph) and the plugins' plugin_data.

local protobuf = require "moth.io.protobuf"

return protobuf.codec("event", {
  Event = {[1] = {"wall_time", "double"}, [2] = {"step", "int"}, [3] = {"file_version", "text"},
    [4] = {"graph_def", "text"}, [5] = {"summary", "Summary"}, [7] = {"session_log", "SessionLog"}},
  SessionLog = {[1] = {"status", "int"}},
  Summary = {[1] = {"value", "Value", true}},
  Value = {[1] = {"tag", "text"}, [2] = {"simple_value", "float"}, [4] = {"image", "Image"},
    [5] = {"histo", "Histogram"}, [6] = {"audio", "Audio"}, [8] = {"tensor", "Tensor"},
    [9] = {"metadata", "Metadata"}},
  Image = {[1] = {"height", "int"}, [2] = {"width", "int"}, [3] = {"colorspace", "int"},
    [4] = {"encoded_image_string", "text"}},
  Histogram = {[1] = {"min", "double"}, [2] = {"max", "double"}, [3] = {"num", "double"},
    [4] = {"sum", "double"}, [5] = {"sum_squares", "double"}, [6] = {"bucket_limit", "bytes"},
    [7] = {"bucket", "bytes"}},
  Audio = {[1] = {"sample_rate", "float"}, [2] = {"num_channels", "int"},
    [3] = {"length_frames", "int"}, [4] = {"encoded_audio_string", "text"},
    [5] = {"content_type", "text"}},
  Metadata = {[1] = {"plugin_data", "PluginData"}, [4] = {"data_class", "int"}},
  PluginData = {[1] = {"plugin_name", "text"}, [2] = {"content", "text"}},
  Tensor = {[1] = {"dtype", "int"}, [2] = {"tensor_shape", "Shape"}, [5] = {"float_val", "bytes"},
    [6] = {"double_val", "bytes"}, [8] = {"string_val", "text", true}},
  Shape = {[2] = {"dim", "Dim", true}},
  Dim = {[1] = {"size", "int"}},
  -- hparams
  HParams = {[1] = {"version", "int"}, [2] = {"experiment", "Experiment"},
    [3] = {"session_start_info", "SessionStart"}, [4] = {"session_end_info", "SessionEnd"}},
  Experiment = {[4] = {"hparam_infos", "HParamInfo", true},
    [5] = {"metric_infos", "MetricInfo", true}},
  HParamInfo = {[1] = {"name", "text"}, [4] = {"type", "int"}, [5] = {"domain_discrete", "List"}},
  MetricInfo = {[1] = {"name", "MetricName"}},
  MetricName = {[2] = {"tag", "text"}},
  SessionStart = {[1] = {"hparams", "HParam", true}},
  SessionEnd = {[1] = {"status", "int"}},
  HParam = {[1] = {"key", "text"}, [2] = {"value", "Any"}},
  Any = {[2] = {"number_value", "double"}, [3] = {"string_value", "text"},
    [4] = {"bool_value", "int"}},
  List = {[1] = {"values", "Any", true}},
  -- other plugins
  PrCurve = {[2] = {"num_thresholds", "int"}},
  Layout = {[2] = {"category", "Category", true}},
  Category = {[1] = {"title", "text"}, [2] = {"chart", "Chart", true}},
  Chart = {[1] = {"title", "text"}, [2] = {"multiline", "Multiline"}, [3] = {"margin", "Margin"}},
  Multiline = {[1] = {"tag", "text", true}},
  Margin = {[1] = {"series", "Series", true}},
  Series = {[1] = {"value", "text"}, [2] = {"lower", "text"}, [3] = {"upper", "text"}},
  -- graphs
  Graph = {[1] = {"node", "Node", true}, [4] = {"versions", "Versions"}},
  Versions = {[1] = {"producer", "int"}},
  Node = {[1] = {"name", "text"}, [2] = {"op", "text"}, [3] = {"input", "text", true},
    [4] = {"device", "text"}, [5] = {"attr", "Attribute", true}},
  Attribute = {[1] = {"key", "text"}, [2] = {"value", "AttributeValue"}},
  AttributeValue = {[1] = {"list", "AttributeList"}, [2] = {"s", "text"}},
  AttributeList = {[7] = {"shape", "Shape", true}},
})
