"""Networks of torch alone, as torchvision, timm and transformers shape theirs, with seeded weights.

In: a name of `ALONE` and a batch. Out: a module in its inference state, and its input. Invariant: nothing but torch is
imported, nothing is downloaded.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class Normed(nn.Sequential):
    """A convolution, its normalisation, and an activation."""

    def __init__(
        self, inner: int, outer: int, kernel: int, stride: int = 1, groups: int = 1, last: Any = nn.ReLU
    ) -> None:
        convolution = nn.Conv2d(inner, outer, kernel, stride, kernel // 2, groups=groups, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(outer), last())


class Residual(nn.Module):
    """ResNet's basic block."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(Normed(inner, outer, 3, stride), Normed(outer, outer, 3, last=nn.Identity))
        same = stride == 1 and inner == outer
        self.short = nn.Identity() if same else Normed(inner, outer, 1, stride, last=nn.Identity)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.short(x))


class Inverted(nn.Module):
    """MobileNet's inverted residual."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        wide = 6 * inner
        self.body = nn.Sequential(
            Normed(inner, wide, 1, last=nn.ReLU6),
            Normed(wide, wide, 3, stride, wide, nn.ReLU6),
            Normed(wide, outer, 1, last=nn.Identity),
        )
        self.is_residual = stride == 1 and inner == outer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.is_residual else self.body(x)


def _head(channels: int, classes: int = 1000) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]


def residual(classes: int = 1000, width: int = 64, stem: int = 7) -> nn.Module:
    """ResNet-18."""
    layers: list[nn.Module] = [Normed(3, width, stem, 2 if stem == 7 else 1)]
    layers += [nn.MaxPool2d(3, 2, 1)] if stem == 7 else []
    inner = width
    for outer, stride in ((width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)):
        layers += [Residual(inner, outer, stride), Residual(outer, outer, 1)]
        inner = outer
    return nn.Sequential(*layers, *_head(inner, classes))


def inverted(classes: int = 1000, width: int = 16, stem: int = 2) -> nn.Module:
    """MobileNet v2, half as deep."""
    layers: list[nn.Module] = [Normed(3, width, 3, stem, last=nn.ReLU6)]
    inner = width
    for outer, stride in ((24, 2), (24, 1), (32, 2), (32, 1), (64, 2), (64, 1), (96, 1), (160, 2), (160, 1)):
        layers.append(Inverted(inner, outer, stride))
        inner = outer
    return nn.Sequential(*layers, Normed(inner, 640, 1, last=nn.ReLU6), *_head(640, classes))


class Gate(nn.Module):
    """A squeeze of a map to its means, by which its channels are scaled."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(size, size // 4, 1), nn.Conv2d(size // 4, size, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(self.second(F.silu(self.first(x.mean((2, 3), keepdim=True)))))


class Squeezed(nn.Module):
    """EfficientNet's block."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        wide = 4 * inner
        self.body = nn.Sequential(
            Normed(inner, wide, 1, last=nn.SiLU),
            Normed(wide, wide, 3, stride, wide, nn.SiLU),
            Gate(wide),
            Normed(wide, outer, 1, last=nn.Identity),
        )
        self.is_residual = stride == 1 and inner == outer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.is_residual else self.body(x)


def squeezed(classes: int) -> nn.Module:
    """EfficientNet, half as deep, for images of 32 by 32."""
    layers: list[nn.Module] = [Normed(3, 16, 3, last=nn.SiLU)]
    inner = 16
    for outer, stride in ((24, 2), (24, 1), (40, 2), (40, 1), (80, 2), (80, 1), (112, 1)):
        layers.append(Squeezed(inner, outer, stride))
        inner = outer
    return nn.Sequential(*layers, Normed(inner, 256, 1, last=nn.SiLU), *_head(256, classes))


class ConvNext(nn.Module):
    """ConvNeXt's block."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.deep, self.norm = nn.Conv2d(size, size, 7, padding=3, groups=size), nn.LayerNorm(size)
        self.first, self.second = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.deep(x).permute(0, 2, 3, 1))
        return x + self.second(F.gelu(self.first(y))).permute(0, 3, 1, 2)


