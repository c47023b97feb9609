"""Networks of torchvision and small ones of transformers, random weights, through PyTorch's three doors, against eager.

In: names of networks (none: all); `--doors export,open,script,compile`. Out: one line for each network and door: the
largest difference, relative to the largest value, and the seconds that import and build took, or why it stops.
Invariant: the weights are seeded, nothing is downloaded; `open` exports with an open batch, builds once, and runs at
two batches, as `compile` does. It needs torchvision and transformers.

    python benchmarks/torch_doors.py resnet18 bert --doors export,open
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import armillary
from armillary import relay
from armillary.errors import ArmillaryError

BATCHES = (2, 3)
VISION = (
    *("alexnet", "vgg11", "resnet18", "resnext50_32x4d", "densenet121", "squeezenet1_1", "googlenet", "mobilenet_v2"),
    *("mobilenet_v3_small", "efficientnet_b0", "mnasnet0_5", "shufflenet_v2_x0_5", "regnet_y_400mf", "convnext_tiny"),
    *("vit_b_32", "swin_t", "swin_v2_t", "maxvit_t", "inception_v3"),
)
SIDES = {"inception_v3": 96, "vit_b_32": 224, "swin_t": 224, "swin_v2_t": 256, "maxvit_t": 224}
SMALL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
WIDTHS = ("hidden_size", "intermediate_size", "embedding_size", "dim", "hidden_dim", "n_embd")
TEXT: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", {"vocab_size": 100, **SMALL}),
    "roberta": ("Roberta", {"vocab_size": 100, **SMALL}),
    "electra": ("Electra", {"vocab_size": 100, "embedding_size": 32, **SMALL}),
    "distilbert": ("DistilBert", {"vocab_size": 100, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}),
    "gpt2": ("GPT2", {"vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4, "use_cache": False}),
    "llama": ("Llama", {"vocab_size": 100, "num_key_value_heads": 2, "use_cache": False, **SMALL}),
    "qwen2": ("Qwen2", {"vocab_size": 100, "num_key_value_heads": 2, "use_cache": False, **SMALL}),
}


class First(torch.nn.Module):
    """A model of transformers by its first result."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(ids, return_dict=False)[0]


def network(name: str, is_small: bool = True) -> tuple[torch.nn.Module, Callable[[int], torch.Tensor]]:
    """A network with seeded weights, and its input for a batch; else of 128 words, or of the side that users have."""
    torch.manual_seed(0)
    if name in TEXT:
        import transformers

        family, settings = TEXT[name]
        factor, count = (1, 12) if is_small else (8, 128)
        settings = {k: v * factor if k in WIDTHS else v for k, v in settings.items()}
        config = getattr(transformers, f"{family}Config")(**settings)
        model = getattr(transformers, f"{family}Model")(config)
        return First(model).eval(), lambda batch: torch.randint(0, 100, (batch, count))
    import torchvision

    extra = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    side = SIDES.get(name, 64) if is_small else max(SIDES.get(name, 224), 224)
    return torchvision.models.get_model(name, weights=None, **extra).eval(), lambda b: torch.randn(b, 3, side, side)


def difference(result: Any, wanted: torch.Tensor) -> float:
    """The largest difference, relative to the largest value."""
    theirs = wanted.detach().numpy()
    return float(np.abs(np.asarray(result) - theirs).max() / max(1e-6, np.abs(theirs).max()))


def compared(module: Any, params: dict[str, Any], model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> float:
    """Build once, run for all inputs."""
    with armillary.transform.PassContext(opt_level=3):
        graph = relay.build(module, target="llvm", params=params)["default"]()
    errors = []
    for x in inputs:
        graph.set_input(0, x.numpy())
        graph.run()
        errors.append(difference(graph.get_output(0).numpy(), model(x)))
    return max(errors)


def through(door: str, model: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> float:
    """The largest difference by one door."""
    if door == "compile":
        torch._dynamo.reset()
        compiled = torch.compile(model, backend="armillary", options={"report": lambda text: print(f"    {text}")})
        return max(difference(compiled(x).numpy(), model(x)) for x in inputs)
    if door == "script":
        script = torch.jit.trace(model, inputs[0], check_trace=False)
        dtype = str(inputs[0].dtype).removeprefix("torch.")
        module, params = relay.frontend.from_pytorch(script, [("x", (tuple(inputs[0].shape), dtype))])
        return compared(module, params, model, inputs[:1])
    dims = ({0: torch.export.Dim.DYNAMIC},) if door == "open" else None
    program = torch.export.export(model, (inputs[0],), dynamic_shapes=dims)
    module, params = relay.frontend.from_exported_program(program)
    return compared(module, params, model, inputs if door == "open" else inputs[:1])


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--doors", default="export,open,script,compile")
    options = parser.parse_args()
    for name in options.names or (*TEXT, *VISION):
        model, example = network(name)
        inputs = [example(batch) for batch in BATCHES]
        for door in options.doors.split(","):
            start = time.perf_counter()
            try:
                with torch.inference_mode(door == "compile"), torch.no_grad():
                    text = f"{through(door, model, inputs):.1e}"
            except (ArmillaryError, RuntimeError, torch._dynamo.exc.TorchDynamoException) as error:
                lines = [line for line in str(error).splitlines() if line.strip()]
                text = f"stops: {type(error).__name__}: {' / '.join(lines[:2])[:300]}"
            print(f"{name:20} {door:8} {time.perf_counter() - start:6.1f} s  {text}", flush=True)


if __name__ == "__main__":
    main()
