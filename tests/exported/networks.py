"""Small networks in PyTorch, of the kinds that people export.

In: nothing; weights come from the seed the exporter sets. Out: `NETWORKS`: name -> (module, example inputs, options of
the export). Invariant: no network has more than 36,000 parameters, so its file stays below 150 KB. Needs torch, which
the test extra does not have: export.py writes the files that the tests read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Case = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


def conv_bn(before: int, after: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution and batch normalisation that keep the size at stride 1."""
    conv = nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(after))


class Residual(nn.Module):
    """A basic block of ResNet."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = conv_bn(before, after, 3, stride), conv_bn(after, after)
        self.shortcut = conv_bn(before, after, 1, stride) if stride > 1 or before != after else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(x))) + self.shortcut(x))


def resnet() -> Case:
    """Stem with max pooling, three stages, global pooling."""
    blocks = [Residual(8, 8, 1), Residual(8, 16, 2), Residual(16, 32, 2)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)]
    net = nn.Sequential(conv_bn(3, 8, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks, *head)
    return net, (torch.randn(1, 3, 48, 48),), {}


class Inverted(nn.Module):
    """An inverted residual of MobileNetV2."""

    def __init__(self, before: int, after: int, stride: int, grow: int) -> None:
        super().__init__()
        inner = before * grow
        wide = [conv_bn(before, inner, 1), nn.ReLU6()] if grow > 1 else []
        self.body = nn.Sequential(*wide, conv_bn(inner, inner, 3, stride, inner), nn.ReLU6(), conv_bn(inner, after, 1))
        self.keeps = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.keeps else self.body(x)


def mobilenet_v2() -> Case:
    """Inverted residuals, relu6, a dropout that does nothing."""
    rows = [(8, 8, 1, 1), (8, 12, 2, 6), (12, 12, 1, 6), (12, 16, 2, 6), (16, 16, 1, 6)]
    head = [conv_bn(16, 64, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, 10)]
    net = nn.Sequential(conv_bn(3, 8, 3, 2), nn.ReLU6(), *(Inverted(*row) for row in rows), *head)
    return net, (torch.randn(2, 3, 32, 32),), {}


class DenseLayer(nn.Module):
    """A layer of DenseNet: what it gives is joined to what it got."""

    def __init__(self, before: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(before),
            nn.ReLU(),
            nn.Conv2d(before, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.body(x)], 1)


def densenet() -> Case:
    """Two dense blocks with a transition between."""
    block = [DenseLayer(16, 8), DenseLayer(24, 8), DenseLayer(32, 8)]
    transition = [nn.BatchNorm2d(40), nn.ReLU(), nn.Conv2d(40, 20, 1, bias=False), nn.AvgPool2d(2)]
    last = [DenseLayer(20, 8), DenseLayer(28, 8), nn.BatchNorm2d(36), nn.ReLU()]
    net = nn.Sequential(conv_bn(3, 16, 3, 2), nn.ReLU(), *block, *transition, *last)
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(36, 10)]
    return nn.Sequential(net, *head), (torch.randn(1, 3, 32, 32),), {}


class Encoder(nn.Module):
    """Tokens, positions, two encoder layers with a padding mask, mean over the words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 32), nn.Parameter(torch.randn(1, 12, 32) * 0.1)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True, activation="gelu")
        self.layers, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 5)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.layers(self.words(ids) + self.places, src_key_padding_mask=mask == 0)
        weight = mask.unsqueeze(-1).to(x.dtype)
        return self.head((x * weight).sum(1) / weight.sum(1).clamp(min=1))


def transformer_encoder() -> Case:
    """nn.TransformerEncoder with its padding mask."""
    mask = torch.ones(2, 12, dtype=torch.int64)
    mask[1, 7:] = 0
    names = {"input_names": ["ids", "mask"], "ranges": {"ids": (0, 49), "mask": (0, 1)}}
    return Encoder(), (torch.randint(0, 50, (2, 12)), mask), names


