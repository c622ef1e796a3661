"""Makes golden_layers.lua and golden_ops.lua: small calls with their values and gradients, computed
by PyTorch in float64.

    python3 spec/support/golden.py layers > spec/support/golden_layers.lua
    python3 spec/support/golden.py ops > spec/support/golden_ops.lua

Inputs are multiples of 1/16, exact in every floating dtype. The gradients are those of
sum(y * c), c counting through -5/8 ... 5/8, so that no two elements weigh the same by chance.
"""

import random
import sys

import torch
import torch.nn.functional as F

CASES = []
random.seed(20)


def grid(*shape):
    """Multiples of 1/16, all different: order matters to pooling and argmax."""
    n = 1
    for size in shape:
        n *= size
    steps = max(n, 48)
    values = random.sample(range(-steps, steps + 1), n)
    return torch.tensor([v / 16 for v in values], dtype=torch.float64).reshape(shape)


def positive(*shape):
    return grid(*shape).abs() + 0.25


def positions(*values):
    return torch.tensor(values)


def case(group, name, lua, fn, **inputs):
    """One call: its Lua text, the same in Python, and the inputs by the names both use.
    Positions (integer inputs) are written 1-based; ignored targets stay as they are."""
    leaves = {}
    for key, x in inputs.items():
        leaves[key] = x.clone().requires_grad_() if x.is_floating_point() else x
    y = fn(*leaves.values())
    grads = {}
    if y.is_floating_point() and y.requires_grad:
        c = torch.tensor([(7 * k % 11 - 5) / 8 for k in range(y.numel())], dtype=torch.float64)
        (y * c.reshape(y.shape)).sum().backward()
        grads = {key: x.grad for key, x in leaves.items() if x.grad is not None}
    CASES.append((group, name, lua, inputs, y.detach(), grads))


def conv(name, arguments, inputs, **options):
    order = ", ".join(inputs)
    case("conv2d", name, f"F.conv2d({order}{arguments})",
         lambda x, w, b=None: F.conv2d(x, w, b, **options), **inputs)


def conv_cases():
    x, w, b = grid(1, 2, 4, 4), grid(3, 2, 3, 2), grid(3)
    full = {"x": x, "w": w, "b": b}
    conv("slides filters over an image", "", full)
    conv("works without a bias", "", {"x": x, "w": w})
    conv("moves by its stride", ", {stride = {2, 1}}", full, stride=(2, 1))
    conv("pads with zeros", ", {padding = {2, 1}}", {"x": grid(1, 1, 3, 3), "w": grid(2, 1, 3, 3)},
         padding=(2, 1))
    conv("spreads its window by dilation", ", {dilation = {1, 2}}",
         {"x": grid(1, 1, 3, 5), "w": grid(2, 1, 2, 3)}, dilation=(1, 2))
    conv("keeps groups of channels apart", ", {groups = 2}",
         {"x": grid(1, 4, 3, 3), "w": grid(4, 2, 2, 2), "b": grid(4)}, groups=2)
    conv("gives each channel its own filters when depthwise", ", {groups = 3, padding = 1}",
         {"x": grid(1, 3, 2, 3), "w": grid(6, 1, 3, 3)}, groups=3, padding=1)
    conv("takes all steps at once", ", 2, 1, 2, 2",
         {"x": grid(2, 2, 5, 5), "w": grid(2, 1, 2, 2), "b": grid(2)},
         stride=2, padding=1, dilation=2, groups=2)
    conv("takes an image without a batch", "", {"x": grid(2, 3, 3), "w": w, "b": b})
    conv("is a product over channels with a 1 x 1 filter", "",
         {"x": grid(2, 3, 2, 2), "w": grid(2, 3, 1, 1), "b": grid(2)})


