"""Complex tensors inside of programs, as inputs, weights and results: torch.export and torch.compile against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch_runs import torch

import armillary.contrib.torch_backend
from armillary import relay
from armillary.errors import UnsupportedError
from armillary.frontend.pytorch.tensors import array_of
from armillary.relay.evaluate import evaluate

FILTER = torch.randn(8, 5, 1, 2, generator=torch.Generator().manual_seed(0))
WINDOW = torch.hann_window(32)


class Rotary(torch.nn.Module):
    """Positions as rotations of pairs, whose factors are a complex buffer."""

    def __init__(self) -> None:
        super().__init__()
        turns = torch.outer(torch.arange(6.0), 1 / 10000 ** (torch.arange(0, 8, 2) / 8))
        self.register_buffer("factors", torch.polar(torch.ones_like(turns), turns))

    def forward(self, x: Any) -> Any:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.factors[None, :, None, :]).flatten(3)


class Function(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Any) -> Any:
        return self.function(*tensors)


def filtered(x: Any) -> Any:
    """As networks of global filters have it."""
    spectrum = torch.fft.rfft2(x, dim=(1, 2), norm="ortho") * torch.view_as_complex(FILTER)
    return torch.fft.irfft2(spectrum, s=(8, 8), dim=(1, 2), norm="ortho")


def arithmetic(a: Any, b: Any) -> Any:
    return (a @ b + 1j * a.mean() - 2 * b).abs() / a.angle().sum() + (a / b).imag


def spectrum(x: Any) -> Any:
    return torch.stft(x, 32, 8, window=WINDOW, return_complex=True)


CASES: dict[str, tuple[Any, tuple[tuple[int, ...], ...], Any]] = {
    "rotary": (Rotary(), ((2, 6, 3, 8),), torch.float32),
    "mixed": (Function(lambda x: torch.fft.fft2(x).real), ((2, 6, 10),), torch.float32),
    "filtered": (Function(filtered), ((2, 8, 8, 1),), torch.float32),
    "arithmetic": (Function(arithmetic), ((4, 4), (4, 4)), torch.complex64),
    "complex result": (Function(lambda a: torch.exp(a).conj() * 2), ((4, 4),), torch.complex64),
    "contraction": (Function(lambda a, b: torch.einsum("ij,kj->ik", a, b)), ((3, 4), (2, 4)), torch.complex64),
    "spectrum": (Function(lambda x: spectrum(x).abs()), ((2, 200),), torch.float32),
    "there and back": (Function(lambda x: torch.istft(spectrum(x), 32, 8, window=WINDOW)), ((2, 200),), torch.float32),
}


def inputs(shapes: tuple[tuple[int, ...], ...], dtype: Any) -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, dtype=dtype, generator=generator) for shape in shapes]


@pytest.mark.parametrize("name", CASES)
def test_exported_programs_give_what_eager_gives(name: str) -> None:
    model, shapes, dtype = CASES[name]
    tensors = inputs(shapes, dtype)
    module, params = relay.frontend.from_exported_program(torch.export.export(model, tuple(tensors)))
    waiting = iter(tensors)
    values = [params.get(p.name_hint) for p in module["main"].params]
    got = evaluate(module["main"], [array_of(next(waiting)) if v is None else v for v in values])
    np.testing.assert_allclose(np.asarray(got), array_of(model(*tensors)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["rotary", "filtered", "arithmetic", "complex result"])
def test_compiled_graphs_take_and_give_complex_tensors(name: str) -> None:
    armillary.contrib.torch_backend.register()
    torch._dynamo.reset()
    model, shapes, dtype = CASES[name]
    reports: list[str] = []
    compiled = torch.compile(model, backend="armillary", options={"report": reports.append})
    with torch.inference_mode():
        for _ in range(2):
            tensors = inputs(shapes, dtype)
            torch.testing.assert_close(compiled(*tensors), model(*tensors), rtol=1e-4, atol=1e-5)
    assert all("compiled as one" in text for text in reports)


def test_what_has_no_rule_for_complex_tensors_is_named() -> None:
    program = torch.export.export(Function(torch.atan), (torch.ones(3, dtype=torch.complex64),))
    with pytest.raises(UnsupportedError, match=r"atan.* has no rule for complex tensors"):
        relay.frontend.from_exported_program(program)
