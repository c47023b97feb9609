"""Renderers of diagnostics, by the names of Relay-era scripts: `get_renderer()`, `override_renderer(function)`.

In: a function of a context. Out: the renderer in force. Invariant: errors are exceptions, which say what, where and
what to do; nobody calls a renderer but who gets it here. What it is called with is printed by the first one.
"""

from __future__ import annotations

from collections.abc import Callable

Render = Callable[[object], None]


class DiagnosticRenderer:
    """Renders a context by a function."""

    def __init__(self, render_func: Render = print) -> None:
        self.render_func = render_func

    def render(self, ctx: object) -> None:
        """Call the function."""
        self.render_func(ctx)


_DEFAULT = DiagnosticRenderer()
_IN_FORCE = [_DEFAULT]


def get_renderer() -> DiagnosticRenderer:
    """The renderer in force."""
    return _IN_FORCE[-1]


def override_renderer(render_func: Render | None) -> None:
    """Put a function in the place of the renderer; None puts the first one back."""
    _IN_FORCE[:] = [_DEFAULT if render_func is None else DiagnosticRenderer(render_func)]
