-- SummaryWriter, CSVLogger and JSONLogger: refusals at both sides of each bound, default folders,
-- curves counted by hand, options of each call.

local ffi = require "ffi"
local lfs = require "lfs"
local moth = require "moth"
local files = require "spec.support.files"
local json = require "moth.json"

local tb, utils, plot = moth.utils.tensorboard, moth.utils, moth.plot

setup(files.setup)
teardown(files.teardown)

local number = 0
local function new_folder()
  number = number + 1
  return files.path("details" .. number)
end

local function check(text, f)
  local ok, problem = pcall(f)
  assert.is_false(ok, "was taken: " .. text)
  local message = tostring(type(problem) == "table" and problem.message or problem)
  if not message:find(text, 1, true) then error(message .. "\nlacks: " .. text, 2) end
end

-- The first values of the events that f adds.
local function values(f)
  local writer = tb.SummaryWriter(new_folder())
  local path = writer.file.path
  writer:with(f)
  local list = {}
  for event in tb.read(path) do
    if event.summary then list[#list + 1] = event.summary.value[1] end
  end
  return list
end

describe("a writer refuses:", function()
  local writer
  setup(function() writer = tb.SummaryWriter(new_folder()) end)
  teardown(function() writer:close() end)
  local x = moth.ones(3, 4, 4)
  local wide, narrow = plot.lines {{1, 2}, width = 300}, plot.lines {{1, 2}, width = 200}
  for _, row in ipairs {
    {"'bucket_counts' to 'add_histogram_raw' (2 counts for 3 limits",
      function() writer:add_histogram_raw("a", 0, 1, 2, 1, 1, {1, 2, 3}, {1, 1}) end},
    {"'predictions' to 'add_pr_curve' (3 predictions for 2 labels",
      function() writer:add_pr_curve("a", moth.ones(2), moth.ones(3)) end},
    {"'snd_tensor' to 'add_audio' (samples (L) or (1, L) are needed, got f32 (2, 3)",
      function() writer:add_audio("a", moth.ones(2, 3)) end},
    {"'mat' to 'add_embedding' (vectors (N, D) are needed, got f32 (3)",
      function() writer:add_embedding(moth.ones(3)) end},
    {"'metadata' to 'add_embedding' (1 label for 2 vectors",
      function() writer:add_embedding(moth.ones(2, 2), {"a"}) end},
    {"'label_img' to 'add_embedding' (f32 (3, 4, 4) for 2 vectors; (N, C, H, W) is needed",
      function() writer:add_embedding(moth.ones(2, 2), nil, x) end},
    {"'label_img' to 'add_embedding' (f32 (1, 3, 4, 4) for 2 vectors",
      function() writer:add_embedding(moth.ones(2, 2), nil, x:unsqueeze(1)) end},
    {"'model' to 'add_graph' (a module is needed, got 3",
      function() writer:add_graph(3, moth.ones(1)) end},
    {"'input_to_model' to 'add_graph' (a tensor or a list of tensors is needed, got 3",
      function() writer:add_graph(moth.nn.Identity(), {moth.ones(1), 3}) end},
    {"'input_to_model' to 'add_graph' (a tensor or a list of tensors is needed",
      function() writer:add_graph(moth.nn.Identity(), 3) end},
    {"'figure' to 'add_figure' (a figure of moth.plot is needed, got 3",
      function() writer:add_figure("a", 3) end},
    {"'figure' to 'add_figure' (a figure of moth.plot is needed",
      function() writer:add_figure("a", {}) end},
    {"'figure' to 'add_figure' (a figure of moth.plot is needed, got 3",
      function() writer:add_figure("a", {wide, 3}) end},
    {"'figure' to 'add_figure' (the figures differ in width: 300 and 200",
      function() writer:add_figure("a", {wide, narrow}) end},
    {"'labels' to 'add_image_with_boxes' (2 labels for 1 box", function()
      writer:add_image_with_boxes {"a", x, moth.ones(1, 4), labels = {"a", "b"}}
    end},
    {"'box_tensor' to 'add_image_with_boxes' (boxes (N, 4) are needed, got f32 (4)",
      function() writer:add_image_with_boxes("a", x, moth.ones(4)) end},
    {"'img_tensor' to 'add_image' (f32 (2, 2) does not have the dimensions of dataformats 'CHW'",
      function() writer:add_image("a", moth.ones(2, 2)) end},
    {"'img_tensor' to 'add_image' (1 to 4 channels and at least one pixel are needed, got f32 "
      .. "(0, 4,"
      .. " 4) in dataformats 'CHW'", function() writer:add_image("a", moth.ones(0, 4, 4)) end},
    {"'img_tensor' to 'add_image' (1 to 4 channels and at least one pixel are needed",
      function() writer:add_image("a", moth.ones(3, 0, 4)) end},
    {"'dataformats' to 'add_image' (a permutation of HWC is needed for a tensor of 3 dimensions, "
      .. "got 'CHX'", function() writer:add_image {"a", x, dataformats = "CHX"} end},
    {"'layout' to 'add_custom_scalars' (chart 'c' needs {\"Multiline\", {tags}} or {\"Margin\", "
      .. "{value, lower, upper}}",
      function() writer:add_custom_scalars {k = {c = {"Margin", {"a", "b"}}}} end},
    {"'layout' to 'add_custom_scalars' (chart 'c' needs",
      function() writer:add_custom_scalars {k = {c = {"Multiline", "a"}}} end},
    {"'layout' to 'add_custom_scalars' (names are needed, got 1",
      function() writer:add_custom_scalars {{c = {"Multiline", {"a"}}}} end},
    {"'hparam_dict' to 'add_hparams' (numbers, strings, booleans and tensors of one element are "
      .. "possible, got", function() writer:add_hparams({a = print}, {}) end},
    {"'hparam_dict' to 'add_hparams' (names are needed, got 1",
      function() writer:add_hparams({3}, {}) end},
    {"'tag_scalar_dict' to 'add_scalars'", function() writer:add_scalars("a", {b = {}}) end},
  } do
    it(row[1], function() check("bad argument " .. row[1], row[2]) end)
  end
end)

describe("a writer", function()
  it("counts a precision-recall curve", function()
    -- Thresholds 0, 0.5, 1; weights 1, 2, 3, 4.
    local one = values(function(writer)
      writer:add_pr_curve {"c", moth.tensor {1, 0, 1, 0}, moth.tensor {0.2, 0.5, 0.9, 1},
        num_thresholds = 3, weights = moth.tensor {1, 2, 3, 4}}
    end)[1]
    local got, p = {}, ffi.cast("const float *", one.tensor.float_val)
    for i = 0, 17 do got[i + 1] = tonumber(p[i]) end
    local wanted = {4, 3, 0, 6, 6, 4, 0, 0, 2, 0, 1, 4, 4 / 10, 3 / 9, 0, 1, 3 / 4, 0}
    for i, v in ipairs(wanted) do assert.near(v, got[i], 1e-6, i) end
    local raw = values(function(writer)
      local function row(...) return moth.tensor {...} end
      writer:add_pr_curve_raw("c", row(4, 3, 0), row(6, 6, 4), row(0, 0, 2), row(0, 1, 4),
        row(0.4, 1 / 3, 0), row(1, 0.75, 0), nil, 3)
    end)[1]
    assert.equal(18, #raw.tensor.float_val / 4)
    for i = 0, 17 do
      assert.near(wanted[i + 1], tonumber(ffi.cast("const float *", raw.tensor.float_val)[i]), 1e-6)
    end
  end)

  it("has a folder of the date and the computer's name by default", function()
    local before = lfs.currentdir()
    local folder = new_folder()
    lfs.mkdir(folder)
    lfs.chdir(folder)
    local ok, problem = pcall(function()
      for _, Class in ipairs {tb.SummaryWriter, utils.CSVLogger, utils.JSONLogger} do
        local one = Class {comment = "_end"}
        assert.matches("^runs/%a%a%a%d%d_%d%d%-%d%d%-%d%d_.*_end$", one:get_logdir())
        assert.equal(one.log_dir, one:get_logdir())
        one:close()
        assert.equal("directory", lfs.attributes(one.log_dir, "mode"))
        assert.equal(moth.typename(one) .. " of " .. one.log_dir, tostring(one))
      end
      local empty = tb.SummaryWriter ""
      assert.matches("^runs/", empty.log_dir)
      empty:close()
    end)
    lfs.chdir(before)
    assert.is_true(ok, tostring(problem))
  end)

  it("flushes the files of all runs", function()
    local writer = tb.SummaryWriter {new_folder(), max_queue = 100}
    writer:add_scalars("a", {b = 1, c = 2}, 1)
    writer:flush()
    for _, file in pairs(writer.runs) do
      local n = 0
      for event in tb.read(file.path) do n = n + (event.summary and 1 or 0) end
      assert.equal(1, n)
    end
    writer:close()
  end)

  it("prints a summary of a graph on demand, and joins figures", function()
    local printed, original = 0, print
    _G.print = function() printed = printed + 1 end
    local ok, problem = pcall(values, function(writer)
      writer:add_graph(moth.nn.Linear(2, 1), moth.ones(1, 2))
      assert.equal(0, printed)
      writer:add_graph(moth.nn.Linear(2, 1), {moth.ones(1, 2)}, true)
    end)
    _G.print = original
    assert.is_true(ok, tostring(problem))
    assert.equal(1, printed)
    local figure = plot.lines {{1, 2}, width = 200, height = 100}
    local list = values(function(writer)
      writer:add_figure("one", figure)
      writer:add_figure("two", {figure, figure})
    end)
    assert.same({100, 200}, {list[1].image.height, list[1].image.width})
    assert.same({200, 200}, {list[2].image.height, list[2].image.width})
  end)

  it("draws boxes on grey pictures, too, at a scale", function()
    local list = values(function(writer)
      writer:add_image_with_boxes {"a", moth.zeros(1, 10, 20), moth.tensor {{2, 2, 9, 8}},
        labels = {"x"}, rescale = 2}
      writer:add_image_with_boxes("b", moth.zeros(4, 10, 20), moth.zeros(0, 4))
    end)
    assert.same({20, 40, 3}, {list[1].image.height, list[1].image.width, list[1].image.colorspace})
    assert.same({10, 20, 3}, {list[2].image.height, list[2].image.width, list[2].image.colorspace})
  end)
end)

describe("a logger", function()
  it("has ? in place of bytes that are not UTF-8", function()
    local folder = new_folder()
    utils.JSONLogger(folder):with(function(logger) logger:add_text("t", "a\255b\200", 1) end)
    local line = json.decode(files.read(folder .. "/metrics.jsonl"):match "[^\n]*")
    assert.equal("a?b?", line.text)
  end)

  it("ignores pictures, sounds and curves", function()
    local folder = new_folder()
    utils.CSVLogger(folder):with(function(logger)
      for _, name in ipairs {"add_image", "add_images", "add_image_with_boxes", "add_audio",
        "add_figure", "add_graph", "add_embedding", "add_pr_curve", "add_pr_curve_raw",
        "add_histogram_raw", "add_custom_scalars"} do
        assert.equal(0, select("#", logger[name](logger, 1, 2, 3)))
      end
      logger:add_scalar("a", 1, 1)
    end)
    assert.is_truthy(files.read(folder .. "/metrics.csv"):find "^step,wall_time,a\n1,")
  end)

  it("passes results and errors of its function on, and is closed then", function()
    local logger = utils.JSONLogger(new_folder())
    assert.same({1, nil, 3}, {logger:with(function(one, a) return a, nil, one and 3 end, 1)})
    assert.is_nil(logger.metrics)
    check("ouch", function() logger:with(function() error("ouch", 0) end) end)
    assert.is_nil(logger.metrics)
  end)

  it("writes its queue when it is full or old", function()
    local folder = new_folder()
    local logger = utils.JSONLogger {folder, max_queue = 3}
    local function lines()
      return select(2, files.read(folder .. "/metrics.jsonl"):gsub("\n", ""))
    end
    for step = 1, 3 do logger:add_scalar("a", step, step) end
    assert.equal(0, lines()) -- the row of step 3 may still grow
    logger:add_scalar("a", 4, 4)
    assert.equal(3, lines())
    logger:flush()
    assert.equal(4, lines())
    logger:close()
    local at_once = utils.JSONLogger {new_folder(), flush_secs = 0}
    local path = at_once.log_dir .. "/metrics.jsonl"
    at_once:add_scalar("a", 1, 1)
    moth.timer(function() end):timeit(10)
    at_once:add_scalar("a", 2, 2)
    assert.is_true(#files.read(path) > 0)
    at_once:close()
  end)

  for _, row in ipairs {
    {"'tag_scalar_dict' to 'add_scalars'", function(one) one:add_scalars("a", {b = {}}) end},
    {"'hparam_dict' to 'add_hparams'", function(one) one:add_hparams({a = {}}, {}) end},
    {"'metric_dict' to 'add_hparams'", function(one) one:add_hparams({}, {a = {}}) end},
    {"'scalar_value' to 'add_scalar'", function(one) one:add_scalar("a", moth.ones(2)) end},
    {"'values' to 'add_histogram' (there are no values",
      function(one) one:add_histogram("a", moth.zeros(0)) end},
  } do
    it("refuses: " .. row[1], function()
      local one = utils.CSVLogger(new_folder())
      check("bad argument " .. row[1], function() row[2](one) end)
      one:close()
    end)
  end
end)

describe("a checkpointed call", function()
  it("refuses a table in itself, in the name of its function", function()
    local loop = {}
    loop[1] = loop
    check("bad argument 'args' to 'checkpoint' (a table that contains itself",
      function() utils.checkpoint.checkpoint(function() end, loop) end)
  end)

  it("takes a table twice", function()
    local shared = {moth.ones(2, {requires_grad = true})}
    local y = utils.checkpoint.checkpoint(function(a, b) return a[1] * 2 + b[1] end, shared,
      shared)
    y:sum():backward()
    assert.same({3, 3}, shared[1].grad:tolist())
  end)
end)
