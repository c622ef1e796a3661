-- Every example runs with short settings, checks itself and exits with 0.

local files = require "spec.support.files"

local launcher = debug.getregistry()["moth.launcher"]

local function quoted(word) return "'" .. word:gsub("'", "'\\''") .. "'" end

--- Runs the program with these arguments; returns its output and its exit status.
local function moth(...)
  local words = {quoted(launcher.program)}
  for _, word in ipairs {...} do words[#words + 1] = quoted(word) end
  local pipe = assert(io.popen("{ " .. table.concat(words, " ") .. "\n} 2>&1; echo \"status $?\""))
  local text = pipe:read("*a")
  pipe:close()
  local output, status = text:match("^(.*)status (%d+)\n$")
  return output, tonumber(status)
end

-- Runs an example that must exit with 0. @return its output
local function run(...)
  local output, status = moth(...)
  assert.equal(0, status, output)
  return output
end

local function has(output, ...)
  for _, wanted in ipairs {...} do
    assert.is_truthy(output:find(wanted), wanted .. " is not in\n" .. output)
  end
end

local function exists(path)
  local file = io.open(path)
  if file then file:close() end
  return file ~= nil
end

local function names()
  local list, pipe = {}, io.popen("ls examples")
  for name in pipe:lines() do
    if name:find("^%d%d_.*%.lua$") then list[#list + 1] = name end
  end
  pipe:close()
  return list
end

setup(files.setup)
teardown(files.teardown)

describe("each example", function()
  local known = {["01_tensors.lua"] = true, ["02_autograd.lua"] = true, ["03_xor.lua"] = true,
                 ["04_mnist.lua"] = true, ["05_char_lstm.lua"] = true, ["06_gpt.lua"] = true,
                 ["07_extending.lua"] = true, ["08_resume.lua"] = true, ["09_cartpole.lua"] = true,
                 ["10_checkpoints.lua"] = true, ["11_vnet.lua"] = true,
                 ["12_word2vec.lua"] = true, ["13_detection.lua"] = true,
                 ["14_transfer.lua"] = true, ["15_digits.lua"] = true,
                 ["16_keywords.lua"] = true, ["17_text.lua"] = true, ["18_filter.lua"] = true,
                 ["19_distributed.lua"] = true, ["20_actors.lua"] = true}

  for _, name in ipairs(names()) do
    it(name .. " has a claim below, is short, has a header, and ends with assertions", function()
      assert.is_true(known[name], "no spec here runs it")
      local text = files.read("examples/" .. name)
      local _, lines = text:gsub("\n", "")
      assert.is_true(lines < 150, lines .. " lines")
      assert.equal("-- ", text:sub(1, 3))
      assert.is_truthy(text:find("./moth examples/" .. name, 1, true), "does not say how to run it")
      local tail = text:sub(-500)
      assert.is_truthy(tail:find "assert%(", "no assertion near its end")
    end)
  end
end)

if not launcher then
  pending("running the examples: these specs run under ./moth test")
  return
end

describe("example", function()
  it("01 shows tensors and indexing", function()
    has(run "examples/01_tensors.lua", "moth%.float32")
  end)

  it("02 prints PyTorch's five numbers and the Mul", function()
    local output = run "examples/02_autograd.lua"
    has(output, "3 .*1%.7.*3 .*1%.4.*5%.1")
    has(output, "Mul", "gradients agree with finite differences")
  end)

  it("03 learns XOR", function()
    has(run "examples/03_xor.lua", "step  2000", "1 xor 1 = %-?0%.0", "of 1000 fuzzy points right")
  end)

  it("03 fails if it has not learned", function()
    local output, status = moth("examples/03_xor.lua", "--steps", "0")
    assert.are_not.equal(0, status)
    has(output, "XOR was not learned")
  end)

  it("03 explains its options", function()
    has(run("examples/03_xor.lua", "--help"), "%-%-steps", "%-%-seed")
    local output, status = moth("examples/03_xor.lua", "--stepps", "3")
    assert.are_not.equal(0, status)
    has(output, "stepps")
  end)

  it("01 and 02 have a help text and raise for unknown options", function()
    for _, name in ipairs {"examples/01_tensors.lua", "examples/02_autograd.lua"} do
      has(run(name, "--help"), "Usage:")
      local output, status = moth(name, "--steps", "3")
      assert.are_not.equal(0, status)
      has(output, "unknown option '%-%-steps'")
    end
  end)

  it("04, 07 and 09 exit with 0 when they are cut short", function()
    has(run("examples/04_mnist.lua", "--limit", "10", "--out", files.path("few.safetensors")),
      "and loaded: accuracy")
    has(run("examples/07_extending.lua", "--steps", "50"), "takes some 500 steps to learn")
    has(run("examples/09_cartpole.lua", "--episodes", "20"), "takes up to 1000 rounds")
  end)

  local FASHION = "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"

  it("04 trains on Fashion-MNIST, saves, loads and has the same results", function()
    if not exists(FASHION) then
      pending "Fashion-MNIST is not installed"
      return
    end
    local out = files.path("fashion.safetensors")
    local output = run("examples/04_mnist.lua", "--limit", "600", "--epochs", "3", "--lr", "0.05",
      "--batch-size", "20", "--out", out)
    has(output, "epoch 3  test loss %d", "loaded: accuracy %d", "images/s")
    assert.is_nil(output:find("\r", 1, true))
    assert.is_nil(output:find("drawn by this script", 1, true))
    assert.is_true(exists(out))
  end)

  it("04 says that the images are missing and trains on digits that it draws", function()
    local hide = [[
      local bytes = require "moth.io.bytes"
      local open = bytes.open
      function bytes.open(path, ...)
        path = path:gsub("^/usr/share/datasets/", "/not/there/")
        return (open(path, ...))
      end
      dofile "examples/04_mnist.lua"]]
    local output = run("-e", hide, "--limit", "600", "--epochs", "3", "--lr", "0.05",
      "--batch-size", "20", "--out", files.path("drawn.safetensors"))
    has(output, "dataset%-fashion%-mnist", "Training on digits drawn by this script instead",
      "epoch 3", "loaded: accuracy %d")
  end)

  it("04 reads the four files of a folder, and raises if one is missing", function()
    local output, status = moth("examples/04_mnist.lua", "--data", files.folder .. "/none")
    assert.are_not.equal(0, status)
    has(output, "none/train%-images%-idx3%-ubyte%(%.gz%)' was not found")
    local function u32(n)
      return string.char(math.floor(n / 2 ^ 24), math.floor(n / 2 ^ 16) % 256,
        math.floor(n / 256) % 256, n % 256)
    end
    for _, part in ipairs {"train", "t10k"} do
      local images, labels = {}, {}
      for i = 1, 200 do -- a bar whose height is the class
        local class = i % 10
        labels[i] = string.char(class)
        images[i] = ("\255"):rep(28 * (2 * class + 4)) .. ("\0"):rep(28 * (24 - 2 * class))
      end
      files.write(part .. "-images-idx3-ubyte", "\0\0\8\3" .. u32(200) .. u32(28) .. u32(28)
        .. table.concat(images))
      files.write(part .. "-labels-idx1-ubyte", "\0\0\8\1" .. u32(200) .. table.concat(labels))
    end
    has(run("examples/04_mnist.lua", "--data", files.folder, "--epochs", "15", "--lr", "0.05",
      "--batch-size", "10", "--out", files.path("own.safetensors")), "loaded: accuracy %d")
  end)

  it("04 has the same results with the same seed", function()
    local function once(seed)
      return run("examples/04_mnist.lua", "--limit", "300", "--epochs", "2", "--lr", "0.1",
        "--batch-size", "10", "--seed", seed, "--out", files.path("s.safetensors"))
        :match("epoch 2  (test loss [%d.]+)")
    end
    local first = once("3")
    assert.equal(first, once("3"))
    assert.are_not.equal(first, once("4"))
  end)

  local WITHOUT_BIBLE = [[
    local popen = io.popen
    io.popen = function(command, ...)
      if command:find "^bible" then command = "true" end
      return popen(command, ...)
    end
    arg[0] = "examples/x.lua"
    dofile "examples/%s"]]

  it("05 writes text with an LSTM, or names the package that has the text", function()
    local output = run("-e", WITHOUT_BIBLE:format "05_char_lstm.lua", "--steps", "30", "--write",
      "20", "--length", "16")
    has(output, "bible%-kjv", "step    30  validation loss %d", "parameters",
      "\n[%w ]+%.?[^:]+\npeak")
  end)

  it("06 writes text with a GPT, or names the package that has the text", function()
    local output = run("-e", WITHOUT_BIBLE:format "06_gpt.lua", "--steps", "5", "--write", "20",
      "--layers", "2", "--width", "32", "--context", "16")
    has(output, "bible%-kjv", "step     5  validation loss %d", "\n[%w ]+%.?[^:]+\npeak")
  end)

  it("05 and 06 read the Bible if it is installed", function()
    if os.execute "command -v bible >/dev/null" ~= 0 then
      pending "the package bible-kjv is not installed"
      return
    end
    has(run("examples/05_char_lstm.lua", "--steps", "2", "--write", "5"), "111487 parameters")
    has(run("examples/06_gpt.lua", "--steps", "1", "--write", "5", "--batch-size", "2"),
      "817664 parameters")
  end)

  it("07 has its own Function, three levels of classes and hooks", function()
    has(run "examples/07_extending.lua", "agrees with finite differences", "Gated%(",
      "scale=0%.%d+, learned", "3 different weights")
  end)

  it("08 resumes a run bit for bit", function()
    has(run "examples/08_resume.lua", "equal bit for bit")
  end)

  it("09 balances the pole within the loop of its game", function()
    has(run "examples/09_cartpole.lua", "steps a round after %d+ rounds", "0%.0 MB of tensors live")
  end)

  it("10 names the source of its checkpoints, or reaches PyTorch's figures", function()
    has(run("examples/10_checkpoints.lua", "--data", files.folder), "pip download",
      "missing: digit_recognizer/models/handwriting_model.pth")
    local folder = os.getenv "MOTH_CHECKPOINTS"
    if not folder then
      pending "MOTH_CHECKPOINTS names no folder of the unpacked checkpoints"
      return
    end
    has(run("examples/10_checkpoints.lua", "--data", folder), "1467 of 1797 right", "voice:")
  end)

  it("11 finds bodies in volumes", function()
    has(run "examples/11_vnet.lua", "step  80  Dice 0%.9", "held out: Dice 0%.9%d")
    has(run("examples/11_vnet.lua", "--steps", "2", "--size", "8"), "take some 80 steps")
  end)

  it("12 learns word vectors, on one thread and on threads that share them", function()
    for _, workers in ipairs {"0", "2"} do
      has(run("-e", WITHOUT_BIBLE:format "12_word2vec.lua", "--steps", "600", "--workers", workers),
        "king    is near to %a+", "loss of a pair: 4%.%d+ at first, 2%.%d+ now")
    end
  end)

  it("15 names the package of its data, or learns digits, logs, and resumes", function()
    has(run("examples/15_digits.lua", "--data", files.path "none"), "none is missing: .*sklearn")
    local digits = "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz"
    digits = os.getenv "MOTH_DIGITS" or digits
    if not exists(digits) then
      pending "python3-sklearn is not installed, and MOTH_DIGITS names no digits.csv.gz"
      return
    end
    local words = {"examples/15_digits.lua", "--data", digits, "--logs", files.path "digits",
      "--epochs", "6"}
    has(run(unpack(words)), "the best is epoch %d", "test accuracy %d+.%d+ %% of 1078 digits")
    assert.is_true(exists(files.path "digits/best.safetensors"))
    words[#words], words[#words + 1] = "8", "--resume"
    has(run(unpack(words)), "resumed in epoch 6", "epoch 8/8", "test accuracy %d+")
  end)

  it("13 finds rectangles with a net from a Darknet file", function()
    has(run "examples/13_detection.lua", "step 400", "%d+ of %d+ rectangles found, of %d+ boxes")
    local output, status = moth("examples/13_detection.lua", "--steps", "1")
    assert.are_not.equal(0, status)
    has(output, "assertion failed")
  end)

  it("17 learns from which part of a book a sentence is", function()
    has(run("-e", WITHOUT_BIBLE:format "17_text.lua", "--epochs", "3", "--lr", "0.02"),
      "bible%-kjv", "epoch 3  test accuracy %d%d", "words and pairs")
    if os.execute "command -v bible >/dev/null" ~= 0 then
      pending "the package bible-kjv is not installed"
      return
    end
    has(run("examples/17_text.lua", "--epochs", "3", "--every", "10", "--lr", "0.02"),
      "epoch 3  test accuracy [56]%d%.%d", "harp.  +Poetry")
  end)

  it("14 learns from a few images of Fashion-MNIST, or from stripes", function()
    has(run("examples/14_transfer.lua", "--images", "192", "--epochs", "2"),
      "20 pictures of bag, boot, dress, sandal", "with weights  ", "without weights  ",
      "the result says little")
  end)

  it("16 learns spoken words, or hums some and names the package that speaks", function()
    has(run("examples/16_keywords.lua", "--espeak", "none", "--epochs", "6", "--voices", "4"),
      "apt%-get install espeak%-ng", "96 words for training, 32 for testing", "epoch  6  loss %d",
      "unheard voices: accuracy [01]%.%d")
    if os.execute "command -v espeak-ng >/dev/null" ~= 0 then
      pending "the package espeak-ng is not installed"
      return
    end
    has(run("examples/16_keywords.lua", "--epochs", "2", "--voices", "4"), "espeak%-ng speaks",
      "unheard voices: accuracy %d")
  end)

  it("18 learns to remove noise, from drawings if there are no photographs", function()
    local out = os.tmpname() .. ".png"
    has(run("examples/18_filter.lua", "--data", "/none", "--steps", "20", "--out", out),
      "no photographs", "the noisy picture has 2%d%.%d+ dB, the filtered one %d%d%.", "written to ")
    os.remove(out)
  end)

  it("19 trains in one process, or names the package of MPI", function()
    if not require("moth").distributed.is_available() then
      pending "no MPI is installed"
      return
    end
    has(run("examples/19_distributed.lua", "--data", "/none", "--samples", "1000"),
      "epoch 1  train loss %d", "1 process: accuracy %d+%.%d+ %%, equal nets")
  end)

  it("19 trains in three processes, by which its batch of 64 is no multiple", function()
    if os.execute "command -v mpirun >/dev/null 2>&1" ~= 0 then
      pending "needs an MPI: apt-get install openmpi-bin"
      return
    end
    has(run("run", "-n", "3", "examples/19_distributed.lua", "--data", "/none", "--samples",
      "1500"), "epoch 1  train loss %d", "3 processes: accuracy %d+%.%d+ %%, equal nets")
  end)

  it("20 balances the pole in one process, or names the package of MPI", function()
    if not require("moth").distributed.is_available() then
      pending "no MPI is installed"
      return
    end
    has(run("examples/20_actors.lua", "--goal", "100"), "1 actor: at best %d+ steps a round")
  end)
end)
