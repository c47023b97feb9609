"""How often quantised networks choose the class that their float forms choose, for networks that learned something.

In: names of networks (none: all), `--steps` of training. Out: a line for each network and way of quantising: how many
of 1,000 fresh inputs have the same class as in float, the relative error, the package's part of float's package, and
milliseconds a batch of both, the least of interleaved runs (processor time of one thread); with `--race`, instead, the
networks at the size that users have (1,000 classes, images of 224, texts of 128 words, one input, seeded weights that
learned nothing) beside OpenVINO with the QDQ file that our quantiser writes. Rows go to `--log` as they are measured.
Invariant: seeded; nothing is downloaded: the tasks are to tell ten gratings apart (five directions, two frequencies,
random phase, contrast and noise), or ten kinds of texts (five subjects, each in the first or the second half, among
random words), learned here in minutes. Agreement with float is not accuracy, though float's accuracy is shown, too. It
needs torch; torchvision for MobileNet v2, EfficientNet and ResNet-50; transformers for BERT; openvino for `--race`.

    python benchmarks/quantised_agreement.py residual --steps 150
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch_networks import Patches, inverted, residual, squeezed
from torch_zoo import normalise

import armillary
from armillary import relay
from armillary.contrib.target.onnx import to_onnx
from armillary.runtime.threads import config_threadpool

CLASSES, SIDE, BATCH, INPUTS = 10, 32, 50, 1000
WORDS, VOCABULARY = 32, 64
ROUNDS, LEAST = 15, 1.0  # of interleaved runs; seconds of each engine in a race
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "residual": lambda: residual(CLASSES, 16, 3),
    "inverted": lambda: inverted(CLASSES, 16, 1),
    "squeezed": lambda: squeezed(CLASSES),
    "patches": lambda: Patches(96, 3, SIDE, CLASSES, 4),
    "mobilenet_v2": lambda: _fine(_of_torchvision("mobilenet_v2")),
    "efficientnet_b0": lambda: _fine(_of_torchvision("efficientnet_b0")),
    "resnet50": lambda: _of_torchvision("resnet50"),
    "bert": lambda: _bert(CLASSES, 128, 4),
}
RACE: dict[str, Callable[[], nn.Module]] = {
    "mobilenet_v2": lambda: _of_torchvision("mobilenet_v2", 1000),
    "efficientnet_b0": lambda: _of_torchvision("efficientnet_b0", 1000),
    "resnet50": lambda: _of_torchvision("resnet50", 1000),
    "patches": lambda: Patches(384, 12),  # ViT-S/16
    "bert": lambda: _bert(1000, 512, 8),
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


def _of_torchvision(name: str, classes: int = CLASSES) -> nn.Module:
    import torchvision

    model: nn.Module = torchvision.models.get_model(name, weights=None, num_classes=classes)
    return model


def _fine(model: nn.Module) -> nn.Module:
    """A network whose first convolution skips no places, as those for images of 32 by 32 are."""
    first = next(layer for layer in model.modules() if isinstance(layer, nn.Conv2d))
    first.stride = (1, 1)
    return model


class _Scores(nn.Module):
    """A classifier of transformers: its scores alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.model(input_ids=ids).logits
        return scores