class Recurrent(nn.Module):
    """A recurrent layer, then a dense one on every step and the last states."""

    def __init__(self, layer: nn.RNNBase, width: int) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(width, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        steps, state = self.layer(x)
        last = state[0] if isinstance(state, tuple) else state
        return self.head(steps), last.mean(0)


def lstm() -> Case:
    """Two bidirectional LSTM layers."""
    return Recurrent(nn.LSTM(10, 16, 2, batch_first=True, bidirectional=True), 32), (torch.randn(2, 7, 10),), {}


def gru() -> Case:
    """A bidirectional GRU and one that runs time first."""
    return Recurrent(nn.GRU(10, 20, 1, bidirectional=True), 40), (torch.randn(7, 2, 10),), {}


class Segmentation(nn.Module):
    """An encoder with dilated convolutions; a decoder with a transposed convolution, resizing and a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.down = nn.Sequential(conv_bn(3, 8), nn.ReLU()), nn.Sequential(conv_bn(8, 16, 3, 2), nn.ReLU())
        self.wide = nn.ModuleList(nn.Conv2d(16, 8, 3, padding=rate, dilation=rate) for rate in (1, 2, 4))
        self.up, self.join = nn.ConvTranspose2d(24, 8, 4, 2, 1), nn.Sequential(conv_bn(16, 8), nn.LeakyReLU(0.1))
        self.classes = nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        low = self.low(x)
        deep = self.down(F.max_pool2d(low, 2))
        deep = torch.cat([F.relu(branch(deep)) for branch in self.wide], 1)
        deep = F.interpolate(self.up(deep), scale_factor=2.0, mode="bilinear", align_corners=False)
        scores = self.classes(self.join(torch.cat([low, deep], 1)))
        return F.interpolate(scores, size=(50, 46), mode="bilinear", align_corners=True)


def segmentation() -> Case:
    """Resizing of both kinds and a transposed convolution."""
    return Segmentation(), (torch.randn(1, 3, 24, 24),), {}


class Block(nn.Module):
    """A block of a vision transformer, its attention written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.before, self.after = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        b, n, width = x.shape
        q, k, v = self.qkv(self.before(x)).reshape(b, n, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) * (width // self.heads) ** -0.5
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, n, width))
        return x + self.mlp(self.after(x))


