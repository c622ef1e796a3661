--- policies.lua -- the operations of AutoAugment and of similar policies, with their ranges.
--
-- A range is {first, last}; with `side` it is a part of the picture's width or height; `signed`:
-- half of the values are negative; `whole`: integers. The range of an operation without a
-- magnitude is empty.

local policies = {}

local SHIFT = 150 / 331

--- The operations of AutoAugment and RandAugment.
policies.AUTO = {
  Identity = {}, ShearX = {0, 0.3, signed = true}, ShearY = {0, 0.3, signed = true},
  TranslateX = {0, SHIFT, side = "width", signed = true},
  TranslateY = {0, SHIFT, side = "height", signed = true},
  Rotate = {0, 30, signed = true}, Brightness = {0, 0.9, signed = true},
  Color = {0, 0.9, signed = true}, Contrast = {0, 0.9, signed = true},
  Sharpness = {0, 0.9, signed = true}, Posterize = {8, 4, whole = true}, Solarize = {1, 0},
  AutoContrast = {}, Equalize = {}, Invert = {},
}

--- The operations of TrivialAugmentWide.
policies.WIDE = {
  Identity = {}, ShearX = {0, 0.99, signed = true}, ShearY = {0, 0.99, signed = true},
  TranslateX = {0, 32, signed = true}, TranslateY = {0, 32, signed = true},
  Rotate = {0, 135, signed = true}, Brightness = {0, 0.99, signed = true},
  Color = {0, 0.99, signed = true}, Contrast = {0, 0.99, signed = true},
  Sharpness = {0, 0.99, signed = true}, Posterize = {8, 2, whole = true}, Solarize = {1, 0},
  AutoContrast = {}, Equalize = {},
}

--- The operations that RandAugment and TrivialAugmentWide draw from.
policies.RAND_NAMES = {"Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate",
                       "Brightness", "Color", "Contrast", "Sharpness", "Posterize", "Solarize",
                       "AutoContrast", "Equalize"}

--- The operations of AugMix; the first MIX_PARTIAL ones are used without all_ops.
policies.MIX = {
  ShearX = {0, 0.3, signed = true}, ShearY = {0, 0.3, signed = true},
  TranslateX = {0, 1 / 3, side = "width", signed = true},
  TranslateY = {0, 1 / 3, side = "height", signed = true}, Rotate = {0, 30, signed = true},
  Posterize = {4, 0, whole = true}, Solarize = {1, 0}, AutoContrast = {}, Equalize = {},
  Brightness = {0, 0.9, signed = true}, Color = {0, 0.9, signed = true},
  Contrast = {0, 0.9, signed = true}, Sharpness = {0, 0.9, signed = true},
}
policies.MIX_NAMES = {"ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Posterize",
                      "Solarize", "AutoContrast", "Equalize", "Brightness", "Color", "Contrast",
                      "Sharpness"}
policies.MIX_PARTIAL = 9

-- ---- pairs of operations of AutoAugment: {name, probability, number of the magnitude} ----

policies.imagenet = {
  {{"Posterize", 0.4, 8}, {"Rotate", 0.6, 9}},
  {{"Solarize", 0.6, 5}, {"AutoContrast", 0.6}},
  {{"Equalize", 0.8}, {"Equalize", 0.6}},
  {{"Posterize", 0.6, 7}, {"Posterize", 0.6, 6}},
  {{"Equalize", 0.4}, {"Solarize", 0.2, 4}},
  {{"Equalize", 0.4}, {"Rotate", 0.8, 8}},
  {{"Solarize", 0.6, 3}, {"Equalize", 0.6}},
  {{"Posterize", 0.8, 5}, {"Equalize", 1}},
  {{"Rotate", 0.2, 3}, {"Solarize", 0.6, 8}},
  {{"Equalize", 0.6}, {"Posterize", 0.4, 6}},
  {{"Rotate", 0.8, 8}, {"Color", 0.4, 0}},
  {{"Rotate", 0.4, 9}, {"Equalize", 0.6}},
  {{"Equalize", 0}, {"Equalize", 0.8}},
  {{"Invert", 0.6}, {"Equalize", 1}},
  {{"Color", 0.6, 4}, {"Contrast", 1, 8}},
  {{"Rotate", 0.8, 8}, {"Color", 1, 2}},
  {{"Color", 0.8, 8}, {"Solarize", 0.8, 7}},
  {{"Sharpness", 0.4, 7}, {"Invert", 0.6}},
  {{"ShearX", 0.6, 5}, {"Equalize", 1}},
  {{"Color", 0.4, 0}, {"Equalize", 0.6}},
  {{"Equalize", 0.4}, {"Solarize", 0.2, 4}},
  {{"Solarize", 0.6, 5}, {"AutoContrast", 0.6}},
  {{"Invert", 0.6}, {"Equalize", 1}},
  {{"Color", 0.6, 4}, {"Contrast", 1, 8}},
  {{"Equalize", 0.8}, {"Equalize", 0.6}},
}

