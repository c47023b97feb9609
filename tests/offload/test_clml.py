"""OpenCLML without its runtime: what is taken and why not, and that the JSON says what the graph computes."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import armillary
from armillary import relay
from armillary.base.config import setting
from armillary.errors import ArtifactError, UnsupportedError
from armillary.ir import IRModule
from armillary.offload.clml import COMPOSITES, generate
from armillary.offload.report import offload_report
from armillary.relay import testing
from armillary.relay.evaluate import evaluate
from armillary.relay.expr import Call, Function
from armillary.relay.op.contrib import clml
from armillary.relay.parser import parse
from armillary.relay.walk import not_primitive, post_order

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
from case_runner import Case, check_case, load_cases
from clml_nodes import computed
from opencl_device import needs_opencl

CASES = load_cases(Path(__file__).parent / "cases", "clml")
BY_NAME = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def bound(text: str) -> IRModule:
    """The module of a text; parameters that are not named %x… or %y… are constants."""
    module = parse("\n".join(line for line in text.splitlines() if not line.startswith(";;")))
    rng = np.random.default_rng(3)
    params = {}
    for param in module["main"].params:
        if param.name_hint[0] not in "xy":
            ty = param.checked_type
            params[param.name_hint] = rng.uniform(0.1, 1, ty.static).astype(str(ty.dtype))
    return clml.partition_for_clml(module, params, disabled_ops=() if "reshape" in text else ("reshape",))


def parts(module: IRModule) -> list[Function]:
    return [f for _, f in module.items() if isinstance(f, Function) and f.get_attr("Compiler") == "clml"]


def written(text: str) -> str:
    """A line for each node, then one for each call that stays, with its reason."""
    module = bound(text)
    lines = []
    for part in parts(module):
        graph = json.loads(generate(part).source)
        for number, node in enumerate(graph["nodes"]):
            attrs = {k: v[0] for k, v in node["attrs"].items() if isinstance(v, list)}
            shape = f"{attrs.pop('dtype')[0]}{attrs.pop('shape')[0]}"
            message = "".join(f" {k}={','.join(v)}" for k, v in sorted(attrs.items()) if v != [""])
            reads = "".join(f" %{k}" for k, _, _ in node.get("inputs", ()))
            lines.append(f"%{number} = {node['op']} {node['name'] if reads else ''}{reads}{message} : {shape}")
        lines.append("heads " + " ".join(f"%{k}" for k, _, _ in graph["heads"]))
    kept = [f"kept {row.what}: {row.reason}" for row in offload_report(module, ["clml"]).kept]
    return re.sub(r" +", " ", "\n".join([*lines, *kept]))


@BY_NAME
def test_nodes_are_as_stored(case: Case, request: pytest.FixtureRequest) -> None:
    check_case(case, written, request.config.getoption("--update-cases"))


@BY_NAME
def test_nodes_compute_what_the_graph_does(case: Case) -> None:
    rng = np.random.default_rng(5)
    for part in parts(bound(case.input)):
        made = generate(part)
        inputs = [rng.uniform(-3, 8, p.checked_type.static).astype(str(p.checked_type.dtype)) for p in part.params]
        plain = IRModule.from_expr(Function(part.params, part.body))
        found = computed(made.source, [c.data for c in made.constants], inputs)
        wanted = evaluate(plain, inputs)
        for got, want in zip(found, wanted if isinstance(wanted, tuple) else [wanted], strict=True):
            half = got.dtype == np.float16
            np.testing.assert_allclose(
                got.astype("float64"), want.astype("float64"), rtol=2e-2 if half else 1e-4, atol=2e-2 if half else 1e-4
            )


def test_every_row_has_a_case() -> None:
    found = {name for case in CASES for part in parts(bound(case.input)) for name in composites(part)}
    assert found == {f"clml.{row.name}" for row in COMPOSITES}


def composites(part: Function) -> list[str]:
    calls = [e for e in post_order(part.body, not_primitive) if isinstance(e, Call)]
    return [str(call.op.get_attr("Composite", "")) for call in calls]


def test_a_network_is_one_region() -> None:
    module, params = testing.mobilenet.get_workload(batch_size=1)
    library = relay.build(module, target="opencl, clml, llvm", params=params)
    assert not library.offload_report.kept
    found = [m for m in library.get_lib().imported_modules if m.type_key == "clml"]
    names = [node["name"] for node in json.loads(found[0].get_source())["nodes"] if node["op"] == "kernel"]
    assert len(found) == 1 and names.count("nn.depthwise_conv2d") == 13 and names[-1] == "nn.softmax"


@needs_opencl
def test_a_library_without_a_runtime_is_named_when_a_graph_is_made() -> None:
    assert clml.is_clml_runtime_enabled() is False
    module, params = testing.mobilenet.get_workload(batch_size=1, image_shape=(3, 32, 32))
    library = relay.build(module, target="opencl, clml, llvm", params=params)
    with pytest.raises(ArtifactError, match="is computed by clml, whose runtime libarmillary_external_clml"):
        library["default"](armillary.cl(0))


def test_a_graph_on_the_cpu_is_refused() -> None:
    module, params = testing.mobilenet.get_workload(batch_size=1, image_shape=(3, 32, 32))
    with pytest.raises(UnsupportedError, match="is computed by clml on opencl, the rest on the CPU"):
        relay.build(module, target="clml, llvm", params=params)


def test_what_is_switched_off_says_so() -> None:
    x = relay.var("x", shape=(1, 4, 4, 4))
    module = IRModule.from_expr(Function((x,), relay.reshape(relay.tanh(x), (1, 64))))
    message = {row.what: row.reason for row in offload_report(clml.partition_for_clml(module), ["clml"]).kept}
    assert message == {
        "tanh": "clml has no such operator",
        "reshape": "switched off, or its inner values are used elsewhere",
    }


def test_scripts_find_the_passes() -> None:
    x = relay.var("x", shape=(1, 2, 4, 4))
    module = IRModule.from_expr(Function((x,), relay.nn.dropout(x)))
    assert "dropout" not in str(clml.RemoveDropoutPass()(relay.transform.InferType()(module)))
    assert "nn.conv2d" not in str(clml.preprocess_for_clml(module))
    assert len(clml.clml_pattern_table()) == len(COMPOSITES)
    assert clml.clml_sdk_version() == 2 or setting("ADRENO_OPENCL")
