"""Functions whose `configure` ends in our errors.

In: a class with a method `configure`. Out: the same, where what its arguments make go wrong is one of our errors.
Invariant: the error names the function that the user called. Users: the bases of `nn` and `vision`.
"""

from __future__ import annotations

from armillary.base.boundary import boundary


class ConfiguredFunction:
    """A base of functions that are configured once and run often."""

    def __init_subclass__(cls) -> None:
        """What goes wrong in `configure` on its arguments leaves it as one of our errors, with the function's name."""
        super().__init_subclass__()
        own = getattr(cls, "configure", None)
        if own is not None and not cls.__name__.startswith("_"):
            told = f"{cls.__name__}.configure"
            cls.configure = boundary(told, arguments=True, first=1)(getattr(own, "__wrapped__", own))  # type: ignore[attr-defined]  # subclasses have it