def _bert(classes: int, size: int, layers: int) -> nn.Module:
    import transformers

    sizes = {"hidden_size": size, "intermediate_size": 4 * size, "num_hidden_layers": layers}
    sizes |= {"num_attention_heads": size // 64, "vocab_size": VOCABULARY, "num_labels": classes}
    config = transformers.BertConfig(**sizes, max_position_embeddings=128, hidden_dropout_prob=0.0)
    return _Scores(transformers.BertForSequenceClassification(config))


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


def texts(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Texts and their classes: a third of one half's words are of a subject."""
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    words = torch.randint(0, VOCABULARY, (count, WORDS), generator=generator)
    subject = 8 * (labels % 5)[:, None] + torch.randint(0, 8, (count, WORDS), generator=generator)
    is_half = (torch.arange(WORDS) < WORDS // 2)[None] == (labels < 5)[:, None]
    is_subject = is_half & (torch.rand(count, WORDS, generator=generator) < 1 / 3)
    return torch.where(is_subject, subject, words), labels


def task_of(name: str) -> Callable[[int, torch.Generator], tuple[torch.Tensor, torch.Tensor]]:
    """What a network learns."""
    return texts if name == "bert" else gratings


def trained(name: str, steps: int) -> nn.Module:
    """A network that tells the classes apart."""
    torch.manual_seed(0)
    generator, model, task = torch.Generator().manual_seed(1), NETWORKS[name](), task_of(name)
    rate = 5e-4 if name == "bert" else 2e-3
    optimizer = torch.optim.AdamW(model.parameters(), rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2 * rate, total_steps=steps)
    for _ in range(steps):
        inputs, labels = task(32, generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        schedule.step()
    inputs = task(256, generator)[0]
    normalise(model, inputs)  # the statistics of so few steps lag behind the weights
    return model


def runner(module: Any, params: Any) -> tuple[Callable[[Any], Any], int]:
    """A compiled network, and bytes of its package."""
    with armillary.transform.PassContext(opt_level=3):
        library = relay.build(module, target="llvm", params=params)
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "network.so"
        library.export_library(str(package))
        size = package.stat().st_size
    executor = library["default"]()

    def run(inputs: Any) -> Any:
        executor.set_input(0, inputs)
        executor.run()
        return executor.get_output(0).numpy().copy()

    return run, size


def interleaved(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Milliseconds of processor time of a call of each, the least."""
    times = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for key, call in calls.items():
            end = time.perf_counter() + seconds / ROUNDS
            while True:
                start = time.process_time()
                call()
                times[key] = min(times[key], 1e3 * (time.process_time() - start))
                if time.perf_counter() > end:
                    break
    return times


def compare(name: str, steps: int, ways: list[str]) -> Iterator[dict[str, Any]]:
    """A row for each way."""
    model, task = trained(name, steps), task_of(name)
    inputs, labels = task(INPUTS, torch.Generator().manual_seed(2))
    rows = [task(BATCH, torch.Generator().manual_seed(3 + k))[0].numpy() for k in range(4)]
    program = torch.export.export(model, (inputs[:BATCH],))
    module, params = relay.frontend.from_exported_program(program)
    label = module["main"].params[0].name_hint
    plain, plain_size = runner(module, params)
    parts = inputs.numpy().reshape(-1, BATCH, *inputs.shape[1:])
    wanted = np.concatenate([plain(p) for p in parts])
    right = float((wanted.argmax(1) == labels.numpy()).mean())
    for way in ways:
        row: dict[str, Any] = {"name": name, "way": way, "right": right}
        try:
            run, size = runner(WAYS[way](module, params, [{label: x} for x in rows]).module, None)
        except armillary.errors.ArmillaryError as error:
            yield row | {"refused": str(error).splitlines()[0]}
            continue
        got = np.concatenate([run(p) for p in parts])
        agree = int((got.argmax(1) == wanted.argmax(1)).sum())
        error = float(np.sqrt(((got - wanted) ** 2).sum() / (wanted**2).sum()))
        times = interleaved({"float": lambda: plain(parts[0]), "int8": lambda run=run: run(parts[0])}, 0)
        yield row | {"agree": agree, "error": error, "size": size / plain_size, "ms": times}


def race(name: str) -> Iterator[dict[str, Any]]:
    """A row for each form: our package of a quantised network beside OpenVINO with its file. Where channels are not
    evened out, a ReLU6 has one bound for all of them, which OpenVINO takes into a convolution."""
    import openvino  # type: ignore[import-not-found, unused-ignore]

    torch.manual_seed(0)
    model = RACE[name]()
    if name == "bert":
        inputs = [torch.randint(0, VOCABULARY, (1, 128)) for _ in range(3)]
    else:
        inputs = [torch.randn(1, 3, 224, 224) for _ in range(3)]
        normalise(model, torch.cat(inputs))
    module, params = relay.frontend.from_exported_program(torch.export.export(model.eval(), (inputs[0],)))
    label, x = module["main"].params[0].name_hint, inputs[0].numpy()
    plain, plain_size = runner(module, params)
    for way, is_even in (("race", True), ("race, not even", False)):
        smaller = armillary.quantize(module, params, [{label: each.numpy()} for each in inputs], equalize=is_even)
        run, size = runner(smaller.module, None)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "network.onnx"
            to_onnx(smaller.module, name=name, opset_version=17, path=file)
            options = {"PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": "1"}
            options["INFERENCE_PRECISION_HINT"] = "f32"  # of what is not quantised
            request = openvino.Core().compile_model(str(file), "CPU", options).create_infer_request()

        def peer(request: Any = request) -> Any:
            return request.infer({0: x}, share_inputs=True, share_outputs=True)[0]

        gap = float(np.abs(peer() - run(x)).max() / np.abs(run(x)).max())
        times = interleaved({"float": lambda: plain(x), "int8": lambda run=run: run(x), "openvino": peer}, LEAST)
        yield {"name": name, "way": way, "error": smaller.error, "peer": gap, "size": size / plain_size, "ms": times}


def shown(row: dict[str, Any]) -> str:
    """A row as a line."""
    if "refused" in row:
        return f"{row['name']:16} {row['way']:20} {row['refused']}"
    ms = "  ".join(f"{name} {time:7.2f}" for name, time in row["ms"].items())
    agree = f"{row['agree']:4} of {INPUTS} (float right {row['right']:.1%})" if "agree" in row else ""
    peer = f"{row['ms']['int8'] / row['ms']['openvino']:.2f} of OpenVINO's" if "openvino" in row["ms"] else ""
    return f"{row['name']:16} {row['way']:20} {agree} error {row['error']:.4f}  size {row['size']:.2f}  {ms}  {peer}"


def main() -> None:
    """Compare what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--ways", default=",".join(w.replace(",", ";") for w in WAYS), help="`;` stands for a comma")
    parser.add_argument("--race", action="store_true", help="users' sizes, beside OpenVINO")
    parser.add_argument("--log", type=Path, default=Path("quantised_agreement.jsonl"))
    options = parser.parse_args()
    config_threadpool(0, 1)
    ways = [way.replace(";", ",") for way in options.ways.split(",")]
    for name in options.names or (RACE if options.race else NETWORKS):
        for row in race(name) if options.race else compare(name, options.steps, ways):
            with options.log.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(shown(row), flush=True)


if __name__ == "__main__":
    main()
