"""What operators.txt says of nodes is what the onnx package says, for every operator and version."""

from __future__ import annotations

import onnx
import pytest

from armillary.frontend.onnx.functions import schema_of
from armillary.frontend.onnx.signature import newest_opset, signature_of

DOMAINS = sorted({schema.domain for schema in onnx.defs.get_all_schemas_with_history()})


@pytest.mark.parametrize("domain", DOMAINS)
def test_signatures_are_those_of_the_standard(domain: str) -> None:
    names = {s.name for s in onnx.defs.get_all_schemas_with_history() if s.domain == domain}
    for name in names:
        for version in range(1, newest_opset() + 1 if domain == "" else 8):
            found, schema = signature_of(name, domain, version), schema_of(name, domain, version)
            assert (found is None) == (schema is None), (name, version)
            if found is None:
                continue
            attributes = {key: (a.type.name, a.required) for key, a in schema.attributes.items()}
            assert (found.min_input, found.max_input) == (schema.min_input, schema.max_input), (name, version)
            assert found.attributes == attributes, (name, version)


def test_an_operator_that_the_standard_lacks_has_no_signature() -> None:
    assert signature_of("Convolve", "", 13) is None
    assert signature_of("Conv", "com.example", 1) is None
