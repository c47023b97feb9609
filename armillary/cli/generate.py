"""Generate text with a language model.

Compiles an ONNX file, a GGUF file or a Hugging Face folder once, reads the prompt in chunks and prints the answer as it
comes. Text needs a tokenizer (in the GGUF file, or as tokenizer.json beside the model) and the package tokenizers;
--tokens takes and prints numbers instead.

examples:
  armc generate smollm/ "The capital of France is"
  armc generate smollm.Q4_K_M.gguf "The capital of France is"
  armc generate model.onnx --tokens 1,15043,29892 --max-tokens 32
  armc generate qwen3/ "Write a line about rain." --bits 4 --temperature 0.7 --top-p 0.9 --seed 3 --print-time
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

from armillary.cli._console import note
from armillary.cli._model import count, fraction, pass_config, positive
from armillary.errors import ConfigError
from armillary.generate import Generator


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `armc generate`."""
    add_model_options(parser, capacity=1024)
    parser.add_argument("PROMPT", nargs="?", default="", help="the text to go on with")
    parser.add_argument("--tokens", default="", metavar="N,N,…", help="a prompt of token numbers, answered with such")
    parser.add_argument("--max-tokens", type=positive, default=128, metavar="N", help="tokens of the answer at most")
    parser.add_argument("--temperature", type=float, default=0.0, help="0, the default: the likeliest token")
    parser.add_argument("--top-k", type=count, default=0, metavar="N", help="of the N likeliest tokens")
    parser.add_argument("--top-p", type=fraction, default=1.0, metavar="P", help="of the likeliest that sum to P")
    parser.add_argument("--seed", type=count, default=0)
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end before it; repeatable")
    parser.add_argument("--print-time", action="store_true", help="say what compiling and a token took")


def add_model_options(parser: argparse.ArgumentParser, capacity: int) -> None:
    """Declare a decoder's file and how it is compiled; `capacity`: the default of --capacity."""
    forms = "an ONNX or GGUF file, or a folder with config.json and safetensors or model.onnx"
    parser.add_argument("MODEL", help=forms)
    parser.add_argument("--capacity", type=positive, default=capacity, metavar="N", help="tokens of prompt and answer")
    parser.add_argument("--chunk", type=positive, default=64, metavar="N", help="tokens of a prompt read at once")
    parser.add_argument("--bits", type=int, choices=(0, 4, 8), default=0, help="pack a folder's weights (0: no)")
    parser.add_argument("--target", default="llvm", help="default: llvm, this machine")
    parser.add_argument("--pass-config", action="append", default=[], metavar="NAME=VALUE", help="repeatable")


def generator_of(args: argparse.Namespace, slots: int = 1) -> Generator:
    """The decoder of these options, for so many sequences side by side."""
    return Generator(
        args.MODEL,
        capacity=args.capacity,
        chunk=args.chunk,
        slots=slots,
        bits=args.bits,
        target=args.target,
        config=pass_config(args.pass_config),
    )


def run(args: argparse.Namespace) -> int:
    """Compile, generate, print."""
    if bool(args.PROMPT) == bool(args.tokens):
        raise ConfigError("armc generate takes a prompt or --tokens", hint='armc generate folder/ "Once upon a time"')
    numbers = _numbers(args.tokens)
    begin = time.perf_counter()
    generator = generator_of(args)
    ready, produced = time.perf_counter(), 0
    sampling = {"temperature": args.temperature, "top_k": args.top_k, "top_p": args.top_p, "seed": args.seed}
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