policies.cifar10 = {
  {{"Invert", 0.1}, {"Contrast", 0.2, 6}},
  {{"Rotate", 0.7, 2}, {"TranslateX", 0.3, 9}},
  {{"Sharpness", 0.8, 1}, {"Sharpness", 0.9, 3}},
  {{"ShearY", 0.5, 8}, {"TranslateY", 0.7, 9}},
  {{"AutoContrast", 0.5}, {"Equalize", 0.9}},
  {{"ShearY", 0.2, 7}, {"Posterize", 0.3, 7}},
  {{"Color", 0.4, 3}, {"Brightness", 0.6, 7}},
  {{"Sharpness", 0.3, 9}, {"Brightness", 0.7, 9}},
  {{"Equalize", 0.6}, {"Equalize", 0.5}},
  {{"Contrast", 0.6, 7}, {"Sharpness", 0.6, 5}},
  {{"Color", 0.7, 7}, {"TranslateX", 0.5, 8}},
  {{"Equalize", 0.3}, {"AutoContrast", 0.4}},
  {{"TranslateY", 0.4, 3}, {"Sharpness", 0.2, 6}},
  {{"Brightness", 0.9, 6}, {"Color", 0.2, 8}},
  {{"Solarize", 0.5, 2}, {"Invert", 0}},
  {{"Equalize", 0.2}, {"AutoContrast", 0.6}},
  {{"Equalize", 0.2}, {"Equalize", 0.6}},
  {{"Color", 0.9, 9}, {"Equalize", 0.6}},
  {{"AutoContrast", 0.8}, {"Solarize", 0.2, 8}},
  {{"Brightness", 0.1, 3}, {"Color", 0.7, 0}},
  {{"Solarize", 0.4, 5}, {"AutoContrast", 0.9}},
  {{"TranslateY", 0.9, 9}, {"TranslateY", 0.7, 9}},
  {{"AutoContrast", 0.9}, {"Solarize", 0.8, 3}},
  {{"Equalize", 0.8}, {"Invert", 0.1}},
  {{"TranslateY", 0.7, 9}, {"AutoContrast", 0.9}},
}

policies.svhn = {
  {{"ShearX", 0.9, 4}, {"Invert", 0.2}},
  {{"ShearY", 0.9, 8}, {"Invert", 0.7}},
  {{"Equalize", 0.6}, {"Solarize", 0.6, 6}},
  {{"Invert", 0.9}, {"Equalize", 0.6}},
  {{"Equalize", 0.6}, {"Rotate", 0.9, 3}},
  {{"ShearX", 0.9, 4}, {"AutoContrast", 0.8}},
  {{"ShearY", 0.9, 8}, {"Invert", 0.4}},
  {{"ShearY", 0.9, 5}, {"Solarize", 0.2, 6}},
  {{"Invert", 0.9}, {"AutoContrast", 0.8}},
  {{"Equalize", 0.6}, {"Rotate", 0.9, 3}},
  {{"ShearX", 0.9, 4}, {"Solarize", 0.3, 3}},
  {{"ShearY", 0.8, 8}, {"Invert", 0.7}},
  {{"Equalize", 0.9}, {"TranslateY", 0.6, 6}},
  {{"Invert", 0.9}, {"Equalize", 0.6}},
  {{"Contrast", 0.3, 3}, {"Rotate", 0.8, 4}},
  {{"Invert", 0.8}, {"TranslateY", 0, 2}},
  {{"ShearY", 0.7, 6}, {"Solarize", 0.4, 8}},
  {{"Invert", 0.6}, {"Rotate", 0.8, 4}},
  {{"ShearY", 0.3, 7}, {"TranslateX", 0.9, 3}},
  {{"ShearX", 0.1, 6}, {"Invert", 0.6}},
  {{"Solarize", 0.7, 2}, {"TranslateY", 0.6, 7}},
  {{"ShearY", 0.8, 4}, {"Invert", 0.8}},
  {{"ShearX", 0.7, 9}, {"TranslateY", 0.8, 3}},
  {{"ShearY", 0.8, 5}, {"AutoContrast", 0.7}},
  {{"ShearX", 0.7, 2}, {"Invert", 0.1}},
}

return policies