def pool_cases():
    def pool(name, lua, x, *arguments, **options):
        case("max_pool2d", name, lua, lambda x: F.max_pool2d(x, *arguments, **options), x=x)

    pool("takes the largest of each window", "F.max_pool2d(x, 2)", grid(1, 2, 4, 4), 2)
    pool("drops what no full window covers", "F.max_pool2d(x, 2)", grid(1, 1, 5, 3), 2)
    pool("lets windows overlap", "F.max_pool2d(x, 3, 1)", grid(1, 1, 5, 5), 3, 1)
    pool("pads with what never wins", "F.max_pool2d(x, {3, 2}, {padding = {1, 0}})",
         grid(1, 1, 4, 4) - 8, (3, 2), padding=(1, 0))
    pool("spreads its window by dilation", "F.max_pool2d(x, 2, {stride = 1, dilation = {2, 1}})",
         grid(1, 1, 4, 4), 2, stride=1, dilation=(2, 1))
    pool("counts windows over the edge in ceil_mode",
         "F.max_pool2d(x, 2, {ceil_mode = true})", grid(1, 1, 5, 3), 2, ceil_mode=True)
    pool("drops a ceil_mode window that begins in the padding",
         "F.max_pool2d(x, 2, {stride = 2, padding = 1, ceil_mode = true})", grid(1, 1, 4, 5), 2,
         stride=2, padding=1, ceil_mode=True)
    pool("takes an image without a batch", "F.max_pool2d(x, {2, 1})", grid(2, 4, 2), (2, 1))


def softmax_cases():
    case("softmax", "sums to 1 along the last dimension", "F.softmax(x, 2)",
         lambda x: F.softmax(x, 1), x=grid(2, 4))
    case("softmax", "works along an inner dimension", "F.softmax(x, 2)",
         lambda x: F.softmax(x, 1), x=grid(2, 3, 2))
    case("log_softmax", "is the logarithm of softmax", "F.log_softmax(x, 2)",
         lambda x: F.log_softmax(x, 1), x=grid(2, 4))
    case("log_softmax", "works along the first dimension", "F.log_softmax(x, 1)",
         lambda x: F.log_softmax(x, 0), x=grid(3, 2))
    case("log_softmax", "does not overflow", "F.log_softmax(x * 1024, -1)",
         lambda x: F.log_softmax(x * 1024, -1), x=grid(2, 3))


def loss_cases():
    x, t, weight = grid(3, 4), positions(2, 0, 3), positive(4)
    for reduction in ("mean", "sum", "none"):
        case("nll_loss", f"with reduction '{reduction}'",
             f'F.nll_loss(x, t, {{reduction = "{reduction}"}})',
             lambda x, t, r=reduction: F.nll_loss(x, t, reduction=r), x=x, t=t)
        case("nll_loss", f"with class weights and reduction '{reduction}'",
             f'F.nll_loss(x, t, weight, {{reduction = "{reduction}"}})',
             lambda x, t, weight, r=reduction: F.nll_loss(x, t, weight.detach(), reduction=r),
             x=x, t=t, weight=weight)
        case("cross_entropy", f"with reduction '{reduction}'",
             f'F.cross_entropy{{x, t, reduction = "{reduction}"}}',
             lambda x, t, r=reduction: F.cross_entropy(x, t, reduction=r), x=x, t=t)
    case("nll_loss", "leaves ignored targets out of the mean", "F.nll_loss(x, t)",
         lambda x, t: F.nll_loss(x, t), x=x, t=positions(1, -100, 2))
    case("nll_loss", "ignores the class that ignore_index names",
         "F.nll_loss(x, t, {ignore_index = 3})",
         lambda x, t: F.nll_loss(x, t, ignore_index=2), x=x, t=t)
    case("nll_loss", "takes images of classes", "F.nll_loss(x, t, weight)",
         lambda x, t, weight: F.nll_loss(x, t, weight.detach()), x=grid(1, 3, 2, 2),
         t=positions(0, 2, 1, 2).reshape(1, 2, 2), weight=positive(3))
    case("nll_loss", "takes one sample without a batch", "F.nll_loss(x, t)",
         lambda x, t: F.nll_loss(x, t), x=grid(4), t=torch.tensor(2))
    case("cross_entropy", "with class weights and an ignored target",
         "F.cross_entropy(x, t, weight)",
         lambda x, t, weight: F.cross_entropy(x, t, weight.detach()), x=x,
         t=positions(1, -100, 3), weight=weight)
    case("cross_entropy", "with label smoothing",
         "F.cross_entropy(x, t, {label_smoothing = 0.25})",
         lambda x, t: F.cross_entropy(x, t, label_smoothing=0.25), x=x, t=t)
    for lua, fn in (("mse_loss", F.mse_loss), ("l1_loss", F.l1_loss),
                    ("binary_cross_entropy_with_logits", F.binary_cross_entropy_with_logits)):
        for reduction in ("mean", "none"):
            case(lua, f"with reduction '{reduction}'",
                 f'F.{lua}(x, y, {{reduction = "{reduction}"}})',
                 lambda x, y, f=fn, r=reduction: f(x, y, reduction=r), x=grid(2, 3),
                 y=grid(2, 3) if lua != "binary_cross_entropy_with_logits"
                 else torch.tensor([[0.0, 1, 0.25], [1, 0.5, 0]], dtype=torch.float64))


