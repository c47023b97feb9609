"""Files of PyTorch: programs of torch.export and TorchScript are read; what may run code, or has no network, is not."""

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import armillary
from armillary.cli.main import main
from armillary.errors import ModelError, UnsupportedError
from armillary.frontend.formats import FORMATS
from armillary.frontend.pytorch.files import from_torch_file

torch = pytest.importorskip("torch")


class Net(torch.nn.Module):
    """A convolution, a mean over the picture and a product; and the picture in rows."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.dense = torch.nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        return self.dense(self.conv(x).relu().mean((2, 3))), x.reshape(-1, x.shape[2] * x.shape[3] // 2)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A file of torch.export with an open batch and open pictures."""
    size = torch.export.Dim
    sizes = {"x": {0: size("batch", max=64), 2: size("height", min=4, max=64), 3: size("width", min=4, max=64)}}
    torch.export.save(
        torch.export.export(Net().eval(), (torch.zeros(2, 3, 8, 10),), dynamic_shapes=sizes), tmp_path / "net.pt2"
    )
    return tmp_path / "net.pt2"


def _picture(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def test_a_program_is_compiled_by_the_command_line_and_runs_at_its_sizes(program: Path, tmp_path: Path) -> None:
    assert main(["compile", str(program), "-o", str(tmp_path / "net.tar")]) == 0
    session = armillary.InferenceSession(tmp_path / "net.tar")
    for shape in ((2, 3, 8, 10), (1, 3, 5, 4)):
        x = _picture(*shape)
        for got, wanted in zip(session.run(None, {"x": x}), Net().eval()(torch.from_numpy(x)), strict=True):
            np.testing.assert_allclose(got, wanted.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_module_of_torchscript_is_compiled_with_the_shapes_of_its_inputs(tmp_path: Path) -> None:
    x, file = _picture(2, 3, 8, 10), tmp_path / "net.pt"
    torch.jit.save(torch.jit.trace(Net().eval(), torch.from_numpy(x)), file)
    with pytest.raises(ModelError, match="does not say the shapes"):
        from_torch_file(str(file))
    assert main(["compile", str(file), "--input-shapes", "x:[2,3,8,10]", "-o", str(tmp_path / "net.tar")]) == 0
    got = armillary.InferenceSession(tmp_path / "net.tar").run(None, {"x": x})[0]
    np.testing.assert_allclose(got, Net().eval()(torch.from_numpy(x))[0].detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("content", [lambda: Net().state_dict(), lambda: Net()])
def test_a_file_of_torch_save_is_refused_with_what_to_do(content: Callable[[], object], tmp_path: Path) -> None:
    torch.save(content(), tmp_path / "net.pth")
    with pytest.raises(UnsupportedError, match=r"holds weights or a pickled object(.|\n)*torch.export.save"):
        from_torch_file(str(tmp_path / "net.pth"))


def test_a_file_that_is_no_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "net.pt2").write_bytes(b"no archive")
    with pytest.raises(ModelError, match="no archive of PyTorch"):
        from_torch_file(str(tmp_path / "net.pt2"))


class Trap:
    """Who unpickles it makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return Path.mkdir, (self.folder,)


def _rewritten(file: Path, change: Callable[[str, bytes], bytes], more: dict[str, bytes] | None = None) -> str:
    """The archive with other contents, beside it."""
    result = file.with_name("other.pt2")
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(result, "w", zipfile.ZIP_STORED) as target:
        for name in source.namelist():
            target.writestr(name, change(name, source.read(name)))
        for name, data in (more or {}).items():
            target.writestr(name, data)
    return str(result)


def test_an_expression_that_is_none_of_sizes_is_not_evaluated(program: Path, tmp_path: Path) -> None:
    trap = f"__import__('pathlib').Path('{tmp_path}/ran').mkdir()"

    def change(name: str, data: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return data
        text = json.loads(data)
        done = json.dumps(text).replace("Symbol('s77', positive=True, integer=True)", trap.replace('"', ""))
        assert trap in done
        return done.encode()

    with pytest.raises(UnsupportedError, match="an expression that is none of sizes"):
        from_torch_file(_rewritten(program, change))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("place", ["data/sample_inputs/model.pt", "data/weights/weight_0"])
def test_pickled_objects_are_not_loaded(place: str, program: Path, tmp_path: Path) -> None:
    torch.save(Trap(tmp_path / "ran"), tmp_path / "trap")

    def change(name: str, data: bytes) -> bytes:
        if name.endswith("weights_config.json"):
            return data.replace(b'"use_pickle": false', b'"use_pickle": true')
        return (tmp_path / "trap").read_bytes() if name.endswith(place) else data

    with pytest.raises(UnsupportedError, match="Python objects in place of tensors"):
        from_torch_file(_rewritten(program, change))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "name", ["net/data/constants/opaque_obj_0", "net/data/constants/model.pt", "net/data/aotinductor/model/a.so"]
)
def test_objects_and_compiled_code_are_refused(name: str, program: Path, tmp_path: Path) -> None:
    data = pickle.dumps(Trap(tmp_path / "ran"))
    with pytest.raises(UnsupportedError, match=r"Python objects|compiled code"):
        from_torch_file(_rewritten(program, lambda _, content: content, {name: data}))
    assert not (tmp_path / "ran").exists()


def test_every_form_has_a_suffix_of_its_own() -> None:
    suffixes = [suffix for form in FORMATS.values() for suffix in form.suffixes]
    assert len(set(suffixes)) == len(suffixes)
