"""How often quantised networks choose the class that their float forms choose, for networks that learned something.

In: names of networks (none: all), `--steps` of training. Out: a line for each network and way of quantising: how many
of 1,000 fresh inputs have the same class as in float, the relative error, which part of float's parameters is left, and
milliseconds a batch of both, the least of interleaved runs. Invariant: seeded; nothing is downloaded: the task is to
tell ten gratings (five directions, two frequencies, random phase, contrast and noise) apart, learned here in minutes.
Agreement with float is not accuracy, though float's accuracy is shown, too. It needs torch, and torchvision for
MobileNet v2 and EfficientNet.

    python benchmarks/quantised_agreement.py residual --steps 150
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch_networks import Patches, inverted, residual

import armillary
from armillary import relay

CLASSES, SIDE, BATCH, INPUTS = 10, 32, 50, 1000
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "residual": lambda: residual(CLASSES, 16, 3),
    "inverted": lambda: inverted(CLASSES, 16, 1),
    "mobilenet_v2": lambda: _of_torchvision("mobilenet_v2"),
    "efficientnet_b0": lambda: _of_torchvision("efficientnet_b0"),
    "patches": lambda: Patches(96, 3, SIDE, CLASSES, 4),
}
WAYS: dict[str, Callable[[Any, Any, Any], Any]] = {
    **{m: lambda mod, params, rows, m=m: armillary.quantize(mod, params, rows, method=m) for m in ("minmax", "mse")},
    "mse, not corrected": lambda mod, params, rows: armillary.quantize(mod, params, rows, correct=False),
    "mse, not even": lambda mod, params, rows: armillary.quantize(mod, params, rows, equalize=False),
    "mse, smooth": lambda mod, params, rows: armillary.quantize(mod, params, rows, smooth=0.5),
    "error 2 %": lambda mod, params, rows: armillary.quantize(mod, params, rows, error=0.02),
    "weights 4, nearest": lambda mod, params, rows: armillary.quantize_weights(mod, params, rows),
    "weights 4, gptq": lambda mod, params, rows: armillary.quantize_weights(mod, params, rows, method="gptq"),
    "weights 4, awq": lambda mod, params, rows: armillary.quantize_weights(mod, params, rows, method="awq"),
}


def _of_torchvision(name: str) -> nn.Module:
    import torchvision

    model: nn.Module = torchvision.models.get_model(name, weights=None, num_classes=CLASSES)
    return model


def gratings(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of three colours and their classes."""
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    angle = (labels % 5) * (np.pi / 5) + 0.1 * torch.randn(count, generator=generator)
    frequency = torch.where(labels < 5, 0.5, 0.9)
    y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    phase = 2 * np.pi * torch.rand(count, 3, 1, 1, generator=generator)
    place = (angle.cos()[:, None, None] * x + angle.sin()[:, None, None] * y) * frequency[:, None, None]
    contrast = 0.3 + torch.rand(count, 3, 1, 1, generator=generator)
    images = contrast * torch.sin(place[:, None] + phase)
    return images + 0.7 * torch.randn(images.shape, generator=generator), labels


def trained(name: str, steps: int) -> nn.Module:
    """A network that tells the classes apart."""
    torch.manual_seed(0)
    generator, model = torch.Generator().manual_seed(1), NETWORKS[name]()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for _ in range(steps):
        images, labels = gratings(32, generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def runner(module: Any, params: Any) -> tuple[Callable[[Any], Any], int]:
    """A compiled network, and bytes of its parameters."""
    with armillary.transform.PassContext(opt_level=3):
        library = relay.build(module, target="llvm", params=params)
    size = sum(a.nbytes for a in library.get_params().values())
    executor = library["default"]()

    def run(images: Any) -> Any:
        executor.set_input(0, images)
        executor.run()
        return executor.get_output(0).numpy().copy()

    return run, size


def compare(name: str, steps: int, ways: list[str]) -> None:
    """A line for each way."""
    model = trained(name, steps)
    images, labels = gratings(INPUTS, torch.Generator().manual_seed(2))
    rows = [{"x": gratings(BATCH, torch.Generator().manual_seed(3 + k))[0].numpy()} for k in range(4)]
    program = torch.export.export(model, (images[:BATCH],))
    module, params = relay.frontend.from_exported_program(program)
    label = module["main"].params[0].name_hint
    rows = [{label: row["x"]} for row in rows]
    plain, plain_size = runner(module, params)
    parts = images.numpy().reshape(-1, BATCH, *images.shape[1:])
    wanted = np.concatenate([plain(p) for p in parts])
    print(f"{name}: float is right for {(wanted.argmax(1) == labels.numpy()).mean():.1%}", flush=True)
    for way in ways:
        try:
            run, size = runner(WAYS[way](module, params, rows).module, None)
        except armillary.errors.ArmillaryError as error:
            print(f"  {way:20} {str(error).splitlines()[0]}")
            continue
        got = np.concatenate([run(p) for p in parts])
        agree = int((got.argmax(1) == wanted.argmax(1)).sum())
        error = float(np.sqrt(((got - wanted) ** 2).sum() / (wanted**2).sum()))
        times = {"float": np.inf, "quantised": np.inf}
        for _ in range(15):
            for key, call in (("float", plain), ("quantised", run)):
                start = time.perf_counter()
                call(parts[0])
                times[key] = min(times[key], time.perf_counter() - start)
        ms = "  ".join(f"{1e3 * t:7.2f}" for t in times.values())
        print(f"  {way:20} {agree:4} of {INPUTS}  error {error:.4f}  size {size / plain_size:.2f}  ms {ms}", flush=True)


def main() -> None:
    """Compare what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--ways", default=",".join(w.replace(",", ";") for w in WAYS), help="`;` stands for a comma")
    options = parser.parse_args()
    for name in options.names or NETWORKS:
        compare(name, options.steps, [way.replace(";", ",") for way in options.ways.split(",")])


if __name__ == "__main__":
    main()
