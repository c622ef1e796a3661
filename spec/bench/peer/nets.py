"""The networks of workloads.txt, as in spec/bench/nets.lua."""
import torch
import torch.nn.functional as F
from torch import nn


def mlp(*sizes, act=nn.ReLU):
    net = nn.Sequential()
    for i, (n_in, n_out) in enumerate(zip(sizes, sizes[1:])):
        if i:
            net.append(act())
        net.append(nn.Linear(n_in, n_out))
    return net


def mnist_net():
    return nn.Sequential(
        nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(10, 20, 5), nn.Dropout2d(), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(),
        nn.Linear(320, 50), nn.ReLU(), nn.Dropout(), nn.Linear(50, 10), nn.LogSoftmax(1))


def conv_bn(n_in, n_out, size, stride=1):
    conv = nn.Conv2d(n_in, n_out, size, stride, size // 2, bias=False)
    return conv, nn.BatchNorm2d(n_out)


class Residual(nn.Module):
    def __init__(self, n_in, n_out, stride):
        super().__init__()
        self.conv1, self.bn1 = conv_bn(n_in, n_out, 3, stride)
        self.conv2, self.bn2 = conv_bn(n_out, n_out, 3)
        self.skip = nn.Sequential(*conv_bn(n_in, n_out, 1, stride)) if stride > 1 else None

    def forward(self, x):
        y = F.relu_(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y)) + (self.skip(x) if self.skip else x)
        return F.relu_(y)


def resnet18():
    net, before = nn.Sequential(*conv_bn(3, 64, 3), nn.ReLU(True)), 64
    for channels in (64, 128, 256, 512):
        net.append(Residual(before, channels, 1 if before == channels else 2))
        net.append(Residual(channels, channels, 1))
        before = channels
    return net.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)])


def vgg11():
    net, before = nn.Sequential(), 3
    for channels in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        if channels:
            net.extend([nn.Conv2d(before, channels, 3, padding=1), nn.ReLU(True)])
            before = channels
        else:
            net.append(nn.MaxPool2d(2))
    return net.extend([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)])


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = mlp(width, 4 * width, width, act=nn.GELU)

    def forward(self, x, cache=None):
        """cache: a dict that keeps the keys and values of earlier positions, or None."""
        n, length, width = x.shape
        qkv = self.qkv(self.ln1(x)).view(n, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        if cache is not None:
            if cache:
                k, v = torch.cat((cache["k"], k), 2), torch.cat((cache["v"], v), 2)
            cache["k"], cache["v"] = k, v
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        x = x + self.proj(seen.transpose(1, 2).reshape(n, length, width))
        return x + self.mlp(self.ln2(x))


class Gpt(nn.Module):
    def __init__(self, vocabulary, context, width, heads, layers):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids, caches=None, start=0):
        x = self.token(ids) + self.place(torch.arange(start, start + ids.shape[1]))
        for i, block in enumerate(self.blocks):
            x = block(x, caches[i] if caches else None)
        return self.head(self.ln(x))


def gpt():
    return Gpt(65, 128, 256, 8, 4)


class CharLstm(nn.Module):
    def __init__(self, symbols, width, layers):
        super().__init__()
        self.embed = nn.Embedding(symbols, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.out = nn.Linear(width, symbols)

    def forward(self, ids):
        return self.out(self.lstm(self.embed(ids))[0])


def char_lstm(width=256):
    return CharLstm(65, width, 2)


def double_conv(n_in, n_out):
    return nn.Sequential(
        nn.Conv2d(n_in, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU(True),
        nn.Conv2d(n_out, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU(True))


class Level(nn.Module):
    """One level of a U-Net around the level below."""

    def __init__(self, n_in, n, below):
        super().__init__()
        self.down, self.below = double_conv(n_in, n), below
        self.up, self.join = nn.ConvTranspose2d(2 * n, n, 2, 2), double_conv(2 * n, n)

    def forward(self, x):
        skip = self.down(x)
        up = self.up(self.below(F.max_pool2d(skip, 2)))
        return self.join(torch.cat((skip, up), 1))


def unet():
    bottom = Level(32, 64, double_conv(64, 128))
    return nn.Sequential(Level(1, 16, Level(16, 32, bottom)), nn.Conv2d(16, 1, 1))


def generator(width=32):
    net, before, stride = nn.Sequential(), 100, 1
    for channels in (8 * width, 4 * width, 2 * width, width, 3):
        net.append(nn.ConvTranspose2d(before, channels, 4, stride, stride - 1, bias=False))
        if channels > 3:
            net.extend([nn.BatchNorm2d(channels), nn.ReLU(True)])
        before, stride = channels, 2
    return net.append(nn.Tanh())


def discriminator(width=32):
    net, before = nn.Sequential(), 3
    for channels in (width, 2 * width, 4 * width, 8 * width):
        net.append(nn.Conv2d(before, channels, 4, 2, 1, bias=False))
        if before > 3:
            net.append(nn.BatchNorm2d(channels))
        net.append(nn.LeakyReLU(0.2, True))
        before = channels
    return net.extend([nn.Conv2d(before, 1, 4, bias=False), nn.Sigmoid(), nn.Flatten(0)])


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.widen = nn.Linear(784, 400), nn.Linear(20, 400)
        self.mean, self.logvar = nn.Linear(400, 20), nn.Linear(400, 20)
        self.out = nn.Linear(400, 784)

    def forward(self, x):
        h = F.relu(self.hidden(x))
        mean, logvar = self.mean(h), self.logvar(h)
        code = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        return self.out(F.relu(self.widen(code))).sigmoid(), mean, logvar


def build(options):
    """The network that a row names: mlp:784,512,10 or resnet18."""
    name, _, sizes = options["net"].partition(":")
    if name != "mlp":
        return globals()[name]()
    act = getattr(nn, options.get("act", "ReLU"))
    return mlp(*map(int, sizes.split(",")), act=act)
