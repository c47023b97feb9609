"""The networks of gpu_race.py that are PyTorch modules: torchvision's, and transformers written out here.

In: a name. Out: a module in evaluation and the shape of its input. Transformers take what follows an embedding, float32
of (rows, width); `product-N` is one product of N x N matrices. Invariant: weights are drawn with one seed;
normalisations have the statistics of a batch, which keep the scale of what flows.
"""

from __future__ import annotations

import math

import torch
import torchvision
from torch import nn
from torch.nn import functional as F

SEED, BATCH = 5, 4
LLAMA_WIDTH, LLAMA_HEADS, LLAMA_GROUPS, LLAMA_INNER, LLAMA_ROWS = 2048, 32, 8, 5632, 256
BERT_WIDTH, BERT_HEADS, BERT_LAYERS, BERT_ROWS = 768, 12, 12, 128


def _heads(x: torch.Tensor, count: int) -> torch.Tensor:
    """(batch, rows, width) as (batch, heads, rows, width of a head)."""
    batch, rows, width = x.shape
    return x.reshape(batch, rows, count, width // count).transpose(1, 2)


class BertLayer(nn.Module):
    """Attention over all rows, then two dense layers with GELU, each followed by a LayerNorm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm, self.last = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (_heads(part(x), self.heads) for part in (self.query, self.key, self.value))
        seen = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(x.shape)
        x = self.norm(x + self.out(seen))
        result: torch.Tensor = self.last(x + self.down(F.gelu(self.up(x))))
        return result


class RMSNorm(nn.Module):
    """Rows divided by the root of their mean square."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class LlamaBlock(nn.Module):
    """A decoder's block: causal attention of grouped heads, positions by rotation, a gated dense layer."""

    def __init__(self) -> None:
        super().__init__()
        width, inner, head = LLAMA_WIDTH, LLAMA_INNER, LLAMA_WIDTH // LLAMA_HEADS
        self.norm, self.last = RMSNorm(width), RMSNorm(width)
        self.query, self.out = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(width, head * LLAMA_GROUPS, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)
        angles = torch.outer(torch.arange(LLAMA_ROWS), 1e4 ** (-torch.arange(0, head, 2) / head))
        self.register_buffer("cosine", torch.cat([angles, angles], 1).cos())
        self.register_buffer("sine", torch.cat([angles, angles], 1).sin())
        future = torch.full((LLAMA_ROWS, LLAMA_ROWS), -math.inf)
        self.register_buffer("mask", future.triu(1).clamp(min=-1e9))

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        """Rows turned by their positions."""
        half = x.shape[-1] // 2
        turned = torch.cat([-x[..., half:], x[..., :half]], -1)
        result: torch.Tensor = x * self.cosine + turned * self.sine
        return result

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flow = self.norm(x)
        query = self.rotated(_heads(self.query(flow), LLAMA_HEADS))
        key, value = self.rotated(_heads(self.key(flow), LLAMA_GROUPS)), _heads(self.value(flow), LLAMA_GROUPS)
        share = LLAMA_HEADS // LLAMA_GROUPS
        key, value = (part.repeat_interleave(share, 1) for part in (key, value))
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=self.mask)
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        flow = self.last(x)
        result: torch.Tensor = x + self.down(F.silu(self.gate(flow)) * self.up(flow))
        return result


class Segmentation(nn.Module):
    """The result of a segmentation that torchvision names `out`."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.net(x)["out"]
        return result


def image_side(name: str) -> int:
    """The side of a network's images, as published."""
    return 299 if "inception" in name else 224


def network(name: str, side: int = 0) -> tuple[nn.Module, tuple[int, ...]]:
    """A network by its name, in evaluation, and the shape of its input."""
    torch.manual_seed(SEED)
    image = (1, 3, side or image_side(name), side or image_side(name))
    if name.startswith("product-"):
        size = int(name.removeprefix("product-"))
        return nn.Linear(size, size, bias=False).eval(), (size, size)
    if name == "bert_base":
        layers = (BertLayer(BERT_WIDTH, BERT_HEADS) for _ in range(BERT_LAYERS))
        return nn.Sequential(*layers).eval(), (1, BERT_ROWS, BERT_WIDTH)
    if name == "llama_block":
        return LlamaBlock().eval(), (1, LLAMA_ROWS, LLAMA_WIDTH)
    if name.startswith("fcn"):
        options = {"weights": None, "weights_backbone": None, "aux_loss": False}
        net: nn.Module = Segmentation(getattr(torchvision.models.segmentation, name)(**options))
    else:
        more = {"aux_logits": False, "init_weights": True} if "inception" in name else {}
        net = getattr(torchvision.models, name)(weights=None, **more)
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.momentum = 1.0
        if isinstance(part, nn.Linear) and not part.weight.any():
            part.reset_parameters()  # of ViT's head, zeros: its results would all be 0, and no error would show
    with torch.no_grad():
        net.train()(torch.randn(BATCH, *image[1:]))
    return net.eval(), image
