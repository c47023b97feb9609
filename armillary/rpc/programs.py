"""The programs: tracker, server and query, as `python -m armillary.exec.…` and `armc rpc …` run them.

In: a command line. Out: a process that serves until it is told to end, or the tables of a tracker. Invariant: without
options everything stays on this machine; a refusal is one message and exit code 1. The proxy: `proxy.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Protocol

from armillary.base.config import setting
from armillary.errors import ArmillaryError, RPCError
from armillary.rpc.client import connect_tracker
from armillary.rpc.protocol import is_loopback
from armillary.rpc.proxy import Proxy
from armillary.rpc.queue import CLAIM_SECONDS
from armillary.rpc.secret import find_secret, secret_to_listen
from armillary.rpc.server import DeviceServer, ServerOptions
from armillary.rpc.serving import Address, Tls
from armillary.rpc.tracker import TrackerService

LOOPBACK, ANY = "127.0.0.1", "0.0.0.0"


class Service(Protocol):
    """What runs until it is stopped."""

    async def start(self, host: str, port: int, port_end: int = 0) -> None:
        """Begin to listen."""

    async def stop(self) -> None:
        """End."""


def parse_address(text: str, default: int | None = None) -> tuple[str, int]:
    """(host, port) of "host:port"; where a default port is given, of "host", too."""
    if default is not None and ":" not in text:
        text = f"{text}:{default}"
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 65536 or not host.strip("[]"):
        raise RPCError(f"{text!r} is no address", hint="write HOST:PORT, as in 192.168.1.5:9190")
    return host.strip("[]"), int(port)


def _security(parser: argparse.ArgumentParser, listens: bool) -> None:
    parser.add_argument("--secret-file", metavar="FILE", help="the shared secret (default: the one of `armc rpc init`)")
    insecure = "no secret: whoever reaches this address can run code here" if listens else "accept a peer without one"
    parser.add_argument("--insecure", action="store_true", help=insecure)
    if listens:
        parser.add_argument("--tls-cert", default="", metavar="PEM", help="encrypt with this certificate")
        parser.add_argument("--tls-key", default="", metavar="PEM", help="and its private key")
    parser.add_argument("--tls", action="store_true", help="connect to the tracker or proxy by TLS")


def _listening(parser: argparse.ArgumentParser, port: int, port_end: int, where: str = "this machine only") -> None:
    parser.add_argument("--host", default=None, help=f"address to listen on (default: {where})")
    parser.add_argument("--port", type=int, default=port, help=f"first port to try (default: {port}; 0: any)")
    parser.add_argument("--port-end", type=int, default=port_end, help="end of the range (default: %(default)s)")
    parser.add_argument("--silent", action="store_true", help="say warnings only")
    parser.add_argument("--verbose", action="store_true", help="say more")


def tracker_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a tracker."""
    _listening(parser, 9190, 9199)
    claim = "take a device back from a client that does not come to it within so many seconds (default: %(default)g)"
    parser.add_argument("--claim-timeout", type=float, default=CLAIM_SECONDS, metavar="S", help=claim)
    _security(parser, listens=True)


def server_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a server."""
    _listening(parser, 9090, 9199, "this machine only; all addresses where the tracker is on another one")
    parser.add_argument("--tracker", default="", metavar="HOST:PORT", help="register there (or at a proxy)")
    parser.add_argument("--key", default="", help="the name of the queue, such as rk3399")
    parser.add_argument("--through-proxy", action="store_true", help="--tracker names a proxy: nothing listens here")
    parser.add_argument("--custom-addr", default="", metavar="HOST[:PORT]", help="where clients find this server")
    longest, silent = "longest session, in seconds (default: a day)", "end silent sessions (default: after an hour)"
    parser.add_argument("--max-session", type=float, default=86400.0, metavar="S", help=longest)
    parser.add_argument("--idle-timeout", type=float, default=3600.0, metavar="S", help=silent)
    memory = "address space of a session (default: no limit)"
    parser.add_argument("--memory-limit", type=int, default=0, metavar="MB", help=memory)
    parser.add_argument("--no-fork", action="store_true", help="of old; each session has a new process anyway")
    _security(parser, listens=True)


def proxy_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a proxy."""
    _listening(parser, 9090, 9199)
    parser.add_argument("--tracker", default="", metavar="HOST:PORT", help="register the servers there")
    parser.add_argument("--custom-addr", default="", metavar="HOST", help="where clients find this proxy")
    front = "carry sessions to this server, such as armrpc, which then needs no TLS of its own (may be given again)"
    parser.add_argument("--server", action="append", default=[], metavar="HOST:PORT", help=front)
    parser.add_argument("--key", default="", help="of these servers: the name of their queue")
    _security(parser, listens=True)


