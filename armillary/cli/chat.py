"""Talk with a language model.

Compiles a Hugging Face folder, a GGUF or an ONNX file once and answers one line after the other, as its chat template
says, each answer as it comes. What was said before stays in the caches. From a pipe every line is a message and only
answers are printed. A line that ends with a backslash goes on in the next one; /reset forgets what was said, /system
TEXT sets what is said before it (and forgets), /help lists these, /quit or the end of the input ends. Interrupting
stops an answer. Needs armillary[chat], a tokenizer and a chat template.

examples:
  armc chat SmolLM2-135M-Instruct-Q4_K_M.gguf
  armc chat qwen3/ --bits 4 --temperature 0.7 --top-p 0.9 --system "Answer in one sentence."
  armc chat qwen3-8b/ --bits 4 --draft qwen3-0.6b/
  echo "Why is the sky blue?" | armc chat smollm/
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator

from armillary.cli._console import is_terminal, note
from armillary.cli.options.decoder import (
    add_draft_options,
    add_model_options,
    add_sampling_options,
    generator_of,
    sampling_of,
)
from armillary.cli.options.models import positive
from armillary.errors import ArmillaryError
from armillary.generate.conversation import Conversation

with contextlib.suppress(ImportError):
    import readline  # noqa: F401  # input() then edits lines and remembers them

_HELP = "/reset: forget what was said; /system TEXT: say this before it; /quit: end; a \\ at the end: the line goes on"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `armc chat`."""
    add_model_options(parser, capacity=0)
    add_draft_options(parser)
    add_sampling_options(parser)
    parser.add_argument("--max-tokens", type=positive, default=1024, metavar="N", help="tokens of an answer at most")
    parser.add_argument("--system", default="", metavar="TEXT", help="what the model is told before the first message")


def run(args: argparse.Namespace) -> int:
    """Compile, then answer until the input ends."""
    sampling_of(args).check()
    conversation = Conversation(generator_of(args), args.system)
    is_talk = is_terminal(sys.stdin)
    if is_talk:
        note(f"{conversation.generator.capacity} tokens of conversation; {_HELP}")
    for line in _messages(is_talk):
        if line == "/quit":
            break
        try:
            if line.startswith("/"):
                _command(conversation, line)
            else:
                _answer(conversation, line, args)
        except ArmillaryError as error:
            if not is_talk:
                raise
            note(str(error))
    return 0


def _messages(is_talk: bool) -> Iterator[str]:
    """What is said, without empty lines; lines that end with a backslash are joined."""
    held = list[str]()
    while True:
        try:
            line = input(("... " if held else "> ") if is_talk else "")
        except EOFError:
            line = ""
            if not held:
                return
        except KeyboardInterrupt:
            if not is_talk:
                raise
            note("")
            return
        if line.endswith("\\"):
            held.append(line[:-1])
            continue
        text, held = "\n".join([*held, line]).strip(), []
        if text:
            yield text


def _command(conversation: Conversation, line: str) -> None:
    name, _, text = line.partition(" ")
    if name in ("/reset", "/system"):
        conversation.system = text.strip() if name == "/system" else conversation.system
        conversation.reset()
    else:
        note(_HELP if name == "/help" else f"{name} is no command; {_HELP}")


def _answer(conversation: Conversation, line: str, args: argparse.Namespace) -> None:
    pieces = conversation.reply(line, args.max_tokens, sampling_of(args), args.stop)
    try:
        for piece in pieces:
            sys.stdout.write(piece)
            sys.stdout.flush()
    except KeyboardInterrupt:
        if not is_terminal(sys.stdin):
            raise
    finally:
        pieces.close()
        sys.stdout.write("\n")