class Block(nn.Module):
    """A transformer's block, its norms first; `is_causal`: GPT's, else ViT's."""

    def __init__(self, size: int, heads: int, is_causal: bool) -> None:
        super().__init__()
        self.heads, self.is_causal = heads, is_causal
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.first, self.second = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal).transpose(1, 2).reshape(n, t, c)
        x = x + self.out(y)
        return x + self.second(F.gelu(self.first(self.norm2(x))))


class Patches(nn.Module):
    """A vision transformer."""

    def __init__(self, size: int = 192, depth: int = 6, side: int = 224, classes: int = 1000, patch: int = 16) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, size, patch, patch)
        self.places = nn.Parameter(torch.randn(1, (side // patch) ** 2, size) * 0.02)
        self.blocks = nn.Sequential(*(Block(size, max(size // 64, 1), False) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.cut(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.norm(self.blocks(x)).mean(1))


class Words(nn.Module):
    """A decoder of words: the scores of all places."""

    def __init__(self, size: int = 256, depth: int = 4, words: int = 1000, most: int = 128) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, size), nn.Embedding(most, size)
        self.blocks = nn.Sequential(*(Block(size, 4, True) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, words)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


class Unet(nn.Module):
    """A U-Net of three levels."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        sizes = (width, 2 * width, 4 * width)
        self.down = nn.ModuleList(
            nn.Sequential(Normed(i, o, 3), Normed(o, o, 3)) for i, o in zip((3, *sizes), sizes, strict=False)
        )
        self.middle = nn.Sequential(Normed(sizes[-1], sizes[-1], 3), Normed(sizes[-1], sizes[-1], 3))
        self.up = nn.ModuleList(Normed(2 * s, max(s // 2, width), 3) for s in reversed(sizes))
        self.last = nn.Conv2d(width, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        held = []
        for level in self.down:
            held.append(level(x))
            x = F.max_pool2d(held[-1], 2)
        x = self.middle(x)
        for level, beside in zip(self.up, reversed(held), strict=True):
            x = F.interpolate(x, beside.shape[-2:], mode="bilinear", align_corners=False)
            x = level(torch.cat((x, beside), 1))
        return self.last(x)


def _mlp() -> nn.Module:
    sizes = (256, 512, 512, 512, 10)
    pairs = list(itertools.pairwise(sizes))
    return nn.Sequential(*(layer for i, o in pairs for layer in (nn.Linear(i, o), nn.ReLU())))


def _convnext() -> nn.Module:
    parts = [nn.Conv2d(3, 96, 4, 4), *(ConvNext(96) for _ in range(3))]
    parts += [nn.Conv2d(96, 192, 2, 2), *(ConvNext(192) for _ in range(3))]
    return nn.Sequential(*parts, *_head(192))


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)


def _image(side: int) -> Callable[[int], torch.Tensor]:
    return lambda batch: torch.randn(batch, 3, side, side)


ALONE: dict[str, tuple[Callable[[], nn.Module], Callable[[int], torch.Tensor]]] = {
    "mlp": (_mlp, lambda batch: torch.randn(batch, 256)),
    "residual": (residual, _image(224)),
    "inverted": (inverted, _image(224)),
    "convnext": (_convnext, _image(224)),
    "patches": (Patches, _image(224)),
    "encoder": (_encoder, lambda batch: torch.randn(batch, 128, 256)),
    "words": (Words, lambda batch: torch.randint(0, 1000, (batch, 128))),
    "unet": (Unet, _image(128)),
}


def alone(name: str, batch: int) -> tuple[nn.Module, torch.Tensor]:
    """A network and its input."""
    torch.manual_seed(0)
    make, example = ALONE[name]
    return make().eval(), example(batch)
