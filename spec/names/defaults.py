"""Lists the defaults of the arguments of PyTorch, torchvision, torchaudio and torchmetrics.

    python spec/names/defaults.py > spec/names/defaults.txt

A line of the output is a namespace, a name and its arguments that have a default, as
ARGUMENT=DEFAULT; a function of several signatures has several lines. Defaults are numbers,
booleans, None, names and lists of them; others are left out.
"""

import importlib
import inspect
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torchaudio  # noqa: E402
import torchmetrics  # noqa: E402
import torchvision  # noqa: E402

NAMESPACES = """
torch torch.nn torch.nn.functional torch.nn.init torch.nn.utils torch.nn.utils.rnn
torch.nn.utils.parametrizations torch.nn.utils.prune torch.nn.parameter
torch.optim torch.optim.lr_scheduler torch.optim.swa_utils
torch.linalg torch.fft torch.special torch.signal.windows
torch.autograd torch.autograd.functional torch.func torch.amp
torch.utils.data torch.distributions torch.testing torchvision.ops
torchvision.transforms.v2 torchvision.transforms.v2.functional torch.utils.tensorboard
torchvision.utils torchvision.io torchaudio.functional torchaudio.transforms
torchmetrics torchmetrics.classification torchmetrics.detection torchmetrics.functional
torchmetrics.functional.classification torch.profiler torch.utils.benchmark torch.utils.checkpoint
""".split()


def shown(value):
    """A default as a word without spaces; None where it is of another kind."""
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, str) and value and " " not in value:
        return '"%s"' % value
    if isinstance(value, (tuple, list)) and all(isinstance(v, (int, float)) for v in value):
        return "{" + ",".join(repr(v) for v in value) + "}"
    return None


def of_signature(signature):
    pairs = []
    for name, p in signature.parameters.items():
        text = shown(p.default) if p.default is not inspect.Parameter.empty else None
        if text is not None and p.kind != p.POSITIONAL_ONLY and not name.startswith("_"):
            pairs.append("%s=%s" % (name, text))
    return pairs


def of_schema(schema):
    pairs = []
    for a in schema.arguments:
        text = shown(a.default_value) if a.has_default_value() else None
        if text is not None:
            pairs.append("%s=%s" % (a.name, text))
    return pairs


def lists(path, name, value):
    if inspect.isbuiltin(value):
        prefix = {"torch.linalg": "linalg_", "torch.fft": "fft_", "torch.special": "special_"}
        own = prefix.get(path, "") + getattr(value, "__name__", name).replace(prefix.get(path, ""), "")
        schemas = torch._C._jit_get_schemas_for_operator("aten::" + own)
        return [of_schema(s) for s in schemas]
    try:
        return [of_signature(inspect.signature(value))]
    except (TypeError, ValueError):
        return []


VERSIONS = [m.__version__.split("+")[0] for m in (torch, torchvision, torchaudio, torchmetrics)]
print("# Defaults of PyTorch %s, torchvision %s, torchaudio %s and torchmetrics %s. Written by "
      "spec/names/defaults.py." % tuple(VERSIONS))
for path in NAMESPACES:
    module = importlib.import_module(path)
    for name in sorted(getattr(module, "__all__", None) or dir(module)):
        value = getattr(module, name, None)
        if name.startswith("_") or name.endswith("Storage") or not callable(value):
            continue
        kept = []  # those that another signature does not have all of
        for pairs in sorted(lists(path, name, value), key=len, reverse=True):
            if pairs and not any(set(pairs) <= set(other) for other in kept):
                kept.append(pairs)
                print(" ".join([path, name] + pairs))
