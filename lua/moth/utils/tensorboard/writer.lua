--- writer.lua -- moth.utils.tensorboard.SummaryWriter: writes event files that TensorBoard shows.
--
--     local writer = moth.utils.tensorboard.SummaryWriter("runs/first")
--     writer:add_scalar("loss/train", loss, step)
--     writer:add_histogram("fc1/weight", net.fc1.weight, step)
--     writer:close()
--
-- `tensorboard --logdir runs` shows it.

local class = require "moth.base.class"
local define = require "moth.binding.define"
local errors = require "moth.error"
local EventFile = require "moth.utils.tensorboard.events"
local lib = require "moth.binding.lib"
local machine = require "moth.base.machine"

local SummaryWriter = class("SummaryWriter")

local function summaries() return require "moth.utils.tensorboard.summaries" end

-- ---- the files ----

SummaryWriter.signature = define.signature("SummaryWriter", {
  {"string", "log_dir", "folder of the run; default: runs/, the date and the computer's name",
   optional = true},
  {"string", "comment", "the end of the default folder's name", default = ""},
  {"int", "purge_step", "TensorBoard hides the events of this step and later that were written "
   .. "before", optional = true},
  {"int", "max_queue", "the number of events that are collected before they are written",
   default = 10},
  {"float", "flush_secs", "the first event after this many seconds writes all", default = 120},
  {"string", "filename_suffix", "the end of the names of event files", default = ""},
})

local START = 1 -- status of a session

local function default_folder(comment)
  return "runs/" .. os.date("%b%d_%H-%M-%S") .. "_" .. machine.host() .. comment
end

local function new_file(self, folder)
  return EventFile(folder, self.max_queue, self.flush_secs, self.filename_suffix, "SummaryWriter")
end

-- The file of the run. After close a new one is opened.
local function file_of(self)
  local file = self.file
  if not file then
    file = new_file(self, self.log_dir)
    self.file = file
    if self.purge_step then
      file:event {wall_time = machine.time(), step = self.purge_step,
                  session_log = {status = START}}
      self.purge_step = nil
    end
  end
  return file
end

--- Writes numbers, histograms, pictures and texts of a run to event files, for TensorBoard. Each
-- record is complete on the disk or absent, also after a crash.
-- @param log_dir     folder of the run (default: runs/, the date and the computer's name); runs to
-- compare are folders next to each other
-- @param comment     the end of the default folder's name
-- @param purge_step  TensorBoard hides events of this step and later that were written before: for
-- a run that continues from a checkpoint
-- @param max_queue   the number of events that are collected before they are written (default 10)
-- @param flush_secs  the first event after this many seconds writes all (default 120)
-- @param filename_suffix  the end of the names of event files
-- Raises E_IO if the folder or the file cannot be written.
function SummaryWriter:init(log_dir, comment, purge_step, max_queue, flush_secs, filename_suffix)
  self.log_dir = log_dir ~= "" and log_dir or default_folder(comment)
  self.purge_step, self.max_queue, self.flush_secs = purge_step, max_queue, flush_secs
  self.filename_suffix = filename_suffix
  self.runs = {} -- folder of add_scalars -> its file
  self.embeddings = {} -- entries of the list of add_embedding
  file_of(self)
end

--- The folder of the run.
function SummaryWriter:get_logdir() return self.log_dir end

--- Writes all events that were added.
function SummaryWriter:flush()
  if self.file then self.file:flush() end
  for _, file in pairs(self.runs) do file:flush() end
end

--- Writes all events and closes the files. Adding after that opens new files in the same folder.
function SummaryWriter:close()
  if self.file then self.file:close() end
  for _, file in pairs(self.runs) do file:close() end
  self.file, self.runs = nil, {}
end

--- Calls f(writer, ...), then closes the writer, also after an error. Returns f's results. As
-- Python's `with SummaryWriter() as writer`.
function SummaryWriter:with(f, ...)
  local results = lib.pack(pcall(f, self, ...))
  self:close()
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2, results.n)
end

