-- moth.utils.CSVLogger and JSONLogger: rows of steps, other values, files that are continued, whole
-- lines after a crash.

local moth = require "moth"
local child = require "spec.support.child"
local files = require "spec.support.files"
local json = require "moth.json"

setup(files.setup)
teardown(files.teardown)

local count = 0

local function new_folder()
  count = count + 1
  return files.path("run" .. count)
end

-- A table without its times.
local function csv(folder)
  return (files.read(folder .. "/metrics.csv"):gsub("(\n[^,]*),%d+%.%d+", "%1"))
end

local function objects(folder, name)
  local list = {}
  for line in files.read(folder .. "/" .. (name or "metrics.jsonl")):gmatch "([^\n]*)\n" do
    local object = assert(json.decode(line))
    assert.is_true(math.abs(object.wall_time - os.time()) < 60)
    object.wall_time = nil
    list[#list + 1] = object
  end
  return list
end

local function log(logger)
  for i = 1, 3 do
    logger:add_scalar("loss", 1 / i, i)
    logger:add_scalar{"lr", moth.tensor{0.5}, i}
    if i == 2 then logger:add_scalars("val", {acc = 0.25, ['a,"b'] = 0 / 0}, i) end
  end
end

local function log_other(logger)
  logger:add_text("note", "two\n\"lines\"", 2)
  logger:add_hparams({lr = 0.5, name = "adam", fast = true}, {acc = moth.tensor(0.75)}, nil,
    "first")
  logger:add_histogram("h", moth.tensor{1, 2, 0 / 0}, 3)
  logger:add_image("i", moth.ones(3, 2, 2), 1)
  logger:add_graph()
end

local OTHER = {{step = 2, tag = "note", text = "two\n\"lines\""},
  {run = "first", hparams = {lr = 0.5, name = "adam", fast = true}, metrics = {acc = 0.75}},
  {step = 3, tag = "h", histogram = {min = 1, max = 2, num = 2, sum = 3, sum_squares = 5}}}

describe("CSVLogger", function()
  it("writes a row for each step and a column for each name", function()
    local folder = new_folder()
    local logger = moth.utils.CSVLogger(folder)
    assert.equal(folder, logger:get_logdir())
    logger:with(log)
    assert.equal('step,wall_time,loss,lr,"val/a,""b",val/acc\n1,1,0.5,,\n2,0.5,0.5,nan,0.25\n'
      .. "3,0.3333333333333333,0.5,,\n", csv(folder))
  end)

  it("writes other values to notes.jsonl", function()
    local folder = new_folder()
    moth.utils.CSVLogger(folder):with(log_other)
    assert.same(OTHER, objects(folder, "notes.jsonl"))
  end)

  it("continues a table, without the steps from purge_step on", function()
    local folder = new_folder()
    moth.utils.CSVLogger(folder):with(log)
    moth.utils.CSVLogger{folder, purge_step = 3}:with(function(logger)
      logger:add_scalar("val/a,\"b", 7, 3)
      logger:add_scalar("new", 8, 3)
    end)
    assert.equal('step,wall_time,loss,lr,"val/a,""b",val/acc,new\n1,1,0.5,,,\n2,0.5,0.5,nan,0.25,\n'
      .. "3,,,7,,8\n", csv(folder))
  end)

  it("removes an incomplete last line of an existing table", function()
    local folder = new_folder()
    moth.utils.CSVLogger(folder):with(function(logger) logger:add_scalar("a", 1, 1) end)
    local path = folder .. "/metrics.csv"
    local file = io.open(path, "ab")
    file:write "2,17"
    file:close()
    moth.utils.CSVLogger(folder):with(function(logger) logger:add_scalar("a", 2, 2) end)
    assert.equal("step,wall_time,a\n1,1\n2,2\n", csv(folder))
  end)

  it("starts a row when a name repeats, also without a step", function()
    local folder = new_folder()
    moth.utils.CSVLogger(folder):with(function(logger)
      logger:add_scalar("a", 1)
      logger:add_scalar("a", math.huge)
    end)
    assert.equal("step,wall_time,a\n,1\n,inf\n", csv(folder))
  end)

  it("is read by data.csv", function()
    local folder = new_folder()
    moth.utils.CSVLogger(folder):with(function(logger)
      for i = 1, 3 do logger:add_scalar("a", i / 2, i) end
    end)
    local rows = moth.data.csv(folder .. "/metrics.csv")
    assert.equal(3, rows:len())
  end)

  it("writes a child's rows to a file of its own", function()
    local folder = new_folder()
    local logger = moth.utils.CSVLogger(folder)
    logger:add_scalar("a", 1, 1)
    logger:add_scalar("a", 2, 2)
    assert.is_true(child.run(function()
      logger:add_scalar("b", 3, 3)
      logger:close()
    end))
    logger:close()
    assert.equal("step,wall_time,a\n1,1\n2,2\n", csv(folder))
    for name in require("lfs").dir(folder) do
      if name:find "%d" then
        assert.is_truthy(files.read(folder .. "/" .. name):find("^step,wall_time,"))
      end
    end
  end)
end)

describe("JSONLogger", function()
  it("writes an object for each step", function()
    local folder = new_folder()
    moth.utils.JSONLogger(folder):with(log)
    assert.same({{step = 1, loss = 1, lr = 0.5},
      {step = 2, loss = 0.5, lr = 0.5, ["val/acc"] = 0.25, ['val/a,"b'] = json.null},
      {step = 3, loss = 1 / 3, lr = 0.5}}, objects(folder))
  end)

  it("writes texts, hyperparameters and extremes of histograms", function()
    local folder = new_folder()
    moth.utils.JSONLogger(folder):with(log_other)
    assert.same(OTHER, objects(folder))
  end)

  it("continues a file, without the steps from purge_step on", function()
    local folder = new_folder()
    moth.utils.JSONLogger(folder):with(log)
    moth.utils.JSONLogger{folder, purge_step = 2}:with(function(logger)
      logger:add_scalar("loss", 9, 2)
    end)
    assert.same({{step = 1, loss = 1, lr = 0.5}, {step = 2, loss = 9}}, objects(folder))
  end)

  it("has whole lines after kill -9 at any moment", function()
    for i = 1, 4 do
      local folder = new_folder()
      child.kill_after(4000 * i, function()
        local logger = moth.utils.JSONLogger(folder)
        for step = 1, 1e7 do logger:add_scalar("a", step, step) end
      end)
      local file = io.open(folder .. "/metrics.jsonl")
      if file then
        file:close()
        for step, object in ipairs(objects(folder)) do
          assert.same({step = step, a = step}, object)
        end
      end
    end
  end)

  it("names the argument that is wrong", function()
    local logger = moth.utils.JSONLogger(new_folder())
    assert.has_error_like(function() logger:add_scalar("a", {}) end,
      "bad argument 'scalar_value' to 'add_scalar'")
    assert.has_error_like(function() logger:add_hparams({a = {}}, {}) end,
      "bad argument 'hparam_dict' to 'add_hparams'")
    assert.has_error_like(function() logger.add_scalar("a", 1) end, "logger:add_scalar")
    logger:close()
    local blocked = files.write("blocked", "")
    assert.has_error_like(function() moth.utils.JSONLogger(blocked .. "/run") end,
      "JSONLogger: the file cannot be written")
    assert.equal("E_IO", moth.errcode())
  end)
end)

describe("a logger at the end of a program", function()
  it("writes its rows without close", function()
    local folder = new_folder()
    local code = ("local l = require('moth').utils.JSONLogger%q l:add_scalar('a', 1, 1)"):format(
      folder)
    assert.equal(0, os.execute(("./moth -e %q"):format(code)))
    assert.same({{step = 1, a = 1}}, objects(folder))
  end)
end)
