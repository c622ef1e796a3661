--- pictures.lua -- a dataset for spec/transforms: workers find it by its name.

local moth = require "moth"
local nn, data, T = moth.nn, moth.data, moth.transforms

local Pictures = nn.class("Pictures", data.Dataset)

function Pictures:init(n, transform)
  self.n, self.transform = n, transform
end

function Pictures:len() return self.n end

function Pictures:get(i)
  local x = (moth.arange(3 * 20 * 24) * (7 + i)):remainder(256):byte():view(3, 20, 24)
  return self.transform(x), i * 1LL
end

function Pictures:worker()
  return data.source("pictures:Pictures", self.n, self.transform:worker())
end

--- All random transforms of pictures.
local function all()
  return T.Compose{
    T.RandomResizedCrop(16), T.RandomHorizontalFlip(), T.RandomVerticalFlip(),
    T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.RandomGrayscale(0.2), T.RandAugment(),
    T.TrivialAugmentWide(), T.AutoAugment(), T.RandomApply({T.GaussianBlur(3)}, 0.5),
    T.RandomChoice{T.RandomAffine(20, {0.1, 0.1}, {0.8, 1.2}, 5), T.RandomPerspective(0.5, 1)},
    T.RandomOrder{T.RandomCrop(14, 1), T.RandomRotation(30)},
    T.Pad{1, fill = {1, 2, 3}}, T.CenterCrop{size = {12, 14}},
    T.ToDtype(moth.float32, {scale = true}), T.Normalize({0.5, 0.4, 0.3}, {0.2, 0.2, 0.2}),
    T.RandomErasing{p = 0.5, value = "random"},
  }
end

return {Pictures = Pictures, all = all}