def query_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a query."""
    host, port = setting("ARMILLARY_TRACKER_HOST"), setting("ARMILLARY_TRACKER_PORT")
    parser.add_argument("--host", default=host, help="where the tracker is (default: %(default)s)")
    parser.add_argument("--port", type=int, default=port, help="its port (default: %(default)s)")
    _security(parser, listens=False)


def _tls(args: argparse.Namespace) -> Tls | None:
    if bool(args.tls_cert) != bool(args.tls_key):
        raise RPCError("--tls-cert and --tls-key go together")
    return Tls(args.tls_cert, args.tls_key) if args.tls_cert else None


def _address(args: argparse.Namespace) -> Address | None:
    if not args.tracker:
        return None
    host, port = parse_address(args.tracker)
    insecure = args.insecure or setting("ARMILLARY_RPC_INSECURE")
    return Address(host, port, find_secret(args.secret_file), insecure, args.tls or setting("ARMILLARY_RPC_TLS"))


def run_tracker(args: argparse.Namespace) -> int:
    """Run a tracker until it is told to end."""
    host = args.host or LOOPBACK
    secret = secret_to_listen(host, args.secret_file, args.insecure)
    return _forever(args, host, lambda: TrackerService(secret=secret, tls=_tls(args), claim_seconds=args.claim_timeout))


def run_server(args: argparse.Namespace) -> int:
    """Run a server until it is told to end."""
    tracker = _address(args)
    if tracker is not None and not args.key:
        raise RPCError("a server of a tracker needs --key: the name of its queue", hint="--key=rk3399")
    if args.through_proxy and tracker is None:
        raise RPCError("--through-proxy needs the proxy's address", hint="--tracker=HOST:PORT")
    host = args.host or (LOOPBACK if tracker is None or is_loopback(tracker.host) or args.through_proxy else ANY)
    custom_host, custom_port = parse_address(args.custom_addr) if ":" in args.custom_addr else (args.custom_addr, 0)
    options = ServerOptions(
        args.key,
        tracker,
        args.through_proxy,
        custom_host,
        custom_port,
        _tls(args),
        secret_to_listen(host, args.secret_file, args.insecure),
        args.max_session,
        args.idle_timeout,
        args.memory_limit << 20,
    )
    return _forever(args, host, lambda: DeviceServer(options))


def run_proxy(args: argparse.Namespace) -> int:
    """Run a proxy until it is told to end."""
    host = args.host or LOOPBACK
    if args.server and args.tracker and not args.key:
        raise RPCError("servers of a tracker need --key: the name of their queue", hint="--key=rk3399")
    secret = secret_to_listen(host, args.secret_file, args.insecure)
    servers = [Address(*parse_address(text), find_secret(args.secret_file), args.insecure) for text in args.server]
    tracker, tls = _address(args), _tls(args)
    return _forever(
        args,
        host,
        lambda: Proxy(tracker, args.custom_addr, secret=secret, tls=tls, servers=servers, key=args.key),
    )


def run_query(args: argparse.Namespace) -> int:
    """Print what a tracker knows."""
    tracker = connect_tracker(
        args.host, args.port, secret=find_secret(args.secret_file), insecure=args.insecure or None, tls=args.tls or None
    )
    print(f"Tracker address {args.host}:{args.port}\n\n{tracker.text_summary()}")
    return 0


def _forever(args: argparse.Namespace, host: str, make: Callable[[], Service]) -> int:
    level = logging.WARNING if args.silent else logging.DEBUG if args.verbose else logging.INFO
    logging.basicConfig(level=level)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    if args.insecure and not is_loopback(host):
        logging.getLogger("RPC").warning("--insecure: whoever reaches %s can run code on this machine", host)
    asyncio.run(_serve(make, host, args.port, args.port_end))
    return 0


async def _serve(make: Callable[[], Service], host: str, port: int, port_end: int) -> None:
    service = make()
    done = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, done.set)
    try:
        await service.start(host, port, port_end if port else 1)
        await done.wait()
    finally:
        await service.stop()


def program(
    name: str,
    text: str,
    declare: Callable[[argparse.ArgumentParser], None],
    run: Callable[[argparse.Namespace], int],
    argv: Sequence[str] | None = None,
) -> int:
    """A program of its own: parse, run, report a refusal."""
    parser = argparse.ArgumentParser(prog=f"python -m armillary.exec.{name}", description=text)
    declare(parser)
    args = parser.parse_args(argv)
    try:
        return run(args)
    except ArmillaryError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
