"""What attention brings along: the candidates for its operators, in the order in which they are asked.

In: nothing. Out: `MANIFEST`. Invariant: importing it loads no tensor expression. When each applies, and what can be
chosen, by tuning too: space.py.
"""

from __future__ import annotations

from armillary.backends.candidate import Candidate
from armillary.backends.cpu.attention import cached_space
from armillary.backends.cpu.attention.space import KNOBS, PREFILL, explain, few_rows_refuse, refuses
from armillary.backends.cpu.manifest import Manifest, TunedOperator

MANIFEST = Manifest(
    (
        Candidate("nn.attention", "attention_few_rows", few_rows_refuse, sizes="any"),
        Candidate("nn.attention", "attention_rows", refuses, PREFILL, "any", explain_rule=explain),
        Candidate("nn.masked_attention", "masked_attention_few_rows", few_rows_refuse, sizes="any"),
        Candidate("nn.masked_attention", "masked_attention_rows", refuses, PREFILL, "any", explain_rule=explain),
        *(
            Candidate(f"nn.{name}", f"{name}_blocks", cached_space.refuses)
            for name in ("cached_attention", "cached_masked_attention", "cached_quantized_attention")
        ),
    ),
    tuned=(
        TunedOperator("nn.attention", "attention.cpu", PREFILL, KNOBS),
        TunedOperator("nn.masked_attention", "masked_attention.cpu", PREFILL, KNOBS),
    ),
)
