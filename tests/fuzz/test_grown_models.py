"""What looks for small models that take much finds one."""

import grow
import onnx_draw
import pytest
from onnx import TensorProto, helper


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every seed's model is a small one."""
    node = helper.make_node("Relu", ["x"], ["y"])
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    model = helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:]))
    monkeypatch.setattr(grow, "grown_model", lambda seed: model)


@pytest.mark.usefixtures("small")
def test_the_limits_of_memory_and_time_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    assert grow.check(1).kind == "agrees"
    monkeypatch.setattr(grow, "MEMORY", 1)
    assert grow.check(1).signature == "more than 60 s or 2 GB"
    monkeypatch.setattr(grow, "MEMORY", 2 << 30)
    monkeypatch.setattr(grow, "SECONDS", 0.0)
    assert grow.check(1).signature == "more than 60 s or 2 GB"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("name", "signature"), [("_compiled", "it ended with status 0"), ("build", "KeyError: _")])
def test_an_end_and_a_foreign_exception_are_told(name: str, signature: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> str:
        raise KeyError("own")

    monkeypatch.setattr(grow, name, fail)
    found = grow.check(1)
    assert (found.kind, found.signature) == ("error", signature)


def test_sizes_grow_and_nothing_else_changes() -> None:
    seeds = [seed for seed in range(1, 30) if grow.grown_model(seed) is not None]
    assert len(seeds) > 20
    for seed in seeds:
        before, after = onnx_draw.generate(seed).model, grow.grown_model(seed)
        assert after is not None and after == grow.grown_model(seed)
        assert [n.op_type for n in before.graph.node] == [n.op_type for n in after.graph.node]
    assert any(onnx_draw.generate(s).model.graph.input != grow.grown_model(s).graph.input for s in seeds)  # type: ignore[union-attr]