function SummaryWriter:__tostring() return ("SummaryWriter of %s"):format(self.log_dir) end

-- ---- arguments that several methods have ----

local TAG = {"string", "tag", "name of the series, with '/' for groups"}
local STEP = {"int", "global_step", "step of the training", optional = true}
local TIME = {"float", "walltime", "seconds since 1970; default: now", optional = true}

local function add_value(self, value, step, walltime)
  file_of(self):event {wall_time = walltime or machine.time(), step = step,
                       summary = {value = {value}}}
end

-- ---- numbers ----

local parse_scalar = define.signature("add_scalar", {
  TAG, {"any", "scalar_value", "a number, or a tensor of one element"}, STEP, TIME,
  {"bool", "new_style", "write as a tensor?", default = false},
  {"bool", "double_precision", "with new_style: as float64?", default = false},
})

local FLOAT, DOUBLE = 1, 2 -- dtypes of TensorFlow

--- Adds one number of a series.
-- @param tag           name of the series, with '/' for groups: "loss/train"
-- @param scalar_value  a number, or a tensor of one element
-- @param global_step   step of the training
-- @param walltime      seconds since 1970 (default: now)
-- @param new_style     write as a tensor? (default false)
-- @param double_precision  with new_style: as float64? (default false: float32)
function SummaryWriter:add_scalar(...)
  local tag, value, step, walltime, new_style, double = parse_scalar(...)
  if type(value) ~= "number" then
    value = summaries().number(value, "add_scalar", "scalar_value")
  end
  if not new_style then return file_of(self):scalar(tag, value, step, walltime) end
  local histogram = require "moth.utils.tensorboard.histogram"
  local content = double and {dtype = DOUBLE, double_val = histogram.doubles {value}}
    or {dtype = FLOAT, float_val = require("ffi").string(require("ffi").new("float[1]", value), 4)}
  add_value(self, {tag = tag, tensor = content,
    metadata = {plugin_data = {plugin_name = "scalars"}}}, step, walltime)
end
define.takes(SummaryWriter.add_scalar, parse_scalar)

local parse_scalars = define.signature("add_scalars", {
  {"string", "main_tag", "name of the group"},
  {"map", "tag_scalar_dict", "name -> number, or tensor of one element"}, STEP, TIME,
})

--- Adds numbers that TensorBoard draws in one diagram. Each name is a run of its own, in a folder
-- of the run's folder.
-- @param main_tag         name of the group
-- @param tag_scalar_dict  name -> number, or tensor of one element
-- @param global_step      step of the training
-- @param walltime         seconds since 1970 (default: now)
function SummaryWriter:add_scalars(...)
  local main_tag, map, step, walltime = parse_scalars(...)
  local names, values = summaries().plain_map(map, "add_scalars", "tag_scalar_dict")
  for _, name in ipairs(names) do
    local value = summaries().number(values[name], "add_scalars", "tag_scalar_dict")
    local folder = self.log_dir .. "/" .. main_tag:gsub("/", "_") .. "_" .. name
    local file = self.runs[folder] or new_file(self, folder)
    self.runs[folder] = file
    file:scalar(main_tag, value, step, walltime)
  end
end
define.takes(SummaryWriter.add_scalars, parse_scalars)

-- ---- histograms ----

local parse_histogram = define.signature("add_histogram", {
  TAG, {"any", "values", "a tensor of any shape, or a list of numbers"}, STEP,
  {"any", "bins", "'tensorflow', an estimator of NumPy's ('auto', 'fd', 'doane', 'scott', 'stone', "
   .. "'rice', 'sturges', 'sqrt'), a number of bins, or edges", default = "tensorflow"},
  TIME, {"int", "max_bins", "neighbours are joined until about max_bins are left", optional = true},
})

