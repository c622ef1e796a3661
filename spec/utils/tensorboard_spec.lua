-- moth.utils.tensorboard: the records are PyTorch's bytes, pictures decode to their pixels, files
-- are whole after a crash, and the reader refuses broken files.

local ffi = require "ffi"
local moth = require "moth"
local child = require "spec.support.child"
local files = require "spec.support.files"
local golden = require "spec.support.golden"
local messages = require "moth.utils.tensorboard.messages"

local tb = moth.utils.tensorboard

setup(files.setup)
teardown(files.teardown)

local count = 0

local function new_folder()
  count = count + 1
  return files.path("run" .. count)
end

local function written(f, options)
  options = options or {}
  options[1] = new_folder()
  local writer = tb.SummaryWriter(options)
  local path = writer.file.path
  writer:with(f)
  return path, options[1]
end

-- The Events of a file, with their frames.
local function records(path)
  local data, list, at = files.read(path), {}, 1
  while at <= #data do
    local a, b, c = data:byte(at, at + 2)
    local size = a + 256 * b + 65536 * c + 16
    list[#list + 1], at = data:sub(at, at + size - 1), at + size
  end
  return list
end

local function events(path)
  local list = {}
  for event in tb.read(path) do list[#list + 1] = event end
  return list
end

ffi.cdef [[int moth_spec_uncompress(uint8_t *to, unsigned long *size, const char *from,
  unsigned long n) __asm__("uncompress");]]

-- The bytes of a PNG picture's pixels, and the number of its channels.
local function decoded(text)
  assert.equal("\137PNG\r\n\26\n", text:sub(1, 8))
  local crc32 = require("moth.io.gzip").crc32
  local function big(at)
    local a, b, c, d = text:byte(at, at + 3)
    return ((a * 256 + b) * 256 + c) * 256 + d
  end
  local at, chunks = 9, {}
  while at < #text do
    local size, name = big(at), text:sub(at + 4, at + 7)
    chunks[name] = text:sub(at + 8, at + 7 + size)
    assert.equal(crc32(name .. chunks[name]), big(at + 8 + size))
    if name == "IHDR" then chunks.width, chunks.height = big(at + 8), big(at + 12) end
    at = at + size + 12
  end
  local channels = ({[0] = 1, [2] = 3, [4] = 2, [6] = 4})[chunks.IHDR:byte(10)]
  local stride = chunks.width * channels
  local size = ffi.new("unsigned long[1]", (stride + 1) * chunks.height)
  local raw = ffi.new("uint8_t[?]", size[0])
  assert.equal(0, ffi.load("libz.so.1").moth_spec_uncompress(raw, size, chunks.IDAT, #chunks.IDAT))
  local pixels, above = {}, {}
  for y = 0, chunks.height - 1 do
    assert.equal(2, raw[y * (stride + 1)])
    for i = 1, stride do
      above[i] = (raw[y * (stride + 1) + i] + (above[i] or 0)) % 256
      pixels[#pixels + 1] = above[i]
    end
  end
  return pixels, channels
end

-- ---- values ----

local REAL = {} -- the golden file's numbers that only the generator knows
REAL.x, REAL.labels, REAL.predictions = {}, {}, {}
for i = 0, 39 do REAL.x[i + 1] = (7 * i % 23 - 9) / 8 end
for i = 0, 29 do
  REAL.labels[i + 1], REAL.predictions[i + 1] = i * 5 % 3 % 2, (i * 7 % 32) / 32
end

describe("SummaryWriter", function()
  it("writes the bytes that PyTorch writes", function()
    for _, case in ipairs(golden.cases "event_files") do
      local arguments = case.arguments
      arguments.global_step, arguments.walltime = 7, 1.5
      if case.name == "add_histogram" then arguments.values = moth.tensor(REAL.x) end
      if case.name == "add_pr_curve" then
        arguments.labels = moth.tensor(REAL.labels)
        arguments.predictions = moth.tensor(REAL.predictions)
      end
      local path = written(function(writer) writer[case.name](writer, arguments) end)
      local got = records(path)[2]:gsub(".", function(c) return ("%02x"):format(c:byte()) end)
      assert.equal(case.record, got, case.name .. " " .. tostring(arguments.bins or arguments.tag))
    end
  end)

  it("begins a file with the version", function()
    local first = events((written(function() end)))[1]
    assert.equal("brain.Event:2", first.file_version)
    assert.is_true(math.abs(first.wall_time - os.time()) < 60)
  end)

  it("names files as TensorBoard expects, each another", function()
    local folder = new_folder()
    local a, b = tb.SummaryWriter(folder), tb.SummaryWriter{folder, filename_suffix = ".end"}
    assert.is_truthy(a.file.path:find("events%.out%.tfevents%.%d+%..+"))
    assert.is_truthy(b.file.path:find("%.end$"))
    assert.not_equal(a.file.path, b.file.path)
    a:close()
    b:close()
  end)

  it("takes numbers, tensors of one element and steps of any sign", function()
    local path = written(function(writer)
      writer:add_scalar("a", moth.tensor{{2.5}}, -3)
      writer:add_scalar("a", moth.tensor(1LL), 2 ^ 40)
      writer:add_scalar("a", 0 / 0)
      writer:add_scalar{"a", -math.huge, 0, walltime = 12.5}
    end)
    local list = events(path)
    local value = {}
    for i = 2, 5 do value[i - 1] = list[i].summary.value[1].simple_value end
    assert.equal(2.5, value[1])
    assert.equal(-3, list[2].step)
    assert.equal(1, value[2])
    assert.equal(2 ^ 40, list[3].step)
    assert.is_true(value[3] ~= value[3])
    assert.is_nil(list[4].step)
    assert.equal(-math.huge, value[4])
    assert.equal(12.5, list[5].wall_time)
  end)

  it("writes each name of add_scalars as a run of its own", function()
    local _, folder = written(function(writer)
      writer:add_scalars("loss/both", {train = 0.5, valid = moth.tensor(0.25)}, 3)
    end)
    assert.same({["loss/both"] = {step = {3}, value = {0.5}}},
      (function()
        local series = tb.scalars(folder .. "/loss_both_train")
        series["loss/both"].wall_time = nil
        return series
      end)())
    assert.same({0.25}, tb.scalars(folder .. "/loss_both_valid")["loss/both"].value)
  end)

  it("leaves NaN and infinite elements out of histograms", function()
    local path = written(function(writer)
      writer:add_histogram("h", moth.tensor{1, 0 / 0, 3, math.huge}, 1, 2)
      writer:add_histogram("none", moth.tensor{0 / 0}, 1)
    end)
    local h = events(path)[2].summary.value[1].histo
    assert.same({1, 3, 2, 4, 10}, {h.min, h.max, h.num, h.sum, h.sum_squares})
    assert.equal(0, events(path)[3].summary.value[1].histo.num)
  end)

  it("writes hyperparameters with their types, and their results as scalars", function()
    local folder = new_folder()
    tb.SummaryWriter(folder):with(function(writer)
      writer:add_hparams({lr = 0.5, name = "adam", nesterov = true}, {acc = moth.tensor(0.75)},
        {lr = {0.5, 1}}, "first", 2)
    end)
    assert.same({0.75}, tb.scalars(folder .. "/first").acc.value)
    local path
    for name in require("lfs").dir(folder .. "/first") do
      if name:find "tfevents" then path = folder .. "/first/" .. name end
    end
    local contents = {}
    for i, event in ipairs(events(path)) do
      local value = event.summary and event.summary.value[1]
      if value and value.metadata then
        assert.equal("hparams", value.metadata.plugin_data.plugin_name)
        local file = require("moth.io.bytes").open(require("moth.io.bytes").memory(
          value.metadata.plugin_data.content), "read")
        contents[i] = messages.decode(file, "HParams", 0, file.size)
      end
    end
    local infos = contents[2].experiment.hparam_infos
    assert.same({"lr", 3, "name", 1, "nesterov", 2}, {infos[1].name, infos[1].type, infos[2].name,
      infos[2].type, infos[3].name, infos[3].type})
    assert.equal(1, infos[1].domain_discrete.values[2].number_value)
    local start = contents[3].session_start_info.hparams
    assert.same({0.5, "adam", 1}, {start[1].value.number_value, start[2].value.string_value,
      start[3].value.bool_value})
    assert.equal(1, contents[4].session_end_info.status)
  end)

  it("writes a sound as WAV of 16 bits", function()
    local path = written(function(writer)
      writer:add_audio("beep", moth.tensor{{0, 1, -1, 2}}, 1, 8000)
    end)
    local audio = events(path)[2].summary.value[1].audio
    assert.same({8000, 1, 4, "audio/wav"}, {audio.sample_rate, audio.num_channels,
      audio.length_frames, audio.content_type})
    assert.equal("RIFF\44\0\0\0WAVEfmt \16\0\0\0\1\0\1\0\64\31\0\0\128\62\0\0\2\0\16\0data\8\0\0\0"
      .. "\0\0\255\127\1\128\255\127", audio.encoded_audio_string)
  end)

  it("describes the charts of a page", function()
    local path = written(function(writer)
      writer:add_custom_scalars{all = {loss = {"Multiline", {"a", "b"}},
                                       range = {"Margin", {"a", "low", "high"}}}}
    end)
    local value = events(path)[2].summary.value[1]
    assert.equal("custom_scalars__config__", value.tag)
    local function field(number, body) return string.char(8 * number + 2, #body) .. body end
    local lines = field(1, "loss") .. field(2, field(1, "a") .. field(1, "b"))
    local area = field(1, "range") .. field(3, field(1, field(1, "a") .. field(2, "low")
      .. field(3, "high")))
    assert.equal(field(2, field(1, "all") .. field(2, lines) .. field(2, area)),
      value.tensor.string_val[1])
  end)

  it("writes the graph of a net: ops and parameters by the paths of modules", function()
    local nn = moth.nn
    local path = written(function(writer)
      writer:add_graph(nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.ReLU()), moth.ones(4, 3))
    end)
    local bytes = require "moth.io.bytes"
    local file = bytes.open(bytes.memory(events(path)[2].graph_def), "read")
    local graph = messages.decode(file, "Graph", 0, file.size)
    local rows = {}
    for i, node in ipairs(graph.node) do
      rows[i] = ("%s %s %s"):format(node.name, node.op, table.concat(node.input, " "))
    end
    assert.same({"input IO Node ", "Sequential/0/bias Parameter ",
      "Sequential/0/weight Parameter ",
      "Sequential/0/linear linear input Sequential/0/bias Sequential/0/weight",
      "Sequential/1/relu relu Sequential/0/linear", "Sequential/2/relu relu Sequential/1/relu",
      "output IO Node Sequential/2/relu"}, rows)
    local dims = graph.node[4].attr[1].value.list.shape[1].dim
    assert.same({4, 2}, {dims[1].size, dims[2].size})
  end)

  it("writes plots as pictures", function()
    local figure = moth.plot.lines {1, 2}
    local path = written(function(writer)
      writer:add_figure("one", figure, 1)
      writer:add_figure("two", {figure, figure}, 1)
    end)
    local one = events(path)[2].summary.value[1].image
    local two = events(path)[3].summary.value[1].image
    assert.same({640, 400, 640, 800}, {one.width, one.height, two.width, two.height})
  end)

  it("writes pictures with boxes and labels", function()
    local path = written(function(writer)
      writer:add_image_with_boxes {"b", moth.zeros(3, 40, 60), moth.tensor {{10, 20, 30, 35}},
                                   rescale = 2, labels = {"cat"}}
    end)
    local image = events(path)[2].summary.value[1].image
    assert.same({80, 120, 3}, {image.height, image.width, image.colorspace})
    local pixels = decoded(image.encoded_image_string)
    local function at(x, y)
      local first = (y * 120 + x) * 3 + 1
      return {unpack(pixels, first, first + 2)}
    end
    assert.same({255, 0, 0}, at(40, 40)) -- the upper edge
    assert.same({255, 0, 0}, at(20, 60)) -- the left edge
    assert.same({0, 0, 0}, at(40, 60))
  end)

  it("writes vectors with labels for the projector", function()
    local _, folder = written(function(writer)
      writer:add_embedding(moth.tensor {{1, 2.5}, {3, 4}}, {{"a\tb", 1}, {"c", 2}},
        moth.ones(2, 3, 4, 5), 7, "my/tag", {"name", "class"})
      writer:add_embedding(moth.tensor {{1, 2}})
    end)
    assert.equal("1\t2.5\n3\t4\n", files.read(folder .. "/00007/my%2ftag/tensors.tsv"))
    assert.equal("name\tclass\na b\t1\nc\t2\n",
      files.read(folder .. "/00007/my%2ftag/metadata.tsv"))
    assert.equal("\137PNG", files.read(folder .. "/00007/my%2ftag/sprite.png"):sub(1, 4))
    local list = files.read(folder .. "/projector_config.pbtxt")
    assert.is_truthy(list:find('tensor_name: "my/tag:00007"', 1, true))
    assert.is_truthy(list:find('tensor_path: "00000/default/tensors.tsv"', 1, true))
    assert.is_truthy(list:find("single_image_dim: 5\n    single_image_dim: 4", 1, true))
  end)

  it("names the argument that is wrong", function()
    local writer = tb.SummaryWriter(new_folder())
    assert.has_error_like(function() writer:add_scalar("a", "b") end,
      "bad argument 'scalar_value' to 'add_scalar'")
    assert.has_error_like(function() writer:add_scalar(1, 2) end, "bad argument 'tag'")
    assert.has_error_like(function() writer:add_scalars("a", {b = "c"}) end,
      "bad argument 'tag_scalar_dict' to 'add_scalars'")
    assert.has_error_like(function() writer:add_histogram("a", moth.ones(3), 1, "best") end,
      "bad argument 'bins' to 'add_histogram' %(one of tensorflow")
    assert.has_error_like(function() writer:add_histogram("a", moth.ones(0)) end,
      "bad argument 'values' to 'add_histogram'")
    assert.has_error_like(function() writer:add_image("a", moth.ones(3)) end,
      "bad argument 'img_tensor' to 'add_image'")
    assert.has_error_like(function() writer:add_image("a", moth.ones(3, 2, 2), 1, nil, "HWX") end,
      "bad argument 'dataformats' to 'add_image'")
    assert.has_error_like(function() writer:add_image("a", moth.ones(5, 2, 2)) end, "1 to 4 ch")
    assert.has_error_like(function() writer.add_scalar("a", 1) end, "writer:add_scalar")
    assert.has_error_like(function() writer:add_graph(3, moth.ones(1)) end,
      "bad argument 'model' to 'add_graph'")
    assert.has_error_like(function() writer:add_figure("a", moth.ones(1)) end,
      "bad argument 'figure' to 'add_figure'")
    assert.has_error_like(function()
      writer:add_image_with_boxes("a", moth.zeros(3, 4, 4), moth.ones(2, 3))
    end, "bad argument 'box_tensor' to 'add_image_with_boxes'")
    assert.has_error_like(function() writer:add_embedding(moth.ones(2, 2), {"a"}) end,
      "bad argument 'metadata' to 'add_embedding'")
    writer:close()
    local blocked = files.write("blocked", "")
    assert.has_error_like(function() tb.SummaryWriter(blocked .. "/run") end,
      "SummaryWriter: the event file cannot be written")
    assert.equal("E_IO", moth.errcode())
  end)
end)

-- ---- pictures ----

local function picture(x, format)
  local path = written(function(writer)
    writer[x:dim() == 4 and "add_images" or "add_image"](writer, {"p", x, 1, dataformats = format})
  end)
  local image = events(path)[2].summary.value[1].image
  local pixels, channels = decoded(image.encoded_image_string)
  assert.equal(channels, image.colorspace)
  return pixels, image
end

describe("add_image", function()
  local x = moth.arange(0, 18):view(3, 2, 3):to(moth.uint8) * 10

  it("writes each layout, bytes unchanged", function()
    local want = x:permute(2, 3, 1):flatten():tolist()
    local pixels, image = picture(x)
    assert.same(want, pixels)
    assert.same({2, 3, 3}, {image.height, image.width, image.colorspace})
    assert.same(want, (picture(x:permute(2, 3, 1), "HWC")))
    assert.same(want, (picture(x:permute(3, 1, 2), "WCH")))
    assert.same(want, (picture(x:permute(3, 1, 2), "wch")))
    local four = moth.cat({x, x:narrow(1, 1, 1)}, 1)
    assert.same(four:permute(2, 3, 1):flatten():tolist(), (picture(four)))
  end)

  it("scales floats, clamps them, and repeats a grey channel", function()
    local pixels, image = picture(moth.tensor{{0, 0.5, 1}, {-1, 2, 0 / 0}}, "HW")
    assert.same({0, 0, 0, 127, 127, 127, 255, 255, 255, 0, 0, 0, 255, 255, 255, 0, 0, 0}, pixels)
    assert.equal(3, image.colorspace)
    assert.same(pixels, (picture(moth.tensor{{{0, 0.5, 1}, {-1, 2, 0 / 0}}})))
  end)

  it("places a batch in rows of 8", function()
    local batch = moth.arange(1, 11):view(10, 1, 1, 1):expand(10, 1, 2, 1):to(moth.uint8)
    local pixels, image = picture(batch)
    assert.same({4, 8}, {image.height, image.width})
    assert.equal(1, pixels[1])
    assert.equal(8, pixels[3 * 7 + 1])
    assert.equal(10, pixels[3 * (2 * 8 + 1) + 1])
    assert.equal(0, pixels[3 * (2 * 8 + 2) + 1])
  end)
end)

-- ---- files ----

describe("an event file", function()
  it("is written after max_queue events, on flush and on close", function()
    local writer = tb.SummaryWriter{new_folder(), max_queue = 3}
    local path = writer.file.path
    local function n() return #events(path) - 1 end
    writer:add_scalar("a", 1)
    writer:add_scalar("a", 2)
    assert.equal(0, n())
    writer:add_scalar("a", 3)
    assert.equal(3, n())
    writer:add_scalar("a", 4)
    writer:flush()
    assert.equal(4, n())
    writer:add_scalar("a", 5)
    writer:close()
    assert.equal(5, n())
  end)

  it("is written after flush_secs by the next event", function()
    local writer = tb.SummaryWriter{new_folder(), max_queue = 1000, flush_secs = 0}
    writer:add_scalar("a", 1)
    assert.equal(2, #events(writer.file.path))
    writer:close()
  end)

  it("continues in a new file after close", function()
    local folder = new_folder()
    local writer = tb.SummaryWriter(folder)
    writer:add_scalar("a", 1, 1)
    writer:close()
    writer:close()
    writer:add_scalar("a", 2, 2)
    writer:close()
    assert.same({1, 2}, tb.scalars(folder).a.value)
  end)

  it("is closed after with, which passes results and errors on", function()
    local writer = tb.SummaryWriter(new_folder())
    assert.same({7, 8}, {writer:with(function(w, x)
      assert.equal(writer, w)
      return x, 8
    end, 7)})
    assert.is_nil(writer.file)
    assert.has_error_like(function() writer:with(function() error "stop" end) end, "stop")
  end)

  it("hides the steps that a resumed run repeats", function()
    local folder = new_folder()
    tb.SummaryWriter(folder):with(function(w) for i = 1, 5 do w:add_scalar("a", i, i) end end)
    tb.SummaryWriter{folder, purge_step = 4}:with(function(w) w:add_scalar("a", -4, 4) end)
    local a = tb.scalars(folder).a
    assert.same({1, 2, 3, -4}, a.value)
    assert.same({1, 2, 3, 4}, a.step)
  end)

  it("has a valid beginning after kill -9 at any moment", function()
    for i = 1, 8 do
      local folder = new_folder()
      child.kill_after(5000 + 3000 * i, function()
        local writer = tb.SummaryWriter(folder)
        for step = 1, 1e7 do writer:add_scalar("a", step, step) end
      end)
      local a = tb.scalars(folder).a
      for step, value in ipairs(a and a.value or {}) do assert.equal(step, value) end
    end
  end)

  it("gets no events of a forked child, which writes a file of its own", function()
    local folder = new_folder()
    local writer = tb.SummaryWriter(folder)
    local path = writer.file.path
    writer:add_scalar("a", 1, 1)
    assert.is_true(child.run(function()
      writer:add_scalar("b", 2, 2)
      writer:flush()
    end))
    writer:close()
    assert.equal(2, #events(path))
    local all = tb.scalars(folder)
    assert.same({1}, all.a.value)
    assert.same({2}, all.b.value)
  end)

  it("keeps its events when the disk is full, and writes them to a new file", function()
    assert.is_true(child.run(function()
      ffi.cdef "void (*moth_spec_signal(int number, intptr_t handler))(int) __asm__(\"signal\");"
      ffi.C.moth_spec_signal(25, 1) -- ignore SIGXFSZ
      local folder = new_folder()
      local writer = tb.SummaryWriter{folder, max_queue = 1000}
      child.limit_files(200)
      for i = 1, 20 do writer:add_scalar("a", i, i) end
      local ok, problem = pcall(writer.flush, writer)
      assert(not ok and problem:find "SummaryWriter: ", problem)
      assert(moth.errcode() == "E_IO")
    end))
  end)
end)

-- ---- reading ----

describe("read", function()
  local whole

  setup(function()
    whole = files.read((written(function(writer)
      writer:add_scalar("a", 1, 1)
      writer:add_text("note", "hello", 2)
      writer:add_histogram("h", moth.arange(5), 3, 4)
    end)))
  end)

  local function read_all(text)
    local n = 0
    for _ in tb.read{bytes = text} do n = n + 1 end
    return n
  end

  it("returns all events; a cut record at the end is left out", function()
    assert.equal(4, read_all(whole))
    assert.equal(3, read_all(whole:sub(1, -2)))
    assert.equal(0, read_all(whole:sub(1, 5)))
    assert.equal(0, read_all(""))
  end)

  it("returns nil after the end", function()
    local next_event = tb.read{bytes = ""}
    assert.is_nil(next_event())
    assert.is_nil(next_event())
  end)

  it("raises for a wrong checksum", function()
    local broken = whole:sub(1, 20) .. "\1" .. whole:sub(22)
    assert.has_error_like(function() read_all(broken) end, "checksum of an event at byte 12")
    assert.equal("E_FORMAT", moth.errcode())
    assert.has_error_like(function() read_all("\1" .. whole:sub(2)) end, "checksum of a length")
    assert.has_error_like(function() tb.read(files.path "absent")() end, "absent")
  end)

  it("refuses or reads files with random changes, and reads no byte beyond them", function()
    assert.is_true(child.run(function()
      return require("spec.fuzz.event_files").run(1500, 1) > 300
    end))
  end)
end)

describe("crc32c", function()
  it("has the check value of the standard", function()
    local of = require("moth.utils.tensorboard.crc32c").of
    assert.equal(bit.tobit(0xe3069283), of(ffi.cast("const uint8_t *", "123456789"), 0, 9))
    assert.equal(0, of(ffi.cast("const uint8_t *", ""), 0, 0))
  end)
end)