def product_cases():
    case("linear", "multiplies by the weight's rows and adds the bias", "F.linear(x, w, b)",
         F.linear, x=grid(2, 3), w=grid(4, 3), b=grid(4))
    case("linear", "works without a bias, over any leading sizes", "F.linear(x, w)",
         lambda x, w: F.linear(x, w), x=grid(2, 1, 2, 3), w=grid(2, 3))
    case("linear", "takes one row", "F.linear(x, w, b)", F.linear, x=grid(3), w=grid(2, 3),
         b=grid(2))
    for name, a, b in (("a vector by a vector", (3,), (3,)), ("a matrix by a vector", (2, 3), (3,)),
                       ("a vector by a matrix", (3,), (3, 2)),
                       ("a matrix by a matrix", (2, 3), (3, 4)),
                       ("a batch by a batch", (2, 2, 3), (2, 3, 2)),
                       ("a batch by one matrix", (2, 2, 3), (3, 2)),
                       ("one matrix by a batch", (2, 3), (2, 3, 2)),
                       ("a batch by a vector", (2, 2, 3), (3,)),
                       ("a vector by a batch", (3,), (2, 3, 2)),
                       ("batches of sizes 2 x 1 and 3", (2, 1, 2, 2), (3, 2, 1))):
        case("matmul", f"multiplies {name}", "a:matmul(b)", torch.matmul, a=grid(*a), b=grid(*b))


def reduce_cases():
    x = grid(2, 3, 2)
    for op in ("sum", "mean"):
        fn = getattr(torch, op)
        case(op, "of everything", f"x:{op}()", lambda x, f=fn: f(x), x=x)
        case(op, "along one dimension", f"x:{op}(2)", lambda x, f=fn: f(x, 1), x=x)
        case(op, "along two", f"x:{op}{{1, 3}}", lambda x, f=fn: f(x, (0, 2)), x=x)
        case(op, "along one from the end, kept", f"x:{op}(-1, {{keepdim = true}})",
             lambda x, f=fn: f(x, -1, keepdim=True), x=x)
    for op in ("var", "std"):
        fn = getattr(torch, op)
        case(op, "of everything", f"x:{op}()", lambda x, f=fn: f(x), x=x)
        case(op, "along a dimension, uncorrected", f"x:{op}(2, {{correction = 0}})",
             lambda x, f=fn: f(x, 1, correction=0), x=x)
        case(op, "along two, kept", f"x:{op}({{1, 2}}, {{keepdim = true}})",
             lambda x, f=fn: f(x, (0, 1), keepdim=True), x=x)
    case("logsumexp", "along a dimension", "x:logsumexp(2)", lambda x: torch.logsumexp(x, 1), x=x)
    case("amax", "along two dimensions", "x:amax{2, 3}", lambda x: torch.amax(x, (1, 2)), x=x)
    case("amin", "of everything", "x:amin()", lambda x: torch.amin(x), x=x)
    case("cumsum", "adds up along a dimension", "x:cumsum(2)", lambda x: torch.cumsum(x, 1), x=x)
    case("argmax", "is a position from 1", "x:argmax(2)", lambda x: torch.argmax(x, 1) + 1, x=x)
    case("argmax", "counts in row-major order without a dimension", "x:argmax()",
         lambda x: torch.argmax(x) + 1, x=x)
    case("argmin", "can keep its dimension", "x:argmin(3, {keepdim = true})",
         lambda x: torch.argmin(x, 2, keepdim=True) + 1, x=x)