--- Adds the histogram of a tensor. Infinite and NaN elements are left out.
-- @param tag          name of the series
-- @param values       a tensor of any shape, or a list of numbers
-- @param global_step  step of the training
-- @param bins         "tensorflow" (default: the width grows by a tenth from bin to bin), an
-- estimator of NumPy's ("auto", "fd", "doane", "scott", "stone", "rice", "sturges", "sqrt"), a
-- number of bins, or edges
-- @param walltime     seconds since 1970 (default: now)
-- @param max_bins     neighbours are joined until about max_bins are left
function SummaryWriter:add_histogram(...)
  local tag, values, step, bins, walltime, max_bins = parse_histogram(...)
  add_value(self, {tag = tag, histo = require("moth.utils.tensorboard.histogram").of(values, bins,
    max_bins)}, step, walltime)
end
define.takes(SummaryWriter.add_histogram, parse_histogram)

local parse_raw = define.signature("add_histogram_raw", {
  TAG, {"float", "min", "the least value"}, {"float", "max", "the largest value"},
  {"float", "num", "the number of values"}, {"float", "sum", "their sum"},
  {"float", "sum_squares", "the sum of their squares"},
  {"any", "bucket_limits", "right edges, a list or a vector"},
  {"any", "bucket_counts", "the number of values of each bin"}, STEP, TIME,
})

