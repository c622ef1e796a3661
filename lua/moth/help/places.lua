--- places.lua -- the namespaces of Moth and the paths of their values: for help and `?`.
--
--     places.home(moth.nn.init.ones_, "ones_")   --> "nn.init.ones_"
--     places.find "StepLR"                       --> { {path = "optim.lr_scheduler.StepLR", ...} }

local class = require "moth.base.class"

local places = {}

--- The namespaces in search order: `path`, from moth on; `short`, its name in scripts; `doc`; and
-- `hidden` or `only` if some of its names are not public.
places.list = {
  {path = "moth", short = "moth", hidden = "_VERSION version names define",
   doc = "tensors, their constructors, every op, and all other functions"},
  {path = "moth.nn.functional", short = "F",
   doc = "every op as a function, losses and activations among them"},
  {path = "moth.nn", short = "nn", hidden = "names",
   doc = "modules: layers, losses, containers"},
  {path = "moth.nn.init", short = "nn.init", hidden = "fans reset skip",
   doc = "fills the parameters of a network before training"},
  {path = "moth.nn.attention", short = "nn.attention", hidden = "SDPBackend",
   doc = "choice of the attention kernels"},
  {path = "moth.nn.parallel", short = "nn.parallel",
   doc = "one net, trained by several processes"},
  {path = "moth.nn.utils", short = "nn.utils",
   doc = "clipping of gradients, parameters as one vector, reparametrized weights"},
  {path = "moth.nn.utils.parametrize", short = "nn.utils.parametrize",
   hidden = "ParametrizationList check",
   doc = "parameters that a module computes from other parameters"},
  {path = "moth.nn.utils.parametrizations", short = "nn.utils.parametrizations",
   only = "weight_norm spectral_norm",
   doc = "parametrizations of weights: by their norm"},
  {path = "moth.nn.utils.prune", short = "nn.utils.prune",
   doc = "masks that keep a part of the weights at 0"},
  {path = "moth.nn.utils.rnn", short = "nn.utils.rnn", hidden = "gather spread",
   doc = "sequences of different lengths as one batch"},
  {path = "moth.optim", short = "optim", doc = "optimizers"},
  {path = "moth.optim.lr_scheduler", short = "optim.lr_scheduler",
   doc = "schedules of the learning rate"},
  {path = "moth.optim.swa_utils", short = "optim.swa_utils",
   doc = "averages of a network's weights"},
  {path = "moth.data", short = "data",
   doc = "datasets, samplers, the DataLoader, readers of files"},
  {path = "moth.distributed", short = "moth.distributed", hidden = "finish",
   doc = "tensors between processes, through MPI"},
  {path = "moth.distributed.checkpoint", short = "moth.distributed.checkpoint",
   doc = "a state in a folder, to which each process writes a part"},
  {path = "moth.distributed.optim", short = "moth.distributed.optim",
   doc = "an optimizer whose state is divided among the processes"},
  {path = "moth.distributed.algorithms.model_averaging.averagers",
   short = "moth.distributed.algorithms.model_averaging.averagers",
   doc = "the mean of the parameters of all processes, after every few steps"},
  {path = "moth.distributions", short = "moth.distributions",
   doc = "probability distributions: samples, log-probabilities, divergences"},
  {path = "moth.distributions.constraints", short = "moth.distributions.constraints",
   hidden = "by_default set_default_validate_args",
   doc = "sets of valid parameters and values: constraint:check(x)"},
  {path = "moth.callbacks", short = "moth.callbacks",
   doc = "what moth.fit calls between the lines of its loop"},
  {path = "moth.metrics", short = "moth.metrics",
   doc = "measures of a model's quality, which add up over batches"},
  {path = "moth.metrics.functional", short = "moth.metrics.functional",
   doc = "the metrics of one batch"},
  {path = "moth.autograd", short = "moth.autograd",
   only = "Function FunctionCtx backward detect_anomaly enable_grad grad gradcheck gradgradcheck "
      .. "is_anomaly_enabled is_grad_enabled no_grad once_differentiable set_detect_anomaly "
      .. "set_grad_enabled",
   doc = "gradients: backward passes, grad modes, your own Functions"},
  {path = "moth.autograd.graph", short = "moth.autograd.graph", hidden = "Node",
   doc = "hooks on the tensors that ops save for their gradients"},
  {path = "moth.linalg", short = "moth.linalg",
   doc = "factorizations of matrices, systems of equations, norms"},
  {path = "moth.special", short = "moth.special",
   doc = "functions of probability and analysis, element by element"},
  {path = "moth.fft", short = "moth.fft",
   doc = "Fourier transforms, and pairs as complex numbers"},
  {path = "moth.onnx", short = "moth.onnx", doc = "nets to and from ONNX files"},
  {path = "moth.autograd.functional", short = "moth.autograd.functional",
   doc = "derivatives of whole functions, and their products with vectors"},
  {path = "moth.func", short = "moth.func",
   doc = "derivatives as functions; calls of a module with other parameters than its own"},
  {path = "moth.utils.checkpoint", short = "moth.utils.checkpoint", hidden = "again",
   doc = "activation checkpoints: calls that run again in backward, to save memory"},
  {path = "moth.plot", short = "moth.plot", hidden = "Figure",
   doc = "curves, points, histograms, matrices, pictures: in the terminal, as SVG and PNG"},
  {path = "moth.utils.tensorboard", short = "moth.utils.tensorboard",
   doc = "event files of TensorBoard: numbers, histograms, pictures of a run"},
  {path = "moth.utils", short = "moth.utils", doc = "other helpers of training scripts"},
  {path = "moth.profiler", short = "moth.profiler",
   hidden = "within",
   doc = "which ops run, how long, and for how much memory"},
  {path = "moth.ops", short = "moth.ops",
   doc = "torchvision's boxes, regions of feature maps, and layers of detectors"},
  {path = "moth.darknet", short = "moth.darknet", doc = "nets of Darknet's .cfg and .weights"},
  {path = "moth.models", short = "moth.models",
   doc = "networks with the parameter names of torchvision and transformers"},
  {path = "moth.models.feature_extraction", short = "moth.models.feature_extraction",
   doc = "results of inner layers by name"},
  {path = "moth.gguf", short = "moth.gguf", doc = "tensors of GGUF files, quantised ones too"},
  {path = "moth.io", short = "moth.io",
   doc = "files of pictures, sounds and bytes, as tensors"},
  {path = "moth.audio", short = "moth.audio", hidden = "functional transforms",
   doc = "sounds: files, spectrograms and other features, changes; as torchaudio"},
  {path = "moth.transforms", short = "moth.transforms",
   doc = "changes of pictures, torchvision's transforms.v2"},
  {path = "moth.transforms.functional", short = "moth.transforms.functional",
   doc = "the same as functions, without random numbers"},
  {path = "moth.amp", short = "moth.amp", doc = "mixed precision; moth has these functions too"},
  {path = "moth.cuda", short = "moth.cuda", doc = "GPUs: devices, memory, streams"},
  {path = "moth.signal.windows", short = "moth.signal.windows",
   doc = "windows of a signal"},
  {path = "moth.random", short = "moth.random",
   doc = "the random generator; moth has most of these functions too"},
  {path = "moth.utils.benchmark", short = "moth.utils.benchmark", hidden = "Measurement",
   doc = "the timer, which is moth.timer too"},
  {path = "moth.testing", short = "moth.testing", doc = "comparisons for tests"},
  {path = "moth.backends", short = "moth.backends",
   doc = "settings of external libraries"},
}

