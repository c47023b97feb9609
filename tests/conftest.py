"""Options of the test suite, and what several folders build."""

from __future__ import annotations

import fcntl
import gc
import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from draws import chosen, left_out
from grids import mark_slow_combinations
from hanging import SECONDS, SLOW_SECONDS, deadline, end_left_over, mark_children
from sanitizers import SANITIZED

from armillary.base.digest import blake2b
from armillary.cli.main import main
from armillary.runtime import build_native


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-cases", action="store_true", help="rewrite the expected parts of text cases")
    drawn = "of long lists of cases run a share, drawn by this seed, or by a fresh one (tests/draws.py)"
    parser.addoption("--draw", metavar="SEED", default="", help=drawn)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    message = getattr(config, "workerinput", {})  # one process of several
    config.option.draw = message["draw"] if message else chosen(config.option.draw)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:  # Any: a WorkerController of pytest-xdist
    node.workerinput["draw"] = node.config.option.draw


def pytest_sessionstart() -> None:
    mark_children()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_slow_combinations(items)  # before pytest leaves out what is marked
    if config.option.draw:
        out = left_out(items, config.option.draw)
        names = {id(item) for item in out}
        items[:] = [item for item in items if id(item) not in names]
        config.hook.pytest_deselected(items=out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.option.draw:
        message = (
            f"of long lists of cases a share ran: --draw={config.option.draw} draws the same, without --draw all run"
        )
        terminalreporter.write_line(message)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What was collected stays to the end: the collector of garbage need not look through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if not getattr(session.config.option, "numprocesses", None):  # who starts workers waits for them
        end_left_over()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with deadline(SECONDS):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with deadline(SLOW_SECONDS if item.get_closest_marker("slow") else SECONDS):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    with deadline(SECONDS):
        return (yield)


@pytest.fixture
def update_cases(request: pytest.FixtureRequest) -> bool:
    """Whether text cases are to be rewritten instead of compared."""
    return bool(request.config.getoption("--update-cases"))


@pytest.fixture(scope="session", autouse=True)
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Sources of the runtime are compiled once by the same command, whichever programs of a run they become part of."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if base.name.startswith("popen-") else base) / "objects"
    folder.mkdir(exist_ok=True)
    compile_anew, sources = build_native.run_compiler, build_native.source_key()

    def compile_once(command: Sequence[str], output: Path) -> Path:
        if "-c" not in command:
            return compile_anew(command, output)
        key = repr((*command, shutil.which(command[0]), sources))
        kept = folder / blake2b(key.encode()).hexdigest()[:24]
        with kept.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the others wait for it
            if not kept.exists():
                compile_anew(command, kept)
        shutil.copyfile(kept, output)
        return output

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_native, "run_compiler", compile_once)
        yield


@pytest.fixture(scope="session")
def built_runner(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A function from compiler and flags to armrun, which the test processes of a run build once."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base  # popen-…: one process of several

    def build(compiler: Sequence[str], *, sanitized: bool = False) -> Path:
        flags = SANITIZED if sanitized else ()
        path = shared / f"armrun-{blake2b(repr((*compiler, *flags)).encode()).hexdigest()[:12]}"
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the others wait for it
            return path if path.exists() else build_native.build_runner(compiler, path, flags)

    return build


@pytest.fixture(scope="session")
def server_for_aarch64(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The native server as the command builds it for a board, once for the test processes of a run."""
    base = tmp_path_factory.getbasetemp()
    path = (base.parent if base.name.startswith("popen-") else base) / "armrpc-aarch64"
    words = "build-runner", "--rpc-server", "--cross-compiler", "aarch64-linux-gnu-gcc", "-o", str(path)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert path.exists() or main(words) == 0
    return path
