"""Options of `armc generate`, `chat` and `serve`: a language model, how it is compiled, how tokens are chosen.

In: what argparse read. Out: a `Generator`; what its `stream` takes. Invariant: an option has one meaning and one
default in all of them, but the capacity.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from armillary.cli.options.models import count, fraction, pass_config, positive
from armillary.errors import ArmillaryError, ConfigError
from armillary.generate import Generator
from armillary.generate.blocks import CACHES
from armillary.generate.sampling import Sampling

DRAFTED = 4  # guesses of a small model that are checked in one call


def add_model_options(parser: argparse.ArgumentParser, capacity: int) -> None:
    """Declare a decoder's file and how it is compiled; `capacity`: the default of --capacity."""
    forms = "an ONNX or GGUF file, or a folder with config.json and safetensors or model.onnx"
    parser.add_argument("MODEL", help=forms)
    text = f"tokens of prompt and answer (default: {capacity}; 0: as many as the model was trained for)"
    parser.add_argument("--capacity", type=count, default=capacity, metavar="N", help=text)
    parser.add_argument("--cache", choices=CACHES, default="float32", help="what caches hold (default: float32)")
    parser.add_argument("--chunk", type=positive, default=64, metavar="N", help="tokens of a prompt read at once")
    parser.add_argument("--bits", type=int, choices=(0, 4, 8), default=0, help="pack a folder's weights (0: no)")
    parser.add_argument("--target", default="llvm", help="default: llvm, this machine")
    parser.add_argument("--pass-config", action="append", default=[], metavar="NAME=VALUE", help="repeatable")


def add_draft_options(parser: argparse.ArgumentParser) -> None:
    """Declare how tokens are guessed while one sequence alone is answered."""
    text = "a small model with the same tokens guesses, and the model checks: the same answer in fewer calls"
    parser.add_argument("--draft", default="", metavar="MODEL", help=text)
    text = f"guesses for each call (default: {DRAFTED} with --draft); without: what such a text went on with"
    parser.add_argument("--draft-tokens", type=positive, metavar="N", help=text)


def _drafter(args: argparse.Namespace) -> Generator:
    """The small model, with caches as long as those of the large one; what it lacks is said with its name."""
    try:
        bits = 0 if Path(args.draft).suffix == ".gguf" else args.bits
        return Generator(
            args.draft,
            capacity=args.capacity or None,
            chunk=args.chunk,
            bits=bits,
            target=args.target,
            config=pass_config(args.pass_config),
        )
    except (ArmillaryError, OSError) as error:
        raise ConfigError(f"--draft {args.draft}: {error}") from error


def generator_of(args: argparse.Namespace, slots: int = 1) -> Generator:
    """The decoder of these options for so many sequences side by side, with what guesses for one that is alone."""
    drafter = _drafter(args) if args.draft else None
    return Generator(
        args.MODEL,
        draft=args.draft_tokens or (DRAFTED if drafter else 0),
        drafter=drafter,
        capacity=args.capacity or None,
        cache=args.cache,
        chunk=args.chunk,
        slots=slots,
        bits=args.bits,
        target=args.target,
        config=pass_config(args.pass_config),
    )


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    """Declare how tokens are chosen."""
    parser.add_argument("--temperature", type=float, default=0.0, help="0, the default: the likeliest token")
    parser.add_argument("--top-k", type=count, default=0, metavar="N", help="of the N likeliest tokens")
    parser.add_argument("--top-p", type=fraction, default=1.0, metavar="P", help="of the likeliest that sum to P")
    parser.add_argument("--seed", type=count, default=0)
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end before it; repeatable")


def sampling_of(args: argparse.Namespace) -> Sampling:
    """How tokens are chosen."""
    return Sampling(args.temperature, args.top_k, args.top_p, args.seed)
