"""Parts of networks of today, as torchvision, timm and transformers write them, by torch.export."""

from __future__ import annotations

from typing import Any

import pytest
from torch_runs import check_export, torch

nn, F = torch.nn, torch.nn.functional


class InvertedResidual(nn.Module):
    """MobileNet v3's block: depthwise convolution, squeeze and excitation, hard swish."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.deep = nn.Conv2d(8, 16, 1), nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.squeeze, self.excite, self.narrow = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1), nn.Conv2d(16, 8, 1)

    def forward(self, x: Any) -> Any:
        y = F.hardswish(self.deep(F.hardswish(self.wide(x))))
        scale = F.hardsigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(y, 1)))))
        return x + self.narrow(y * scale)


class ConvNext(nn.Module):
    """ConvNeXt's block: channels last in the middle, layer normalisation, a scale for each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.deep, self.norm = nn.Conv2d(8, 8, 7, padding=3, groups=8), nn.LayerNorm(8)
        self.first, self.second = nn.Linear(8, 32), nn.Linear(32, 8)
        self.scale = nn.Parameter(torch.full((8, 1, 1), 0.5))

    def forward(self, x: Any) -> Any:
        y = self.norm(self.deep(x).permute(0, 2, 3, 1))
        return x + self.scale * self.second(F.gelu(self.first(y))).permute(0, 3, 1, 2)


class Windows(nn.Module):
    """Swin's shifted windows: roll, partition, attention with a relative bias, and back."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.bias = nn.Parameter(torch.randn(49, 2))
        self.register_buffer("places", torch.randint(0, 49, (16 * 16,)))

    def forward(self, x: Any) -> Any:
        n, h, w, c = x.shape
        x = torch.roll(x, (-2, -2), (1, 2)).view(n, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5)
        rows = x.reshape(-1, 16, c)
        q, k, v = self.qkv(rows).reshape(-1, 16, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
        bias = self.bias[self.places].view(16, 16, 2).permute(2, 0, 1).unsqueeze(0)
        scores = (q * 0.5) @ k.transpose(-2, -1) + bias
        y = self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, 16, c))
        y = y.view(n, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
        return torch.roll(y, (2, 2), (1, 2))


class Causal(nn.Module):
    """GPT's block: embeddings, causal attention, tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 16), nn.Embedding(12, 16)
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, ids: Any) -> Any:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        q, k, v = (y.view(*y.shape[:2], 2, 8).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        return F.linear(x + self.out(y), self.tokens.weight)


class Rotary(nn.Module):
    """Llama's: RMS normalisation, rotary positions, grouped queries, a mask, SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(16)
        self.q, self.kv, self.gate, self.up = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 32), nn.Linear(16, 32)
        self.down = nn.Linear(32, 16, bias=False)

    def forward(self, x: Any, mask: Any) -> Any:
        n, t, _ = x.shape
        y = self.norm(x)
        q = self.q(y).view(n, t, 4, 4).transpose(1, 2)
        k, v = (part.view(n, t, 2, 4).transpose(1, 2) for part in self.kv(y).chunk(2, -1))
        angles = torch.outer(torch.arange(t).float(), 10000 ** (-torch.arange(0, 4, 2).float() / 4))
        cos, sin = (torch.cat((f, f), -1) for f in (angles.cos(), angles.sin()))
        q, k = (z * cos + torch.cat((-z[..., 2:], z[..., :2]), -1) * sin for z in (q, k))
        x = x + F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True).transpose(1, 2).reshape(
            n, t, 16
        )
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


class Segmentation(nn.Module):
    """DeepLab's head: dilated convolutions, a pooled branch, interpolation to the size of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.wide, self.pooled = nn.Conv2d(8, 8, 3, padding=2, dilation=2), nn.Conv2d(8, 8, 1)
        self.head, self.up = nn.Conv2d(16, 4, 1), nn.ConvTranspose2d(4, 4, 2, stride=2)

    def forward(self, x: Any) -> dict[str, Any]:
        y = F.relu(self.body(x))
        small = F.interpolate(F.relu(self.pooled(y.mean((2, 3), keepdim=True))), y.shape[-2:], mode="bilinear")
        z = self.head(torch.cat((F.relu(self.wide(y)), small), 1))
        up = F.interpolate(z, x.shape[-2:], mode="bilinear", align_corners=False)
        return {"out": up, "mask": up.argmax(1), "up": self.up(z)}


MODELS = {
    "inverted residual": (InvertedResidual, lambda: [torch.randn(2, 8, 9, 9)]),
    "convnext": (ConvNext, lambda: [torch.randn(1, 8, 12, 12)]),
    "swin": (Windows, lambda: [torch.randn(2, 8, 8, 8)]),
    "gpt": (Causal, lambda: [torch.randint(0, 50, (2, 12))]),
    "llama": (Rotary, lambda: [torch.randn(2, 6, 16), torch.ones(2, 1, 6, 6, dtype=torch.bool).tril()]),
    "segmentation": (Segmentation, lambda: [torch.randn(1, 3, 32, 32)]),
    "encoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2),
        lambda: [torch.randn(2, 5, 16)],
    ),
    "lstm": (lambda: nn.LSTM(5, 6, 2, batch_first=True, bidirectional=True), lambda: [torch.randn(3, 4, 5)]),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_network_is_what_eager_gives(name: str) -> None:
    torch.manual_seed(0)
    make, inputs = MODELS[name]
    check_export(make(), inputs())
