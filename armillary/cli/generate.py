"""Generate text with a language model.

Compiles an ONNX file, a GGUF file or a Hugging Face folder once, reads the prompt in chunks and prints the answer as it
comes. Text needs a tokenizer (in the GGUF file, or as tokenizer.json beside the model) and the package tokenizers;
--tokens takes and prints numbers instead.

examples:
  armc generate smollm/ "The capital of France is"
  armc generate smollm.Q4_K_M.gguf "The capital of France is"
  armc generate model.onnx --tokens 1,15043,29892 --max-tokens 32
  armc generate qwen3/ "Write a line about rain." --bits 4 --temperature 0.7 --top-p 0.9 --seed 3 --print-time
  armc generate qwen3-8b/ "Write a line about rain." --bits 4 --draft qwen3-0.6b/
  armc generate qwen3/ "$(cat LETTER) The letter again, with fewer words:" --draft-tokens 6
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Iterator

from armillary.cli._console import note
from armillary.cli.options.decoder import (
    add_draft_options,
    add_model_options,
    add_sampling_options,
    generator_of,
    sampling_of,
)
from armillary.cli.options.models import positive
from armillary.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `armc generate`."""
    add_model_options(parser, capacity=1024)
    parser.add_argument("PROMPT", nargs="?", default="", help="the text to continue")
    parser.add_argument(
        "--tokens", default="", metavar="N,N,…", help="token numbers in place of a text; the answer is numbers, too"
    )
    parser.add_argument("--max-tokens", type=positive, default=128, metavar="N", help="tokens of the answer at most")
    add_draft_options(parser)
    add_sampling_options(parser)
    parser.add_argument("--print-time", action="store_true", help="say what compiling and a token took")


def run(args: argparse.Namespace) -> int:
    """Compile, generate, print."""
    if bool(args.PROMPT) == bool(args.tokens):
        raise ConfigError("armc generate takes a prompt or --tokens", hint='armc generate folder/ "Once upon a time"')
    numbers = _numbers(args.tokens)
    begin = time.perf_counter()
    generator = generator_of(args)
    ready, produced = time.perf_counter(), 0
    sampling = dataclasses.asdict(sampling_of(args))
    pieces: Iterator[str]
    if numbers:
        if args.stop:
            raise ConfigError("--stop is a text, and --tokens has none")
        pieces = (f"{' ' * (k > 0)}{t}" for k, t in enumerate(generator.generate(numbers, args.max_tokens, **sampling)))
    else:
        pieces = generator.stream(args.PROMPT, args.max_tokens, stop=args.stop, **sampling)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
        produced += 1
    sys.stdout.write("\n")
    if args.print_time:
        took = time.perf_counter() - ready
        note(f"compiled in {ready - begin:.1f} s; {1e3 * took / max(1, produced):.2f} ms for each of {produced} pieces")
    return 0


def _numbers(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")] if text else []
    except ValueError:
        raise ConfigError(f"--tokens {text!r}: wanted numbers with commas between", hint="--tokens 1,15043") from None
