"""Run on other machines: the secret, trackers, servers, proxies, queries.

`init` makes the secret that machines share and says what to copy to a board; `show` prints its fingerprint and the
password of trackers' pages; the others are `python -m armillary.exec.rpc_tracker` and its kin.

examples:
  armc rpc init
  armc rpc tracker --host=0.0.0.0
  armc rpc server --tracker=192.168.1.2:9190 --key=rk3399
  armc rpc query --host=192.168.1.2
"""

from __future__ import annotations

import argparse
from pathlib import Path

from armillary.base.config import setting
from armillary.errors import ConfigError, Span
from armillary.rpc.connection import fingerprint
from armillary.rpc.page import page_password
from armillary.rpc.programs import (
    proxy_arguments,
    query_arguments,
    run_proxy,
    run_query,
    run_server,
    run_tracker,
    server_arguments,
    tracker_arguments,
)
from armillary.rpc.secret import default_file, make_secret, read_secret


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands of `armc rpc`."""
    commands = parser.add_subparsers(metavar="WHAT", required=True)
    message = "Make the secret that machines share, and say what to copy to them."
    init = commands.add_parser("init", help="make the secret that machines share", description=message)
    init.add_argument("--force", action="store_true", help="replace the one that is there")
    init.set_defaults(what=run_init)
    message = (
        "Show the fingerprint of the secret, by which machines can be compared, and the password of trackers' pages."
    )
    show = commands.add_parser("show", help="fingerprint of the secret, password of the page", description=message)
    show.set_defaults(what=run_show)
    for name, declare, what, text in (
        ("tracker", tracker_arguments, run_tracker, "lend devices to clients"),
        ("server", server_arguments, run_server, "offer this machine"),
        ("proxy", proxy_arguments, run_proxy, "stand between clients and servers"),
        ("query", query_arguments, run_query, "print devices and queue of a tracker"),
    ):
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        declare(command)
        command.set_defaults(what=what)


def run(args: argparse.Namespace) -> int:
    """Run a sub-command."""
    return int(args.what(args))


def run_init(args: argparse.Namespace) -> int:
    """Make the secret and say where it must go."""
    path = default_file()
    secret = make_secret(path, replace=args.force).encode()
    print(f"wrote {path} (mode 600)")
    print("Copy it to each machine with a tracker, a server or clients, for instance to a board:\n")
    print("  ssh USER@BOARD mkdir -p .config/armillary")
    print(f"  scp -p {path} USER@BOARD:.config/armillary/rpc-secret\n")
    _tell(secret)
    return 0


def run_show(args: argparse.Namespace) -> int:
    """Print what may be shown of the secret."""
    path = default_file()
    text = setting("ARMILLARY_RPC_SECRET")
    if not text and not path.exists():
        raise ConfigError("there is no secret", span=Span(str(path)), hint="armc rpc init")
    _tell(text.strip().encode() if text else read_secret(Path(path)))
    return 0


def _tell(secret: bytes) -> None:
    print(f"fingerprint, the same on all machines: {fingerprint(secret)}")
    print(f"password of trackers' pages:           {page_password(secret)}")
