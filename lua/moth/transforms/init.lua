--- init.lua -- moth.transforms: changes of pictures, with the names of torchvision.transforms.v2.
--
--     local T = moth.transforms
--     local train = T.Compose{
--       T.RandomResizedCrop(224), T.RandomHorizontalFlip(),
--       T.ToDtype(moth.float32, {scale = true}), T.Normalize({.5, .5, .5}, {.2, .2, .2}),
--     }
--     local x = train(picture)                                  -- uint8 (3, H, W)
--     local sample = train{image = x, boxes = boxes, labels = labels}
--
-- transform.lua says which parts of a sample a transform changes. The functions without random
-- numbers are in moth.transforms.functional.

local lazy = require "moth.base.lazy"

local rows = {v2 = {"moth.transforms"}}
lazy.from(rows, "moth.transforms.*", "functional")
lazy.from(rows, "moth.transforms.transform", "Transform")
lazy.from(rows, "moth.transforms.values", "BoundingBoxes Mask Image")
lazy.from(rows, "moth.transforms.container", "Compose RandomApply RandomChoice RandomOrder")
lazy.from(rows, "moth.transforms.crops", "Resize CenterCrop RandomCrop RandomResizedCrop FiveCrop "
  .. "TenCrop Pad RandomHorizontalFlip RandomVerticalFlip")
lazy.from(rows, "moth.transforms.types", "ToDtype ConvertImageDtype Normalize Lambda Identity "
  .. "ToPureTensor ConvertBoundingBoxFormat ClampBoundingBoxes SanitizeBoundingBoxes")
lazy.from(rows, "moth.transforms.warps", "RandomRotation RandomAffine RandomPerspective "
  .. "ElasticTransform")
lazy.from(rows, "moth.transforms.colors", "Grayscale RandomGrayscale RGB ColorJitter "
  .. "RandomChannelPermutation RandomPhotometricDistort RandomInvert RandomPosterize "
  .. "RandomSolarize RandomEqualize RandomAutocontrast RandomAdjustSharpness GaussianBlur "
  .. "GaussianNoise")
lazy.from(rows, "moth.transforms.augment", "RandomErasing MixUp CutMix")
lazy.from(rows, "moth.transforms.auto", "AutoAugment AutoAugmentPolicy RandAugment "
  .. "TrivialAugmentWide AugMix")
lazy.from(rows, "moth.transforms.scales", "RandomResize RandomShortestSize ScaleJitter "
  .. "RandomZoomOut RandomIoUCrop")

return (lazy.namespace("moth.transforms", {}, rows))
