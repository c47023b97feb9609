"""The exception family: every refusal a user can meet.

In: what failed, where (a span), what was got and wanted, what to do (a hint). Out: one message with those parts.
Invariant: a user's mistake is an `ArmillaryError` other than `InternalError`; a broken invariant of ours is an
`InternalError`. Nothing else may escape from a public function on bad input. See `docs/errors.md`.
"""

from __future__ import annotations

from armillary.base.record import record


@record(slots=True)
class Span:
    """Where something came from: a source (file or model), a name (an ONNX node, a text line) and a position."""

    source: str = ""
    name: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        place = self.source
        if self.line:
            place = f"{place}:{self.line}" + (f":{self.column}" if self.column else "")
        return f"{place}: {self.name}" if place and self.name else place or self.name


class ArmillaryError(RuntimeError):
    """Base of every error the package raises on purpose.

    `span` says where, `hint` what to do next; both become part of the message.
    """

    def __init__(self, message: str, *, span: Span | None = None, hint: str = "") -> None:
        self.message = message
        self.span = span
        self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        where = f"\n  at: {self.span}" if self.span is not None and str(self.span) else ""
        hint = f"\n  hint: {self.hint}" if self.hint else ""
        return f"{self.message}{where}{hint}"


class ModelError(ArmillaryError):
    """A model file or graph is damaged, hostile or not well formed."""


class TypeMismatch(ArmillaryError):
    """Shapes, dtypes or argument counts do not agree."""


class UnsupportedError(ArmillaryError, NotImplementedError):
    """The request is understood, but cannot be done (yet, or on this target)."""


class BudgetError(ArmillaryError):
    """More work or memory than a budget allows (armillary/budgets.py); the hint says how to raise it."""


class ParseError(ArmillaryError):
    """A text in one of the printable languages does not parse."""


class ScheduleError(ArmillaryError):
    """A schedule directive is illegal at the point where it was written."""


class UnknownTruth(TypeMismatch, ValueError):
    """A symbolic expression where Python asks for True or False."""


class TargetError(ArmillaryError, ValueError):
    """A target string, tool-chain or device is unknown or unusable."""


class ArtifactError(ArmillaryError):
    """A package, parameter blob or graph JSON is damaged, hostile or of another machine; a file cannot be written."""


class ExecutionError(ArmillaryError):
    """Running a compiled function failed: wrong inputs, missing outputs, no memory."""


class ConfigError(ArmillaryError):
    """An option, environment variable or pass configuration is unknown or out of range."""


class InternalError(ArmillaryError):
    """An invariant of the compiler is broken: a defect in Armillary, never the user's fault."""


class RPCError(ArmillaryError):
    """A device, tracker or connection failed or refused: unreachable, busy, not our protocol, a process that died."""


class AuthError(RPCError):
    """The two sides of a connection do not share the secret, or one of them has none where one is demanded."""


class RPCConnectionError(RPCError):
    """A peer cannot be reached, or a connection broke; nothing is said about what was asked of it."""


class RPCSessionTimeoutError(RPCError):
    """A session lasted longer than its deadline and was ended."""


def errors_by_name() -> dict[str, type[ArmillaryError]]:
    """The family by class name: an error that crossed a wire is raised again as what it was."""
    result, todo = {}, [ArmillaryError]
    while todo:
        kind = todo.pop()
        result[kind.__name__] = kind
        todo += kind.__subclasses__()
    return result
