--- data.lua -- hints for names of torch.utils.data, which is moth.data.

local PIPES = "moth.data.IterableDataset and moth.data.Dataset are written as classes"

return {["moth.data"] = {
  default_convert = "samples hold tensors already, there are no arrays to convert",
  ["IterDataPipe DFIterDataPipe MapDataPipe DataChunk functional_datapipe argument_validation "
    .. "guaranteed_datapipes_determinism non_deterministic runtime_validation "
    .. "runtime_validation_disabled"] = PIPES,
  ["CIFAR10 CIFAR100 MNIST FashionMNIST EMNIST SVHN STL10 ImageNet VOCDetection CocoDetection "
    .. "datasets"] = "nothing is downloaded; moth.data.mnist reads MNIST's files, "
    .. "moth.data.ImageFolder a folder of pictures",
  distributed = "it is moth.data.DistributedSampler",
}}
