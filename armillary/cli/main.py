"""What `armc` does: finds the sub-command, runs it, turns errors into one clean message.

In: the command line. Out: an exit code: 0 done, 1 the command line is wrong, 2 `verify` found a difference, 4 the
request was refused (the message says what, where and what to do), 130 interrupted, 143 terminated. Invariant: a
user's mistake never prints a traceback; `-v` asks for one. Sub-commands are the other files of this folder.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import inspect
import io
import os
import re
import signal
import sys
import textwrap
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import armillary
from armillary.base.boundary import is_of_digits, translated
from armillary.base.lazy import deferred, similar
from armillary.cli._console import errors as console
from armillary.errors import ArmillaryError, ArtifactError, ExecutionError, InternalError, Span, UnsupportedError

with deferred():
    from armillary.driver.tvmc.config_options import command_line, read_and_convert_json_into_dict

_EPILOG = "armc COMMAND --help says more. --config FILE of any command takes options from a JSON file."
_WIDEST = 118  # columns of a paragraph of help
USAGE, REFUSED, INTERRUPTED, TERMINATED = 1, 4, 130, 143


class _Help(argparse.RawDescriptionHelpFormatter):
    """Folds paragraphs to the terminal; those with indented lines, such as examples, stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        folds = textwrap.TextWrapper(min(width, _WIDEST), break_on_hyphens=False)
        return "\n\n".join(p if "\n " in p else folds.fill(p) for p in text.split("\n\n"))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print usage and the mistake; exit with 1."""
        self.print_usage(sys.stderr)
        wrong = re.match(r"argument .*: invalid choice: '([^']*)' \(choose from (.*)\)$", message)
        close = similar(wrong[1], re.findall(r"[\w.-]+", wrong[2]), 1, 0.6) if wrong else []
        self.exit(USAGE, f"{self.prog}: error: {message}\n" + (f"did you mean {close[0]}?\n" if close else ""))


def command() -> int:
    """Run `armc` as a process of its own, which keeps what it makes until it ends: Python need not look for garbage.

    The looks take a sixth of a compile from the cache, most of it when the process ends.
    """
    gc.set_threshold(100_000, 50, 50)
    for stream in (sys.stdout, sys.stderr):  # a name that the terminal cannot show is no reason to fail
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # what is half written goes
    warnings.showwarning = lambda message, *_, **__: _warn(message)
    code = main()
    gc.freeze()
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Run `armc` with these arguments; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    verbose = any(a == "--verbose" or a.startswith("-v") for a in arguments)
    try:
        arguments = _with_config(arguments)
        parser = _parser(arguments)
        args = parser.parse_args(arguments)
        if not hasattr(args, "run"):
            parser.print_help(sys.stderr)
            return USAGE
        return int(args.run(args) or 0)
    except ArmillaryError as error:
        _report(error, verbose)
        return REFUSED
    except (RecursionError, OverflowError, ValueError) as error:
        if isinstance(error, ValueError) and not (isinstance(error, UnicodeError) or is_of_digits(error)):
            raise
        _report(translated("armc", error), verbose)
        return REFUSED
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("", "armillary"):
            raise
        hint = f"pip install {(error.name or '').partition('.')[0]}"
        _report(UnsupportedError(f"the module {error.name!r} is not installed", hint=hint), verbose)
        return REFUSED
    except KeyboardInterrupt:
        console.print("interrupted", highlight=False)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone: `armc opt --list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a file or folder that the system refuses
        message = ArtifactError(error.strerror or str(error), span=Span(str(error.filename or "")))
        _report(message, verbose)
        return REFUSED
    except MemoryError as error:
        _report(ExecutionError(f"out of memory: {error}".rstrip(": ")), verbose)
        return REFUSED


def _with_config(words: list[str]) -> list[str]:
    """The words with the options of the file that `--config` names, which count less than those of the line."""
    place = next((k for k, word in enumerate(words) if word == "--config" or word.startswith("--config=")), -1)
    if place < 0 or (words[place] == "--config" and place + 1 == len(words)):
        return words
    joined = "=" in words[place]
    file = words[place].partition("=")[2] if joined else words[place + 1]
    rest = words[:place] + words[place + (1 if joined else 2) :]
    return [*rest[:1], *command_line(read_and_convert_json_into_dict(file)), *rest[1:]]


def _warn(message: Warning | str) -> None:
    """Show a warning as a line, without the place in our code."""
    console.print("[bold yellow]Warning:[/] ", end="")
    console.print(str(message), markup=False, highlight=False)


def commands() -> dict[str, Path]:
    """Sub-command names and their files."""
    folder = Path(__file__).parent
    files = (f for f in sorted(folder.glob("*.py")) if not f.stem.startswith("_") and f.stem != "main")
    return {f.stem.replace("_", "-"): f for f in files}


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    shared = _Parser(add_help=False)
    shared.add_argument("-v", "--verbose", action="count", default=0, help="say more; show tracebacks")
    parser = _Parser(prog="armc", description="Compile networks and run them.", epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=f"armc {armillary.__version__}")
    parser.set_defaults(verbose=0)
    chosen = next((a for a in arguments if not a.startswith("-")), "")
    subparsers = parser.add_subparsers(metavar="COMMAND", parser_class=_Parser)
    files = commands()
    is_first = chosen in files and arguments[0] == chosen  # the others are not read then: it takes long
    for name in [chosen] if is_first else files:
        module = importlib.import_module(f"armillary.cli.{files[name].stem}") if name == chosen else None
        text = _docstring(files[name]) if module is None else inspect.cleandoc(module.__doc__ or name)
        sub = subparsers.add_parser(
            name,
            help=text.partition("\n")[0].rstrip("."),
            description=text,
            parents=[shared],
            formatter_class=_Help,
        )
        if module is not None:
            module.add_arguments(sub)
            sub.set_defaults(run=module.run)
    return parser


def _docstring(file: Path) -> str:
    return ast.get_docstring(ast.parse(file.read_text("utf-8"))) or file.stem


def _report(error: ArmillaryError, verbose: bool) -> None:
    if verbose:
        traceback.print_exc()
    label = "Internal error (a defect in Armillary; please report it)" if isinstance(error, InternalError) else "Error"
    console.print(f"[bold red]{label}:[/] ", end="")
    console.print(str(error), markup=False, highlight=False)
