"""Packages of tuning records: wheels that pip installs, whose records builds find by themselves.

In: the best records of logs, a name. Out: `armillary_records_<name>-<version>-py3-none-any.whl`, which holds a log and
an entry point of the group `armillary-records`. Invariant: equal records make equal files; nothing is downloaded, a
build uses what is installed. Who finds them: `base/dispatch.py`.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

from armillary.autotvm.errors import TuningError
from armillary.autotvm.record import Pair, encode
from armillary.base.dispatch import GROUP
from armillary.base.files import write_atomic

_NAME, _VERSION = re.compile(r"[a-z][a-z0-9_]*"), re.compile(r"[0-9]+(\.[0-9]+)*")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # of files in the archive
_MODULE = '''"""Tuning records of Armillary: {title}."""

from importlib import resources

from armillary.autotvm import ApplyHistoryBest

records = ApplyHistoryBest(str(resources.files(__name__) / "records.log"), warns=False)
'''


def write_record_package(pairs: Sequence[Pair], name: str, version: str, folder: str | Path) -> Path:
    """Write the wheel into a folder; gives its path."""
    if not _NAME.fullmatch(name):
        raise TuningError(f"--name {name!r}: wanted small letters, digits and _", hint="--name rk3399")
    if not _VERSION.fullmatch(version):
        raise TuningError(f"--package-version {version!r}: wanted numbers with dots between", hint="1.0")
    if not pairs:
        raise TuningError("there is no record to pack: no trial of the logs was good")
    package = f"armillary_records_{name}"
    info = f"{package}-{version}.dist-info"
    title = f"{len(pairs)} workloads for {', '.join(dict.fromkeys(str(inp.target) for inp, _ in pairs))}"
    files = {
        f"{package}/__init__.py": _MODULE.format(title=title),
        f"{package}/records.log": "".join(f"{encode(*pair)}\n" for pair in pairs),
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: {version}\n"
            f"Summary: Tuning records of Armillary: {title}\nRequires-Dist: armillary\n"
        ),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: armillary\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[{GROUP}]\n{name} = {package}:records\n",
    }
    rows = [f"{path},sha256={_digest(text)},{len(text.encode())}\n" for path, text in files.items()]
    files[f"{info}/RECORD"] = "".join([*rows, f"{info}/RECORD,,\n"])
    target = Path(folder) / f"{package}-{version}-py3-none-any.whl"
    write_atomic(target, _archive(files))
    return target


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def _archive(files: dict[str, str]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in files.items():
            row = zipfile.ZipInfo(path, _EPOCH)
            row.external_attr, row.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            archive.writestr(row, text)
    return stream.getvalue()