local function words(text)
  local set = {}
  for word in (text or ""):gmatch("%S+") do set[word] = true end
  return set
end

--- The namespace itself.
function places.space(place)
  local at = require "moth"
  for name in place.path:gmatch("%.([%w_]+)") do at = at[name] end
  return at
end

-- All names in a table whose metatable loads some of them on demand.
local function names_in(space)
  local meta = getmetatable(space)
  local names = type(meta) == "table" and rawget(meta, "__names")
  if names then return names() end
  local list = {}
  for name in pairs(space) do
    if type(name) == "string" then list[#list + 1] = name end
  end
  return list
end

--- The public names of a namespace, sorted.
function places.names(place)
  local list = {}
  local hidden = words(place.hidden)
  if place.only then
    for name in pairs(words(place.only)) do list[#list + 1] = name end
  else
    for _, name in ipairs(names_in(places.space(place))) do
      if not hidden[name] then list[#list + 1] = name end
    end
  end
  table.sort(list)
  return list
end

local sets = setmetatable({}, {__mode = "k"}) -- namespace -> set of its names

-- Checks that a namespace has a name. Namespaces do not change, so their names are read once.
local function holds(place, name)
  if not sets[place] then
    local set = {}
    for _, known in ipairs(places.names(place)) do set[known] = true end
    sets[place] = set
  end
  return sets[place][name] ~= nil
end

--- The namespace that a table is, or that a path such as "nn", "moth.nn" or "lr_scheduler" names.
function places.of(what)
  for _, place in ipairs(places.list) do
    if type(what) == "string" then
      local path = place.path
      if what == path or what == place.short or path == "moth." .. what
         or path:sub(-#what - 1) == "." .. what then
        return place
      end
    elseif rawequal(places.space(place), what) then
      return place
    end
  end
end

--- The path of a value in scripts, such as "nn.init.ones_"; nil if no namespace has it.
-- @param value    a function or a class
-- @param ...      its possible names
-- @return the path and its namespace
function places.home(value, ...)
  for i = 1, select("#", ...) do
    local name = select(i, ...)
    for _, place in ipairs(places.list) do
      if holds(place, name) and rawequal(places.space(place)[name], value) then
        return place.short .. "." .. name, place
      end
    end
  end
end

--- The path of a function of unknown name, or nil; ops are not searched.
function places.reach(value)
  local is_op = require("moth.binding.bind").is_op
  for _, place in ipairs(places.list) do
    local space = places.space(place)
    for _, name in ipairs(places.names(place)) do
      if not is_op(name) and rawequal(space[name], value) then return place.short .. "." .. name end
    end
  end
end

--- All values with a name: a list of {path =, value =}, each value once.
-- @param name  without a namespace
function places.find(name)
  local found, seen = {}, {}
  for _, place in ipairs(places.list) do
    if holds(place, name) then
      local value = places.space(place)[name]
      if not seen[value] then
        seen[value] = true
        found[#found + 1] = {path = place.short .. "." .. name, value = value}
      end
    end
  end
  return found
end

--- All classes: a list of {path =, value =}, in the order of the namespaces.
function places.classes()
  local list, seen = {}, {}
  for _, place in ipairs(places.list) do
    if place.short ~= "F" then
      local space = places.space(place)
      for _, name in ipairs(places.names(place)) do
        local value = not require("moth.binding.bind").is_op(name) and space[name]
        if class.isclass(value) and not seen[value] then
          seen[value] = true
          list[#list + 1] = {path = place.short .. "." .. name, value = value}
        end
      end
    end
  end
  return list
end

--- The methods of that name: a list of {path = "nn.Module:train", value =, class =}, one for each
-- class that defines the method.
function places.methods(name)
  local list, seen = {}, {}
  local moth = require "moth" -- base classes first: list inherited methods once
  local common = {{path = "nn.Module", value = moth.nn.Module},
                  {path = "optim.Optimizer", value = moth.optim.Optimizer}}
  for _, row in ipairs(places.classes()) do
    if not class.base(row.value) or class.base(row.value) == class.Object then
      common[#common + 1] = row
    end
  end
  for _, row in ipairs(places.classes()) do common[#common + 1] = row end
  for _, row in ipairs(common) do
    local value = rawget(row.value, name)
    local callable = type(value) == "function" or require("moth.binding.bind").signature(value)
    if callable and not seen[value] then
      seen[value] = true
      list[#list + 1] = {path = row.path .. ":" .. name, value = value, class = row.value}
    end
  end
  return list
end

--- All names, for the suggestions of errors.
function places.all()
  local list, seen = {}, {}
  for _, place in ipairs(places.list) do
    for _, name in ipairs(places.names(place)) do
      if not seen[name] then list[#list + 1], seen[name] = name, true end
    end
  end
  return list
end

return places
