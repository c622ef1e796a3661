-- Runs two networks that were trained with PyTorch: handwritten digits from a .pth file (read as
-- data, nothing in it is run), and voice activity from a safetensors file.
-- Run it with: ./moth examples/10_checkpoints.lua --data FOLDER

local moth = require "moth"
local nn, F = moth.nn, moth.nn.functional

local parser = require "argparse"("10_checkpoints", "Two checkpoints of others, loaded.")
parser:option("--data", "Folder of the unpacked files.", ".")
local args = parser:parse()

local NEEDED = [[
The checkpoints and their test data are not in %s. To get them there:
  pip download --no-deps -d %s digit-recognizer-py==0.1.0 silero-vad==6.2.3
  cd %s && for wheel in *.whl; do unzip -qo $wheel; done
  apt-get download python3-sklearn alsa-utils && for p in *.deb; do dpkg -x $p .; done]]

local function path(name)
  for _, base in ipairs {args.data .. "/", "/"} do
    local file = io.open(base .. name, "rb")
    if file then
      file:close()
      return base .. name
    end
  end
  print((NEEDED:gsub("%%s", (args.data:gsub("%%", "%%%%")))))
  print("missing: " .. name)
  os.exit(0)
end

local SKLEARN = "usr/lib/python3/dist-packages/sklearn/datasets/data/"

local function close(name, got, wanted, tolerance)
  assert(math.abs(got - wanted) <= tolerance, ("%s is %.5f, expected %.5f"):format(name, got,
    wanted))
end

-- ---- handwritten digits, a .pth file ----

local Digits = nn.class("Digits", nn.Module)

function Digits:init()
  local function block(from, to)
    return nn.Conv2d{from, to, kernel_size = 3, padding = 1}, nn.ReLU(), nn.MaxPool2d(2)
  end
  self.conv_layers = nn.Sequential()
  for _, channels in ipairs {{1, 32}, {32, 64}, {64, 128}} do
    self.conv_layers:extend{block(channels[1], channels[2])}
  end
  self.fc_layers = nn.Sequential(nn.Linear(1152, 256), nn.ReLU(), nn.Linear(256, 10))
end

function Digits:forward(x)
  return self.fc_layers(self.conv_layers(x):flatten(2))
end

local function digits()
  local net = Digits()
  net:load_state_dict(moth.load(path "digit_recognizer/models/handwriting_model.pth"))
  net:eval()
  local rows = moth.data.csv{path(SKLEARN .. "digits.csv.gz"), header = false}:tensor()
  local images = rows[{{}, {1, 64}}]:view(-1, 1, 8, 8) / 16
  local labels = rows[{{}, 65}]:long() + 1
  local x = F.interpolate{images, size = {20, 20}, mode = "bilinear"}
  x = (F.pad(x, {4, 4, 4, 4}) - 0.1307) / 0.3081
  local logits = net(x)
  local first = "5.6480 -3.1148 -2.0046 -5.6119 -4.8450 -2.0269 -1.8074 -0.2538 -2.7349 -3.5903"
  local i = 0
  for wanted in first:gmatch "%S+" do
    i = i + 1
    close("logit " .. i, logits[{1, i}]:item(), tonumber(wanted), 1e-3)
  end
  local right = logits:argmax(2):eq(labels):sum():item()
  local loss = F.cross_entropy(logits, labels):item()
  print(("digits: %d of %d right (%.2f %%), cross entropy %.5f"):format(right, #labels,
    100 * right / #labels, loss))
  assert(right == 1467, "1467 are right in PyTorch")
  close("cross entropy", loss, 0.50378, 1e-4)
end

-- ---- voice activity, a safetensors file ----

local Voice = nn.class("Voice", nn.Module)

function Voice:init()
  self.stft_conv = nn.Conv1d{1, 258, kernel_size = 256, stride = 128, bias = false}
  self.conv1 = nn.Conv1d{129, 128, kernel_size = 3, padding = 1}
  self.conv2 = nn.Conv1d{128, 64, kernel_size = 3, stride = 2, padding = 1}
  self.conv3 = nn.Conv1d{64, 64, kernel_size = 3, stride = 2, padding = 1}
  self.conv4 = nn.Conv1d{64, 128, kernel_size = 3, padding = 1}
  self.lstm_cell = nn.LSTMCell(128, 128)
  self.final_conv = nn.Conv1d{128, 1, kernel_size = 1}
end

--- A frame (1, 576) at 16 kHz and the state -> probability of speech, state.
function Voice:forward(frame, state)
  local x = self.stft_conv(F.pad{frame:unsqueeze(2), {0, 64}, mode = "reflect"})
  x = (x[{{}, {1, 129}}]:square() + x[{{}, {130, 258}}]:square()):sqrt()
  x = F.relu(self.conv1(x))
  x = F.relu(self.conv2(x))
  x = F.relu(self.conv3(x))
  x = F.relu(self.conv4(x))
  local h, c = self.lstm_cell(x:squeeze(-1), state)
  return self.final_conv(F.relu(h):unsqueeze(-1)):sigmoid(), {h, c}
end

-- The samples of a 16-bit mono wav file at 48 kHz, as 16 kHz between -1 and 1.
local function sound(name)
  local file = assert(io.open(path(name), "rb"))
  local bytes = file:read "*a"
  file:close()
  local start = select(2, bytes:find("data....", 1))
  local samples = moth.frombuffer(bytes, {dtype = moth.int16, offset = start}):float() / 32768
  local thirds = math.floor(#samples / 3)
  return samples[{{1, thirds * 3}}]:view(thirds, 3):mean(2)
end

local SPEECH = [[.0377 .0586 .0621 .9610 .9864 .9954 .9996 .9987 .9983 .9983 .9964 .9799 .9923 .9917
.9894 .8299 .1290 .0344 .0168 .0148 .0137 .0122 .0108 .0098 .0762 .5753 .9438 .9648 .9986 1.000
1.000 1.000 .9999 .9999 .9998 .9998 1.000 1.000 1.000 1.000 .9999 .9999 .9993 .9355]]

local function voice()
  local net = Voice()
  net:load_state_dict(moth.load(path "silero_vad/data/silero_vad_16k.safetensors"))
  net:eval()
  local samples = F.pad(sound "usr/share/sounds/alsa/Front_Center.wav", {64, 0})
  local state, bars, frame = nil, {}, 0
  for wanted in SPEECH:gmatch "%S+" do
    local speech
    speech, state = net(samples[{{frame * 512 + 1, frame * 512 + 576}}]:unsqueeze(1), state)
    frame = frame + 1
    close("frame " .. frame, speech:item(), tonumber(wanted), 1e-3)
    bars[frame] = speech:item() > 0.5 and "#" or "."
  end
  assert(frame == 44, "there are 44 frames")
  print("voice:  " .. table.concat(bars) .. "  (Front ... Center), each frame as in PyTorch")
end

moth.no_grad(digits)
moth.no_grad(voice)
