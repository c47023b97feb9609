"""Work with Android phones over adb: list them, copy files, run a package, offer them to a tracker.

A phone needs no Python: `armc build-runner --target aarch64-linux-android28` makes the programs that run on it. With
`device` the phone registers at a tracker of this machine through adb, so neither needs an address, nor a secret.

examples:
  armc android devices
  armc android push armrun net.tar
  armc android run --serial abcdefgh net.tar -- --run-count=10 --profile
  armc android tracker --port 9190
  armc android device --serial abcdefgh --port 9190 --key android --server armrpc-android
  armc android query --port 9190
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
from pathlib import Path, PurePosixPath

from armillary.base.config import setting
from armillary.errors import ArtifactError, ExecutionError, Span, TargetError
from armillary.rpc.programs import query_arguments, run_query, run_tracker, tracker_arguments

FOLDER = "/data/local/tmp/armillary"
SERVER_PORT = 9090


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands of `armc android`."""
    commands = parser.add_subparsers(metavar="WHAT", required=True)
    for name, declare, what, text in (
        ("devices", _no_arguments, run_devices, "list the phones that adb sees"),
        ("push", _push_arguments, run_push, "copy programs and packages to a phone"),
        ("run", _run_arguments, run_package, "run a package on a phone with armrun"),
        ("tracker", tracker_arguments, run_tracker, "lend devices to clients, on this machine"),
        ("device", _device_arguments, run_device, "run the RPC server on a phone, and register it at a tracker"),
        ("query", query_arguments, run_query, "print devices and queue of a tracker"),
    ):
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        declare(command)
        command.set_defaults(what=what)


def _no_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


def _phone_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-s", "--serial", default="", help="which phone, as `armc android devices` names it")
    parser.add_argument("--to", default=FOLDER, metavar="FOLDER", help=f"folder on the phone (default: {FOLDER})")


def _push_arguments(parser: argparse.ArgumentParser) -> None:
    _phone_arguments(parser)
    parser.add_argument("files", nargs="+", help="programs, packages, inputs")


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    _phone_arguments(parser)
    parser.add_argument("package", help="a package; its copy on the phone is used when the file is not here")
    parser.add_argument("--runner", default="armrun", help="the program to copy first, if it is here (default: armrun)")
    parser.add_argument("options", nargs="*", help="options of armrun, behind -- right after the package")


def _device_arguments(parser: argparse.ArgumentParser) -> None:
    _phone_arguments(parser)
    parser.add_argument("--port", type=int, default=setting("ARMILLARY_TRACKER_PORT"), help="of the tracker, here")
    parser.add_argument("--key", default="android", help="the name of the queue (default: android)")
    parser.add_argument("--server", default="armrpc", help="the program to copy first, if it is here (default: armrpc)")
    message = f"of the server, on the phone and here (default: {SERVER_PORT}; one for each phone)"
    parser.add_argument("--server-port", type=int, default=SERVER_PORT, help=message)


def run(args: argparse.Namespace) -> int:
    """Run a sub-command."""
    return int(args.what(args))


def _adb() -> str:
    path = shutil.which("adb")
    if path is None:
        raise TargetError("adb is not there", hint="install Android's platform tools; on Debian: apt-get install adb")
    return path


def _call(*words: str, serial: str = "") -> str:
    command = [_adb(), *(("-s", serial) if serial else ()), *words]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        message = (done.stderr or done.stdout).strip()[-800:]
        raise ExecutionError(f"{shlex.join(['adb', *command[1:]])}: {message or f'exit {done.returncode}'}")
    return done.stdout


def phones() -> dict[str, str]:
    """Serial numbers of the phones that adb sees, and the state of each."""
    rows = [line.split("\t") for line in _call("devices").splitlines()[1:] if "\t" in line]
    return {row[0]: row[1] for row in rows}


def _phone(args: argparse.Namespace) -> str:
    """The phone that is meant: the one that was named, else the only one."""
    seen = phones()
    ready = [serial for serial, state in seen.items() if state == "device"]
    shown = ", ".join(f"{serial} ({state})" for serial, state in seen.items()) or "none"
    if args.serial and args.serial not in ready:
        raise ExecutionError(f"phone {args.serial!r} is not ready; adb sees {shown}", hint="adb devices")
    if not args.serial and len(ready) != 1:
        what = "which phone is meant" if ready else "no phone is ready"
        hint = "--serial SERIAL" if ready else "allow USB debugging on it"
        raise ExecutionError(f"{what}: adb sees {shown}", hint=hint)
    return str(args.serial or ready[0])


def run_devices(args: argparse.Namespace) -> int:
    """List the phones with model and processor."""
    del args
    for serial, state in phones().items():
        facts = []
        if state == "device":
            facts = [_call("shell", "getprop", name, serial=serial).strip() for name in _FACTS]
        print("  ".join((serial, state, *(fact for fact in facts if fact))))
    return 0


_FACTS = ("ro.product.model", "ro.product.cpu.abi", "ro.build.version.release")


def _push(serial: str, folder: str, *files: str) -> None:
    _call("shell", "mkdir", "-p", folder, serial=serial)
    for file in files:
        if not Path(file).exists():
            raise ArtifactError("there is no such file or folder", span=Span(file))
        target = str(PurePosixPath(folder) / Path(file).name)
        _call("push", file, target, serial=serial)
        if os.access(file, os.X_OK) and Path(file).is_file():
            _call("shell", "chmod", "755", target, serial=serial)


def run_push(args: argparse.Namespace) -> int:
    """Copy files to the phone."""
    serial = _phone(args)
    _push(serial, args.to, *args.files)
    print(f"{serial}: {', '.join(Path(file).name for file in args.files)} in {args.to}")
    return 0


def _shell(serial: str, folder: str, program: str, *words: str) -> int:
    """Run a program on the phone in the foreground; its exit status."""
    line = f"cd {shlex.quote(folder)} && exec ./{shlex.quote(program)} {shlex.join(words)}"
    return subprocess.run([_adb(), "-s", serial, "shell", line], check=False).returncode


def run_package(args: argparse.Namespace) -> int:
    """Copy what is here, run the package there."""
    serial = _phone(args)
    _push(serial, args.to, *(file for file in (args.runner, args.package) if Path(file).exists()))
    return _shell(serial, args.to, Path(args.runner).name, Path(args.package).name, *args.options)


def run_device(args: argparse.Namespace) -> int:
    """Serve sessions from the phone until it is interrupted."""
    serial = _phone(args)
    if Path(args.server).exists():
        _push(serial, args.to, args.server)
    port = f"tcp:{args.server_port}"
    _call(*f"reverse tcp:{args.port} tcp:{args.port}".split(), serial=serial)  # the tracker here, as the phone sees it
    _call("forward", port, port, serial=serial)  # the server there, as clients here see it
    print(f"{serial}: key {args.key}, tracker 127.0.0.1:{args.port}, server 127.0.0.1:{args.server_port}", flush=True)
    options = (f"--tracker=127.0.0.1:{args.port}", f"--key={args.key}", f"--port={args.server_port}")
    last = f"--port-end={args.server_port + 1}"
    return _shell(serial, args.to, Path(args.server).name, *options, last, f"--work-dir={args.to}")
