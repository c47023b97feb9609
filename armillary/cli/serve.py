"""Serve a language model over HTTP, with the usual endpoints for completions and conversations.

Compiles a Hugging Face folder, a GGUF or an ONNX file once and answers /v1/models, /v1/completions and
/v1/chat/completions, streamed or whole. Requests are answered side by side, one in each slot; others wait, and those
beyond the queue are refused with 429. With --draft or --draft-tokens the tokens of a request that is alone are
guessed, and checked several in a call. Listens on this machine alone unless --host says otherwise, which needs a
token: the environment's ARMILLARY_SERVE_TOKEN or --token-file. Needs armillary[serve] and a tokenizer: in the GGUF
file, or tokenizer.json beside the model.

examples:
  armc serve smollm/ --slots 4 --capacity 2048
  armc serve qwen3-8b/ --bits 4 --draft qwen3-0.6b/
  ARMILLARY_SERVE_TOKEN=… armc serve qwen3/ --bits 4 --host 0.0.0.0 --port 8080
"""

from __future__ import annotations

import argparse
import ipaddress
import socket
from pathlib import Path

from armillary.base.config import setting
from armillary.cli._console import note
from armillary.cli.options.decoder import add_draft_options, add_model_options, generator_of
from armillary.cli.options.models import count, positive
from armillary.errors import ConfigError
from armillary.generate.engine import Engine
from armillary.generate.server import Server


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `armc serve`."""
    add_model_options(parser, capacity=2048)
    add_draft_options(parser)
    parser.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1, this machine alone")
    parser.add_argument("--port", type=count, default=8000, metavar="N", help="default: 8000; 0: a free one")
    parser.add_argument("--token-file", default="", metavar="FILE", help="what clients have to show as a bearer token")
    parser.add_argument("--name", default="", help="what the model is called (default: its folder or file)")
    parser.add_argument("--slots", type=positive, default=4, metavar="N", help="requests that are answered at a time")
    parser.add_argument("--queue", type=count, default=32, metavar="N", help="requests that wait beside them")


def run(args: argparse.Namespace) -> int:
    """Compile, then serve until interrupted."""
    try:
        import uvicorn
    except ImportError:
        raise ConfigError("armc serve needs the package uvicorn", hint="pip install armillary[serve]") from None
    token = _token(args)
    listener = _listener(args.host, args.port)
    generator = generator_of(args, args.slots)
    if generator.tokenizer is None:
        raise ConfigError(f"{args.MODEL}: there is no tokenizer.json beside the model", hint="clients send text")
    template = generator.chat_template()
    engine = Engine(generator.slots, args.queue, generator.guesser)
    engine.start()
    name = args.name or Path(args.MODEL).resolve().stem
    note(
        f"{name}: {args.slots} slots of {generator.capacity} tokens, on http://{args.host}:{listener.getsockname()[1]}/v1"
    )
    try:
        server = Server(engine, generator.tokenizer, template, name, token)
        config = uvicorn.Config(server, log_level="warning", lifespan="off", timeout_graceful_shutdown=5)
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        engine.close()
    return 0


def _token(args: argparse.Namespace) -> str:
    """The bearer token; none is refused where others than this machine can ask."""
    try:
        token = (
            Path(args.token_file).read_text("utf-8").strip()
            if args.token_file
            else str(setting("ARMILLARY_SERVE_TOKEN"))
        )
    except OSError as error:
        raise ConfigError(f"--token-file {args.token_file}: {error.strerror}") from None
    if args.token_file and not token:
        raise ConfigError(f"--token-file {args.token_file} is empty")
    if not token and not _is_loopback(args.host):
        hint = "set ARMILLARY_SERVE_TOKEN or give --token-file"
        raise ConfigError(f"--host {args.host}: others could ask without a token", hint=hint)
    return token


def _listener(host: str, port: int) -> socket.socket:
    """A socket that listens, before anything is compiled."""
    try:
        kind = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=kind, backlog=128)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"--host {host} --port {port}: {error}") from None


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
