"""What products with weights of few bits bring along: operators of their own, and the pass that makes them.

In: nothing. Out: `MANIFEST`. Invariant: importing it loads no tensor expression.
"""

from __future__ import annotations

from armillary.backends.cpu.gemm.low_bit.pack_low_bit import pack_low_bit
from armillary.backends.cpu.manifest import Manifest
from armillary.relay.transform.normal_form.infer_type import infer_type

MANIFEST = Manifest((), layouts=lambda target: [infer_type.bind(), pack_low_bit.bind(target=target)])