class VisionTransformer(nn.Module):
    """Patches, a class token, two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, 32, 8, 8), nn.Parameter(torch.randn(1, 1, 32) * 0.1)
        self.places = nn.Parameter(torch.randn(1, 17, 32) * 0.1)
        self.blocks, self.norm = nn.Sequential(Block(32, 4), Block(32, 4)), nn.LayerNorm(32)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.blocks(x))[:, 0])


def vit() -> Case:
    """A vision transformer."""
    return VisionTransformer(), (torch.randn(2, 3, 32, 32),), {}


class UNet(nn.Module):
    """Two steps down, two up, a skip at each size."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([self.pair(1, 8), self.pair(8, 16)])
        self.middle = self.pair(16, 24)
        self.up = nn.ModuleList([nn.ConvTranspose2d(24, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)])
        self.joins, self.out = nn.ModuleList([self.pair(32, 16), self.pair(16, 8)]), nn.Conv2d(8, 2, 1)

    @staticmethod
    def pair(before: int, after: int) -> nn.Sequential:
        """Two convolutions with group normalisation."""
        first = [nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(4, after), nn.SiLU()]
        return nn.Sequential(*first, nn.Conv2d(after, after, 3, padding=1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for step in self.down:
            kept.append(step(x))
            x = F.max_pool2d(kept[-1], 2)
        x = self.middle(x)
        for grow, join, skip in zip(self.up, self.joins, reversed(kept)):
            x = join(torch.cat([skip, grow(x)], 1))
        return torch.sigmoid(self.out(x))


def unet() -> Case:
    """U-Net with group normalisation."""
    return UNet(), (torch.randn(1, 1, 24, 32),), {}


class Lookup(nn.Module):
    """Embedding, gather, where, masks, cumulative sums, comparison, several outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.mix = nn.Embedding(40, 12), nn.Linear(12, 12)

    def forward(self, ids: Tensor, place: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.table(ids)
        causal = torch.tril(torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool))
        scores = (self.mix(x) @ x.transpose(1, 2)).masked_fill(~causal, float("-inf")).softmax(-1)
        mixed = torch.where(ids.unsqueeze(-1) > 20, scores @ x, torch.tanh(x) - 0.5)
        picked = mixed.gather(1, place.unsqueeze(-1).expand(-1, -1, 12))
        counts = torch.cumsum((ids % 3 == 1).to(torch.int64), 1)
        return picked, counts, mixed.amax(2).clamp(-0.5, 0.5) * (ids != 7)


def lookup() -> Case:
    """What reads by index."""
    inputs = torch.randint(0, 40, (2, 9)), torch.randint(0, 9, (2, 4))
    return Lookup(), inputs, {"input_names": ["ids", "place"], "ranges": {"ids": (0, 39), "place": (0, 8)}}


class AnySize(nn.Module):
    """Convolutions over images of any size, flattened by sizes read while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(conv_bn(3, 8), nn.Hardswish(), conv_bn(8, 16, 3, 2), nn.ReLU())
        self.gate = nn.Sequential(nn.Linear(16, 4), nn.ReLU(), nn.Linear(4, 16), nn.Hardsigmoid())
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.body(x)
        y = y * self.gate(y.mean((2, 3))).view(y.shape[0], y.shape[1], 1, 1)
        rows = y.flatten(2).transpose(1, 2).reshape(-1, y.shape[1])
        return self.head(rows).view(x.shape[0], -1, 5), F.interpolate(y, size=x.shape[2:], mode="nearest")


def any_size() -> Case:
    """Dynamic batch, height and width: the test binds them."""
    axes = {"x": {0: "n", 2: "h", 3: "w"}}
    options = {"input_names": ["x"], "dynamic_axes": axes, "bind": {"x": [(1, 3, 16, 20), (3, 3, 9, 11)]}}
    return AnySize(), (torch.randn(1, 3, 16, 20),), options


class SuperResolution(nn.Module):
    """Instance normalisation, reflection padding, prelu, pixel shuffle, a sum of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 12, 5), nn.InstanceNorm2d(12, affine=True)
        self.slope, self.last = nn.PReLU(12), nn.Conv2d(12, 12, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.slope(self.norm(self.first(F.pad(x, (2, 2, 2, 2), mode="reflect"))))
        y = F.pixel_shuffle(self.last(y), 2)
        return y + F.interpolate(x, scale_factor=2.0, mode="bicubic", align_corners=False)


def super_resolution() -> Case:
    """Pixel shuffle and bicubic resizing."""
    return SuperResolution(), (torch.randn(1, 3, 12, 14),), {}


class Causal(nn.Module):
    """A language model with grouped heads, rotary positions and RMS norms."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.scale = nn.Embedding(60, 32), nn.Parameter(torch.rand(32) + 0.5)
        self.q, self.kv, self.out = nn.Linear(32, 32, bias=False), nn.Linear(32, 32, bias=False), nn.Linear(32, 32)
        self.up, self.gate, self.down = nn.Linear(32, 64), nn.Linear(32, 64), nn.Linear(64, 32)

    def rotate(self, x: Tensor) -> Tensor:
        """Rotary positions."""
        angle = torch.arange(x.shape[2]).unsqueeze(1) * 100.0 ** (-torch.arange(0, 8, 2) / 8)
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = torch.stack([even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()], -1)
        return turned.flatten(-2)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        b, n, _ = x.shape
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.scale
        q = self.rotate(self.q(y).view(b, n, 4, 8).transpose(1, 2))
        k, v = self.kv(y).view(b, n, 2, 2, 8).permute(2, 0, 3, 1, 4)
        k, v = self.rotate(k).repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, 32))
        x = x + self.down(F.silu(self.gate(x)) * self.up(x))
        return x @ self.words.weight.T


def causal() -> Case:
    """Attention as language models write it."""
    return Causal(), (torch.randint(0, 60, (1, 10)),), {"input_names": ["ids"], "ranges": {"ids": (0, 59)}}


class VideoNet(nn.Module):
    """Convolutions over time: three dimensions, then one."""

    def __init__(self) -> None:
        super().__init__()
        self.video = nn.Sequential(nn.Conv3d(2, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ELU(), nn.MaxPool3d((1, 2, 2)))
        self.time = nn.Sequential(nn.Conv1d(8, 12, 3, padding=1), nn.Softplus(), nn.ConvTranspose1d(12, 4, 3, 2))

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(self.time(self.video(x).mean((3, 4))), 1)


def video() -> Case:
    """Convolutions of other ranks."""
    return VideoNet(), (torch.randn(1, 2, 6, 10, 10),), {}


NETWORKS: dict[str, Callable[[], Case]] = {
    f.__name__: f
    for f in (
        resnet,
        mobilenet_v2,
        densenet,
        transformer_encoder,
        lstm,
        gru,
        segmentation,
        vit,
        unet,
        lookup,
        any_size,
        super_resolution,
        causal,
        video,
    )
}
DYNAMO = ("transformer_encoder", "segmentation", "any_size", "lookup", "causal")
