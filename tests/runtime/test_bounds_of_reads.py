"""What comes from outside is not read before its size is looked at: sparse files, long lines, numbers in headers."""

from __future__ import annotations

import io
import logging
import resource
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from armillary import autotvm, relay, runtime, te
from armillary.base.files import MOST_BYTES, read_private, read_regular
from armillary.cli.options.models import read_text
from armillary.cli.run import read_npz
from armillary.compute.runtime.ppm import read_pnm
from armillary.driver.tvmc.config_options import read_and_convert_json_into_dict
from armillary.errors import ArmillaryError, ExecutionError

HUGE = 1 << 40


def sparse(path: Path, begin: bytes = b"{") -> Path:
    """A file that says that it has 2^40 bytes, and takes none of the disk."""
    with path.open("wb") as stream:
        stream.write(begin)
        stream.truncate(HUGE)
    return path


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("m.relay", lambda path: read_text(str(path))),
        ("m.onnx", relay.frontend.from_onnx),
        ("m.h5", relay.frontend.from_keras),
        ("p.params", runtime.load_param_dict_from_file),
        ("c.json", read_and_convert_json_into_dict),
        ("a.ppm", read_pnm),
        ("s.py", lambda path: te.hybrid.HybridModule().load(str(path))),
    ],
)
def test_a_file_that_claims_any_size_is_refused_before_it_is_read(
    name: str, read: Callable[[Path], object], tmp_path: Path
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ArmillaryError):
        read(sparse(tmp_path / name))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB


def test_bytes_are_counted_and_caches_forget_what_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"x" * 100)
    assert len(read_regular(path, 100)) == 100
    with pytest.raises(OSError, match="100 bytes, at most 99 are read"):
        read_regular(path, 99)
    path.chmod(0o600)
    assert read_private(path) == b"x" * 100
    assert read_private(sparse(path)) is None
    assert MOST_BYTES < HUGE


def test_a_line_of_a_log_has_a_longest_length(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = tmp_path / "x.log"
    log.write_text("# begin\n" + "[" * (3 << 20) + "\n# end\n{\n")
    with caplog.at_level(logging.WARNING, "autotvm"):
        assert list(autotvm.record.load_from_file(str(log))) == []
    assert f"{log}, line 2 is left out" in caplog.text and f"{log}, line 4 is left out" in caplog.text


def archive(path: Path, shape: tuple[int, ...], data: bytes) -> Path:
    """An .npz whose array says that it has this shape."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("x.npy", stream.getvalue() + data)
    return path


def test_numbers_in_headers_of_arrays_are_compared_with_what_is_there(tmp_path: Path) -> None:
    good = read_npz(str(archive(tmp_path / "good.npz", (2, 3), bytes(24))))
    assert good["x"].shape == (2, 3)
    for shape in ((1 << 40,), (1 << 20, 1 << 20, 1 << 20), (7,)):
        with pytest.raises(ExecutionError, match="an array of"):
            read_npz(str(archive(tmp_path / "bad.npz", shape, bytes(24))))
    np.savez(tmp_path / "own.npz", a=np.float64(3), b=np.zeros((0, 4), "int8"), c=np.ones((2, 2), "float32", "F"))
    assert sorted(read_npz(str(tmp_path / "own.npz"))) == ["a", "b", "c"]