def shape_cases():
    a, b = grid(2, 2), grid(2, 2)
    case("cat", "joins along a dimension", "moth.cat({a, b}, 2)", lambda a, b: torch.cat((a, b), 1),
         a=a, b=grid(2, 1))
    case("cat", "joins along the first dimension by default", "moth.cat{a, b}",
         lambda a, b: torch.cat((a, b)), a=a, b=grid(1, 2))
    case("stack", "makes a new first dimension", "moth.stack{a, b}",
         lambda a, b: torch.stack((a, b)), a=a, b=b)
    case("stack", "makes a new last dimension", "moth.stack({a, b}, -1)",
         lambda a, b: torch.stack((a, b), -1), a=a, b=b)
    case("permute", "reorders dimensions", "x:permute{3, 1, 2}", lambda x: x.permute(2, 0, 1),
         x=grid(2, 3, 2))
    case("narrow", "cuts a range out", "x:narrow(2, 2, 2)", lambda x: x.narrow(1, 1, 2),
         x=grid(2, 4))
    case("index_select", "repeats rows", "x:index_select(1, {2, 1, 2})",
         lambda x: x.index_select(0, torch.tensor([1, 0, 1])), x=grid(2, 3))


def pointwise_cases():
    for name in ("relu", "tanh", "sigmoid", "exp", "abs", "neg"):
        case(name, "of each element", f"x:{name}()", getattr(torch, name), x=grid(2, 3) / 2)
    for name in ("log", "sqrt"):
        case(name, "of each element", f"x:{name}()", getattr(torch, name), x=positive(2, 3))
    for name, sign, fn in (("add", "+", torch.add), ("sub", "-", torch.sub),
                           ("mul", "*", torch.mul), ("div", "/", torch.div)):
        case(name, "broadcasts", f"a {sign} b", lambda a, b, f=fn: f(a, b), a=grid(2, 3),
             b=positive(2, 1))
    case("pow", "of a tensor", "a ^ b", torch.pow, a=positive(2, 2), b=grid(2, 2) / 2)
    case("eq", "compares element by element", "x:eq(0.5)", lambda x: torch.eq(x, 0.5),
         x=torch.tensor([0.5, 1, -0.5, 0.5], dtype=torch.float64))


def number(v):
    v = float(v)
    if v != v or v in (float("inf"), float("-inf")):
        raise ValueError("not a finite number")
    return str(int(v)) if v == int(v) else repr(v)


def wrapped(text, indent):
    """A list of numbers over lines of at most 100 columns."""
    lines, line = [], " " * indent
    for word in text.split(" "):
        if len(line) + len(word) + 1 > 100:
            lines.append(line.rstrip())
            line = " " * indent
        line += word + " "
    return "\n".join(lines + [line.rstrip()])


def tensor(key, x):
    shape = ", ".join(str(size) for size in x.shape)
    values = ", ".join(number(v) for v in x.flatten().tolist())
    kind = {torch.int64: ', "i64"', torch.bool: ', "bool"'}.get(x.dtype, "")
    return f"{key} = {{{{{shape}}}, {{{values}}}{kind}}},"


def one_based(x):
    return x if x.is_floating_point() else torch.where(x == -100, x, x + 1)


FILES = {
    "layers": (conv_cases, pool_cases, softmax_cases, loss_cases),
    "ops": (product_cases, reduce_cases, shape_cases, pointwise_cases),
}


def main():
    for make in FILES[sys.argv[1]]:
        make()
    print("-- Values and gradients that PyTorch " + torch.__version__.split("+")[0] + " computed in"
          " float64; golden.py writes this file.\n-- A tensor is {sizes, elements in row-major"
          " order[, dtype]}; gradients are those of sum(y * c).\n")
    print("return {")
    for group, name, lua, inputs, y, grads in CASES:
        print(f'  {{op = "{group}", claim = "{name}",')
        print(f"    call = [[{lua}]],")
        given = " ".join(tensor(key, one_based(x)) for key, x in inputs.items())
        print(wrapped("inputs = {" + given[:-1] + "},", 4))
        print(wrapped(tensor("y", y), 4))
        if grads:
            found = " ".join(tensor(key, x) for key, x in grads.items())
            print(wrapped("grads = {" + found[:-1] + "},", 4))
        print("  },")
    print("}")


main()
