"""Lists the public names of PyTorch's and torchvision's documented namespaces.

    python spec/names/list.py > spec/names/names.txt

A line of the output is a namespace, a colon and its names. A name is public if the module lists it
in __all__, or, in a module without that list, if it has no leading underscore and was not imported
from the standard library or another package.
"""

import importlib
import types
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402
import torchvision  # noqa: E402

NAMESPACES = """
torch torch.Tensor
torch.nn torch.nn.functional torch.nn.init torch.nn.attention torch.nn.attention.bias
torch.nn.attention.flex_attention torch.nn.attention.varlen torch.nn.parallel torch.nn.parameter
torch.nn.utils torch.nn.utils.rnn torch.nn.utils.parametrize torch.nn.utils.parametrizations
torch.nn.utils.prune torch.nn.utils.stateless
torch.optim torch.optim.lr_scheduler torch.optim.swa_utils
torch.linalg torch.fft torch.special torch.signal torch.signal.windows
torch.autograd torch.autograd.functional torch.autograd.graph torch.autograd.forward_ad
torch.autograd.profiler torch.autograd.function torch.autograd.grad_mode
torch.autograd.anomaly_mode
torch.func
torch.utils torch.utils.data torch.utils.data.distributed torch.utils.checkpoint
torch.utils.benchmark torch.utils.collect_env torch.utils.cpp_extension
torch.utils.deterministic torch.utils.dlpack torch.utils.flop_counter torch.utils.mobile_optimizer
torch.utils.model_zoo torch.utils.module_tracker torch.utils.hooks

torch.distributions torch.distributions.constraints torch.distributions.transforms
torch.distributions.kl torch.distributions.constraint_registry
torch.cuda torch.cuda.amp torch.cuda.comm torch.cuda.memory torch.cuda.nvtx torch.cuda.random
torch.cuda.profiler torch.cuda.tunable torch.cuda.gds torch.cuda.green_contexts
torch.amp torch.backends torch.backends.cpu torch.backends.cuda torch.backends.cudnn
torch.backends.cusparselt torch.backends.mha torch.backends.miopen torch.backends.mkl
torch.backends.mkldnn torch.backends.mps torch.backends.nnpack torch.backends.openmp
torch.backends.opt_einsum torch.backends.xeon
torch.profiler torch.profiler.itt torch.random torch.sparse torch.onnx torch.onnx.ops
torch.jit torch.testing torch.hub torch.library torch.masked torch.nested torch.export
torch.compiler torch.distributed torch.distributed.algorithms torch.distributed.elastic
torch.distributed.fsdp torch.distributed.optim torch.distributed.pipelining torch.distributed.rpc
torch.distributed.tensor torch.distributed.tensor.parallel torch.distributed.checkpoint
torch.distributed.nn torch.distributed.device_mesh torch.distributed.autograd
torch.ao torch.ao.nn torch.ao.ns torch.ao.pruning torch.ao.quantization torch.quantization
torch.package torch.futures torch.multiprocessing torch.mps torch.mps.event torch.mps.profiler
torch.xpu torch.xpu.memory torch.xpu.random torch.mtia torch.mtia.memory torch.mtia.mtia_graph
torch.cpu torch.accelerator torch.accelerator.memory torch.monitor torch.overrides
torch.__config__ torch.__future__ torch.fx torch.fx.experimental torch.serialization torch.storage
torch.types torch.return_types
torchvision.ops torchvision.transforms torchvision.transforms.functional torchvision.transforms.v2
torchvision.models torchvision.models.detection torchvision.models.segmentation
torchvision.models.video torchvision.models.optical_flow torchvision.models.quantization
torchvision.datasets torchvision.io torchvision.utils
""".split()

OURS = ("torch", "torchvision")


def find(path):
    try:
        return importlib.import_module(path)
    except ImportError:
        outer, name = path.rsplit(".", 1)
        return getattr(find(outer), name)


def foreign(value):
    """Was the value imported from outside?"""
    if value is torch or value is torch.Tensor:
        return True
    if isinstance(value, types.ModuleType):
        home = value.__name__
    else:
        home = getattr(value, "__module__", None)
        if home is None or not isinstance(home, str):
            return False
        if isinstance(value, (int, float, str, tuple, list, dict)):
            return True
    return home.split(".")[0] not in OURS


def public(path):
    space = find(path)
    names = set(getattr(space, "__all__", []))
    if path in ("torch", "torch.Tensor") or not names:
        for name in dir(space):
            if path == "torch.Tensor" or not foreign(getattr(space, name, None)):
                names.add(name)
    return sorted(n for n in names if not n.startswith("_") and n != "TYPE_CHECKING")


def main():
    print(f"# Public names of PyTorch {torch.__version__.split('+')[0]} and torchvision "
          f"{torchvision.__version__.split('+')[0]}, by namespace. Written by spec/names/list.py.")
    for path in NAMESPACES:
        try:
            names = public(path)
        except (ImportError, AttributeError, RuntimeError) as problem:
            raise SystemExit(f"{path}: {problem}")
        print(f"{path}: {' '.join(names)}")


main()
