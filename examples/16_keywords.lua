-- Keyword spotting: a net learns eight spoken words from one half of espeak-ng's voices, and is
-- tested with voices and accents that it has not heard.
-- Run it with: ./moth examples/16_keywords.lua [--epochs N] [--voices N] ...
-- The speech comes from Debian's package espeak-ng. Without it the script makes its own words.

local moth = require "moth"
local nn, F, optim, data = moth.nn, moth.nn.functional, moth.optim, moth.data
local audio, metrics = moth.audio, moth.metrics

local parser = require "argparse"("16_keywords", "Learns to recognize spoken words.")
parser:option("--epochs", "Passes over the training words.", "20"):convert(tonumber)
parser:option("--voices", "The number of voices to use (default: all)."):convert(tonumber)
parser:option("--seed", "Seed of the random numbers.", "1"):convert(tonumber)
parser:option("--espeak", "The program that speaks.", "espeak-ng")
parser:option("--device", "Device: cpu or cuda.", "cpu")
local args = parser:parse()
moth.manual_seed(args.seed)

local WORDS = {"yes", "no", "up", "down", "left", "right", "stop", "go"}
local RATE = 16000

-- ---- speech ----

-- Every second voice is for testing, with other accents.
local VOICES = {"f1", "m1", "f2", "m2", "f3", "m3", "f4", "m4", "f5", "m5", "Alicia", "Andy",
  "Annie", "Denis", "Diogo", "Gene", "Jacky", "Lee", "Marco", "Mario", "Michael", "Mike", "adam",
  "anika", "antonio", "belinda", "benjamin", "boris", "caleb", "david", "ed", "edward", "grandma",
  "grandpa", "gustave", "iven", "john", "kaukovalta", "linda", "max", "michel", "norbert", "paul",
  "pedro", "quincy", "rob", "robert", "sandro", "shelby", "steph", "travis", "victor"}
local ACCENTS = {train = {"en-us", "en-gb", "en-gb-scotland"}, test = {"en-029", "en-gb-x-rp"}}

local resample = audio.Resample(22050, RATE)

local function spoken(word, voice, accent, speed)
  local pipe = assert(io.popen(("'%s' -v %s+%s -s %d --stdout %s"):format(args.espeak, accent,
    voice, speed, word)))
  local waveform, rate = moth.io.read_wav{bytes = pipe:read "*a"}
  pipe:close()
  return rate == 22050 and resample(waveform) or audio.resample(waveform, rate, RATE)
end

-- Words of this script: three vowels each, harmonics of a pitch around two formants.
local FORMANTS = {{300, 2300}, {650, 1100}, {400, 800}, {500, 1800}}

local function hummed(label, pitch, speed)
  local parts = {}
  for part = 0, 2 do
    local bit = math.floor((label - 1) / 2 ^ part) % 2
    local t = moth.arange(RATE * 0.15 * 170 / speed) / RATE
    local wave = moth.zeros_like(t)
    for f = pitch, 4000, pitch do
      local gain = 0
      for _, formant in ipairs(FORMANTS[bit + 2 * (part % 2) + 1]) do
        gain = gain + math.exp(-((f - formant) / 150) ^ 2)
      end
      wave:add_((t * (2 * math.pi * f)):sin(), {alpha = 0.2 * gain})
    end
    parts[#parts + 1] = wave
  end
  return moth.cat(parts):unsqueeze(1)
end

local speaks = os.execute(("command -v '%s' > /dev/null"):format(args.espeak)) == 0
print(speaks and "espeak-ng speaks" or args.espeak .. " is missing (apt-get install espeak-ng); "
  .. "training on hummed words instead")

-- One second of each word, in noise: a dataset of sounds and labels.
local function words_of(set)
  local sounds, labels = {}, {}
  for i = set == "train" and 1 or 2, math.min(args.voices or #VOICES, #VOICES), 2 do
    for _, accent in ipairs(ACCENTS[set]) do
      for _, speed in ipairs(set == "train" and {150, 190} or {170}) do
        for label, word in ipairs(WORDS) do
          local x = speaks and spoken(word, VOICES[i], accent, speed)
            or hummed(label, 80 + 5 * i, speed)
          x = x:narrow(2, 1, math.min(x:size(2), RATE))
          sounds[#sounds + 1] = F.pad(x, {0, RATE - x:size(2)}):squeeze(1)
          labels[#labels + 1] = label
        end
      end
    end
  end
  local x = moth.stack(sounds)
  return data.TensorDataset(x + moth.randn(x.shape) * 0.005, moth.tensor(labels):long())
end

local train_set, test_set = words_of "train", words_of "test"
print(("%d words for training, %d for testing"):format(train_set:len(), test_set:len()))

-- ---- the net ----

local Net = nn.class("Net", nn.Module)

function Net:init()
  self.features = nn.Sequential(
    audio.MelSpectrogram{sample_rate = RATE, n_fft = 512, hop_length = 160, n_mels = 40},
    audio.AmplitudeToDB("power", 80))
  self.mask = nn.Sequential(audio.FrequencyMasking(8, true), audio.TimeMasking(20, true))
  self.body = nn.Sequential()
  for i = 1, 3 do
    self.body:extend{nn.Conv1d(i == 1 and 40 or 64, 64, 5, {padding = 2}), nn.BatchNorm1d(64),
      nn.ReLU(), nn.MaxPool1d(2)}
  end
  self.head = nn.Linear(64, #WORDS)
end

function Net:forward(x)
  x = self.features(x)
  x = (x - x:mean({2, 3}, true)) / 20
  if self.training then x = self.mask(x) end
  return self.head(self.body(x):mean(3))
end

local net = Net():to(args.device)
local optimizer = optim.Adam(net:parameters(), {lr = 0.002})
local loader = data.DataLoader{train_set, batch_size = 32, shuffle = true}
local loss_metric = metrics.MeanMetric()
local results = metrics.MetricCollection{
  accuracy = metrics.Accuracy{task = "multiclass", num_classes = #WORDS},
  each = metrics.Accuracy{task = "multiclass", num_classes = #WORDS, average = "none"},
}

for epoch = 1, args.epochs do
  net:train()
  loss_metric:reset()
  for x, y in loader do
    moth.scope(function()
      optimizer:zero_grad()
      local loss = F.cross_entropy(net(x:to(args.device)), y:to(args.device))
      loss:backward()
      optimizer:step()
      loss_metric:update(loss, x:size(1))
    end)
  end
  print(("epoch %2d  loss %.3f"):format(epoch, loss_metric:compute():item()))
end

net:eval()
moth.no_grad(function()
  for x, y in data.DataLoader{test_set, batch_size = 64} do
    results:update(net(x:to(args.device)), y:to(args.device))
  end
end)
local values = results:compute()
for i, share in ipairs(values.each:tolist()) do print(("%-6s %.2f"):format(WORDS[i], share)) end
local accuracy = values.accuracy:item()
print(("unheard voices: accuracy %.3f"):format(accuracy))
-- Seeds 1, 2, 3: 0.983, 0.978, 0.983. The same net in PyTorch: 0.998, 0.995, 0.995.
assert(args.epochs < 20 or args.voices or accuracy > 0.92, "the words were not learned")