--- Adds a histogram that was counted elsewhere.
-- @param tag            name of the series
-- @param min            the least value
-- @param max            the largest value
-- @param num            the number of values
-- @param sum            their sum
-- @param sum_squares    the sum of their squares
-- @param bucket_limits  right edges of the bins, a list or a vector
-- @param bucket_counts  the number of values of each bin
-- @param global_step    step of the training
-- @param walltime       seconds since 1970 (default: now)
function SummaryWriter:add_histogram_raw(...)
  local tag, min, max, num, sum, squares, limits, counts, step, walltime = parse_raw(...)
  if lib.istensor(limits) then limits = limits:tolist() end
  if lib.istensor(counts) then counts = counts:tolist() end
  if #limits ~= #counts then
    errors.argument("add_histogram_raw", "bucket_counts", ("%d counts for %d limits"):format(
      #counts, #limits), "E_SHAPE")
  end
  local doubles = require("moth.utils.tensorboard.histogram").doubles
  add_value(self, {tag = tag, histo = {min = min, max = max, num = num, sum = sum,
    sum_squares = squares, bucket_limit = doubles(limits), bucket = doubles(counts)}}, step,
    walltime)
end
define.takes(SummaryWriter.add_histogram_raw, parse_raw)

-- ---- pictures and sounds ----

local function add_picture(self, fname, tag, x, step, walltime, format)
  local picture = require "moth.utils.tensorboard.picture"
  add_value(self, {tag = tag, image = picture.of(x, format, fname)}, step, walltime)
end

local function image_rows(name, format)
  return define.signature(name, {
    TAG, {"tensor", "img_tensor", "floats from 0 to 1, or uint8"}, STEP, TIME,
    {"string", "dataformats", "the dimensions: a permutation of CHW, NCHW or HW",
     default = format},
  })
end

local parse_image = image_rows("add_image", "CHW")

--- Adds a picture.
-- @param tag          name of the series
-- @param img_tensor   floats from 0 to 1, or uint8, of 1 (grey), 3 or 4 (with opacity) channels
-- @param global_step  step of the training
-- @param walltime     seconds since 1970 (default: now)
-- @param dataformats  the dimensions: "CHW" (default), "HWC", "HW", or a batch: "NCHW"
function SummaryWriter:add_image(...)
  add_picture(self, "add_image", parse_image(...))
end
define.takes(SummaryWriter.add_image, parse_image)

local parse_images = image_rows("add_images", "NCHW")

--- Adds a batch of pictures as one picture, with 8 in a row.
-- @param tag          name of the series
-- @param img_tensor   floats from 0 to 1, or uint8
-- @param global_step  step of the training
-- @param walltime     seconds since 1970 (default: now)
-- @param dataformats  the dimensions: "NCHW" (default) or "NHWC"
function SummaryWriter:add_images(...)
  add_picture(self, "add_images", parse_images(...))
end
define.takes(SummaryWriter.add_images, parse_images)

local parse_boxes = define.signature("add_image_with_boxes", {
  TAG, {"tensor", "img_tensor", "floats from 0 to 1, or uint8"},
  {"tensor", "box_tensor", "(N, 4): left, top, right, bottom in pixels, from 0 on"}, STEP, TIME,
  {"float", "rescale", "size of the written picture", default = 1,
   bounds = {0, 64}},
  {"string", "dataformats", "the dimensions: a permutation of CHW or HW", default = "CHW"},
  {"any", "labels", "a list of a text for each box", optional = true},
})

--- Adds a picture with red boxes, such as found objects.
-- @param tag          name of the series
-- @param img_tensor   floats from 0 to 1, or uint8, of 1 or 3 channels
-- @param box_tensor   (N, 4): left, top, right, bottom in pixels, from 0 on
-- @param global_step  step of the training
-- @param walltime     seconds since 1970 (default: now)
-- @param rescale      size of the written picture (default 1)
-- @param dataformats  the dimensions: "CHW" (default), "HWC" or "HW"
-- @param labels       a list of a text for each box
function SummaryWriter:add_image_with_boxes(...)
  local tag, x, boxes, step, walltime, rescale, format, labels = parse_boxes(...)
  local picture = require "moth.utils.tensorboard.picture"
  add_value(self, {tag = tag, image = picture.with_boxes(x, boxes, labels, rescale, format,
    "add_image_with_boxes")}, step, walltime)
end
define.takes(SummaryWriter.add_image_with_boxes, parse_boxes)

local parse_audio = define.signature("add_audio", {
  TAG, {"tensor", "snd_tensor", "samples from -1 to 1, (L) or (1, L)"}, STEP,
  {"int", "sample_rate", "samples per second", default = 44100}, TIME,
})

--- Adds a sound of one channel.
-- @param tag          name of the series
-- @param snd_tensor   samples from -1 to 1, (L) or (1, L)
-- @param global_step  step of the training
-- @param sample_rate  samples per second (default 44100)
-- @param walltime     seconds since 1970 (default: now)
function SummaryWriter:add_audio(...)
  local tag, x, step, rate, walltime = parse_audio(...)
  add_value(self, {tag = tag, audio = summaries().audio(x, rate)}, step, walltime)
end
define.takes(SummaryWriter.add_audio, parse_audio)

-- ---- texts, hyperparameters, curves ----

local parse_text = define.signature("add_text", {
  TAG, {"string", "text_string", "the text, in Markdown"}, STEP, TIME,
})

--- Adds a text.
-- @param tag          name of the series
-- @param text_string  the text, in Markdown
-- @param global_step  step of the training
-- @param walltime     seconds since 1970 (default: now)
function SummaryWriter:add_text(...)
  local tag, text, step, walltime = parse_text(...)
  add_value(self, summaries().text(tag, text), step, walltime)
end
define.takes(SummaryWriter.add_text, parse_text)

local parse_hparams = define.signature("add_hparams", {
  {"map", "hparam_dict", "name -> number, string or boolean"},
  {"map", "metric_dict", "name -> number"},
  {"map", "hparam_domain_discrete", "name -> list of the values that it may have",
   optional = true},
  {"string", "run_name", "folder of the values in the run's folder; default: the time",
   optional = true}, STEP,
})

--- Adds the hyperparameters of a run with its results, for the table of TensorBoard's HPARAMS page.
-- @param hparam_dict  name -> number, string or boolean
-- @param metric_dict  name -> number, or tensor of one element: the results
-- @param hparam_domain_discrete  name -> list of the values that it may have
-- @param run_name     folder of the values in the run's folder (default: the time)
-- @param global_step  step of the training
function SummaryWriter:add_hparams(...)
  local hparams, metrics, discrete, run_name, step = parse_hparams(...)
  local values = summaries().hparams(hparams, metrics, discrete)
  local names, numbers = summaries().plain_map(metrics, "add_hparams", "metric_dict")
  local run = SummaryWriter(self.log_dir .. "/" .. (run_name or summaries().now()))
  run:with(function()
    for _, value in ipairs(values) do add_value(run, value, step) end
    for _, name in ipairs(names) do run:add_scalar(name, numbers[name], step) end
  end)
end
define.takes(SummaryWriter.add_hparams, parse_hparams)

local THRESHOLDS = {"int", "num_thresholds", "points of the curve, at most 127", default = 127}

local parse_curve = define.signature("add_pr_curve", {
  TAG, {"tensor", "labels", "0 and 1, or false and true"},
  {"tensor", "predictions", "probabilities of true"}, STEP, THRESHOLDS,
  {"tensor", "weights", "of the elements; default 1", optional = true}, TIME,
})

--- Adds a precision-recall curve.
-- @param tag             name of the series
-- @param labels          0 and 1, or false and true
-- @param predictions     probabilities of true, of the same number
-- @param global_step     step of the training
-- @param num_thresholds  points of the curve (default 127, which is also the most)
-- @param weights         of the elements (default 1)
-- @param walltime        seconds since 1970 (default: now)
function SummaryWriter:add_pr_curve(...)
  local tag, labels, predictions, step, thresholds, weights, walltime = parse_curve(...)
  add_value(self, summaries().pr_curve(tag, labels, predictions, thresholds, weights), step,
    walltime)
end
define.takes(SummaryWriter.add_pr_curve, parse_curve)

local function counts(name) return {"tensor", name, "a value for each threshold"} end

local parse_curve_raw = define.signature("add_pr_curve_raw", {
  TAG, counts "true_positive_counts", counts "false_positive_counts",
  counts "true_negative_counts", counts "false_negative_counts", counts "precision",
  counts "recall", STEP, THRESHOLDS, TIME,
})

--- Adds a precision-recall curve that was counted elsewhere: a vector for each of the counts.
-- @param tag             name of the series
-- @param true_positive_counts   a value for each threshold
-- @param false_positive_counts  a value for each threshold
-- @param true_negative_counts   a value for each threshold
-- @param false_negative_counts  a value for each threshold
-- @param precision       a value for each threshold
-- @param recall          a value for each threshold
-- @param global_step     step of the training
-- @param num_thresholds  points of the curve (default 127, which is also the most)
-- @param walltime        seconds since 1970 (default: now)
function SummaryWriter:add_pr_curve_raw(...)
  local tag, tp, fp, tn, fn, precision, recall, step, thresholds, walltime = parse_curve_raw(...)
  add_value(self, summaries().pr_curve_raw(tag, {tp, fp, tn, fn, precision, recall}, thresholds),
    step, walltime)
end
define.takes(SummaryWriter.add_pr_curve_raw, parse_curve_raw)

local parse_graph = define.signature("add_graph", {
  {"object", "model", "a module"},
  {"any", "input_to_model", "a tensor, or a list of tensors"},
  {"bool", "verbose", "also print a summary?", default = false},
})

--- Adds the graph of a net: a node for each op and each parameter, grouped by modules. The net runs
-- once, in evaluation mode.
-- @param model           a module
-- @param input_to_model  a tensor, or a list of tensors
-- @param verbose         also print moth.summary? (default false)
function SummaryWriter:add_graph(...)
  local model, input, verbose = parse_graph(...)
  if not class.isinstance(model, require("moth").nn.Module) then
    errors.refuse("add_graph", "model", "a module is needed", model, "E_TYPE")
  end
  local inputs = lib.istensor(input) and {input} or input
  for _, x in ipairs(type(inputs) == "table" and inputs or {false}) do
    if not lib.istensor(x) then
      errors.refuse("add_graph", "input_to_model", "a tensor or a list of tensors is needed", x,
        "E_TYPE")
    end
  end
  if verbose then print(require("moth").summary(model, inputs)) end
  file_of(self):event {wall_time = machine.time(), graph_def = summaries().graph(model, inputs)}
end
define.takes(SummaryWriter.add_graph, parse_graph)

local parse_figure = define.signature("add_figure", {
  TAG, {"any", "figure", "a moth.plot.Figure, or a list of them"}, STEP,
  {"bool", "close", "not used", default = true}, TIME,
})

--- Adds a plot of moth.plot as a picture; several plots as one picture below each other.
-- @param tag          name of the series
-- @param figure       what moth.plot.lines and others return, or a list of these
-- @param global_step  step of the training
-- @param close        not used
-- @param walltime     seconds since 1970 (default: now)
function SummaryWriter:add_figure(...)
  local tag, figure, step, _, walltime = parse_figure(...)
  local list = class.typename(figure) == "Figure" and {figure} or figure
  local images = {}
  for i, one in ipairs(type(list) == "table" and list or {}) do
    if class.typename(one) ~= "Figure" then
      errors.refuse("add_figure", "figure", "a figure of moth.plot is needed", one, "E_TYPE")
    end
    images[i] = one:image(1)
  end
  if #images == 0 then
    errors.refuse("add_figure", "figure", "a figure of moth.plot is needed", figure, "E_TYPE")
  end
  for i, x in ipairs(images) do
    if x:size(3) ~= images[1]:size(3) then
      errors.argument("add_figure", "figure", ("the figures differ in width: %d and %d"):format(
        images[1]:size(3), images[i]:size(3)), "E_SHAPE")
    end
  end
  add_picture(self, "add_figure", tag, require("moth").cat(images, 2), step, walltime, "CHW")
end
define.takes(SummaryWriter.add_figure, parse_figure)

local parse_embedding = define.signature("add_embedding", {
  {"tensor", "mat", "vectors (N, D)"},
  {"any", "metadata", "N labels; or N rows of labels, with metadata_header", optional = true},
  {"tensor", "label_img", "pictures (N, C, H, W)", optional = true}, STEP,
  {"string", "tag", "name of the vectors", default = "default"},
  {"any", "metadata_header", "names of the columns of metadata", optional = true},
})

--- Writes vectors with labels for TensorBoard's PROJECTOR page, as tables in the run's folder.
-- @param mat          vectors (N, D)
-- @param metadata     N labels; or N rows of labels, with metadata_header
-- @param label_img    pictures (N, C, H, W), shown as points
-- @param global_step  step of the training
-- @param tag          name of the vectors (default "default")
-- @param metadata_header  names of the columns of metadata
function SummaryWriter:add_embedding(...)
  local mat, metadata, images, step, tag, header = parse_embedding(...)
  if mat:dim() ~= 2 then
    errors.argument("add_embedding", "mat", "vectors (N, D) are needed, got "
      .. errors.describe(mat), "E_SHAPE")
  end
  local embedding = require "moth.utils.tensorboard.embedding"
  if lib.istensor(metadata) then metadata = metadata:tolist() end
  local entry = embedding.write(self.log_dir, mat:detach():cpu(), metadata,
    images and images:detach():cpu(), step or 0, tag, header)
  self.embeddings[#self.embeddings + 1] = entry
  embedding.write_list(self.log_dir, self.embeddings)
end
define.takes(SummaryWriter.add_embedding, parse_embedding)

local parse_layout = define.signature("add_custom_scalars", {
  {"map", "layout", "category -> chart -> {'Multiline', tags} or {'Margin', {y, low, high}}"},
})

--- Chooses the diagrams of TensorBoard's CUSTOM SCALARS page; call it once.
-- @param layout  category -> chart -> {"Multiline", {tag, ...}} or {"Margin", {tag, lower, upper}}
function SummaryWriter:add_custom_scalars(...)
  add_value(self, summaries().custom_scalars((parse_layout(...))))
end
define.takes(SummaryWriter.add_custom_scalars, parse_layout)

class.guard(SummaryWriter, "writer")

return SummaryWriter
