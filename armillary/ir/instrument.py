"""What watches passes, under the name of Relay-era scripts.

In: a name. Out: what it stands for. Invariant: nothing is here, and nothing imported before it is asked for. Where to
look next: `instrument.py`.
"""

from armillary.base.lazy import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        **{
            name: f"armillary.instrument:{name}"
            for name in (
                "PassTimingInstrument",
                "PrintAfter",
                "PrintAfterAll",
                "PrintBefore",
                "PrintBeforeAll",
                "pass_instrument",
            )
        },
        "PassInstrument": "armillary.transform:PassInstrument",
    },
)
