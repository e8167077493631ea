"""The errors that cross layers: each has a code, one sentence, and where it helps, a hint.

The code travels over HTTP and decides the exit code of the command line, so a failure means the same
to every client.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "Conflict",
    "Exists",
    "Expired",
    "Forbidden",
    "Invalid",
    "NotFound",
    "Problem",
    "ShoalError",
    "TooManyRequests",
    "Unauthenticated",
    "Unavailable",
    "VersionSkew",
    "by_code",
]


class ShoalError(Exception):
    """Base of the errors below. `message` is one sentence; `hint` says what to do next."""

    code: ClassVar[str] = "Failure"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "", details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details or {}

    def document(self) -> dict[str, Any]:
        """What goes over the wire: code, message, hint, details."""
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "details": self.details,
        }


class Problem:
    """One thing wrong with an object: where, what, and the nearest right name if there is one."""

    __slots__ = ("column", "file", "line", "message", "path")

    def __init__(self, path: str, message: str, line: int = 0, column: int = 0, file: str = "") -> None:
        self.path = path
        self.message = message
        self.line = line
        self.column = column
        self.file = file
        """Where several files are read together: the file of `line`."""

    def __str__(self) -> str:
        place = f"line {self.line}, column {self.column}" if self.line else ""
        where = ", ".join(filter(None, (self.file, place)))
        return ": ".join(filter(None, (where, self.path, self.message)))

    def document(self) -> dict[str, Any]:
        """What goes over the wire: path, message, line, column, and the file if there are several."""
        said = {"path": self.path, "message": self.message, "line": self.line, "column": self.column}
        return {"file": self.file, **said} if self.file else said

    def __repr__(self) -> str:
        return f"Problem({str(self)!r})"


class Invalid(ShoalError):
    """The object is wrong; `problems` holds everything that is."""

    code = "Invalid"
    http_status = 422
    exit_code = 2

    def __init__(self, message: str, problems: tuple[Problem, ...] = (), *, hint: str = "") -> None:
        details = {"problems": [problem.document() for problem in problems]}
        super().__init__(message, hint=hint, details=details if problems else None)
        self.problems = problems


class NotFound(ShoalError):
    """No such object."""

    code = "NotFound"
    http_status = 404
    exit_code = 3


class Conflict(ShoalError):
    """A precondition (version, uid, generation, a writer's counter) does not hold: read again."""

    code = "Conflict"
    http_status = 409
    exit_code = 4


class Exists(ShoalError):
    """An object of this name exists already."""

    code = "Exists"
    http_status = 409
    exit_code = 4


class Unauthenticated(ShoalError):
    """The caller did not authenticate, or its token is not valid."""

    code = "Unauthenticated"
    http_status = 401
    exit_code = 5


class Forbidden(ShoalError):
    """The caller may not do this."""

    code = "Forbidden"
    http_status = 403
    exit_code = 5


class Unavailable(ShoalError):
    """The other side does not answer, or answers that it cannot now."""

    code = "Unavailable"
    http_status = 503
    exit_code = 6


class TooManyRequests(ShoalError):
    """The caller has more connections than its share: it closes some, and tries again."""

    code = "TooManyRequests"
    http_status = 429
    exit_code = 6


class VersionSkew(ShoalError):
    """Client and server are of versions that do not work together."""

    code = "VersionSkew"
    http_status = 426
    exit_code = 6


class Expired(ShoalError):
    """The watch's window, or a page cursor's, is gone: list again and compare."""

    code = "Expired"
    http_status = 410
    exit_code = 1


_ALL = (
    Conflict, Exists, Expired, Forbidden, NotFound, TooManyRequests, Unauthenticated, Unavailable,
    VersionSkew,
)  # fmt: skip


def by_code(document: dict[str, Any]) -> ShoalError:
    """The error that `ShoalError.document` described; a plain `ShoalError` for an unknown code."""
    message = str(document.get("message", "the server gave no reason"))
    hint = str(document.get("hint", ""))
    details: dict[str, Any] = document.get("details") or {}
    if document.get("code") == Invalid.code:
        problems = tuple(Problem(**problem) for problem in details.get("problems", []))
        return Invalid(message, problems, hint=hint)
    kind = next((k for k in _ALL if k.code == document.get("code")), ShoalError)
    return kind(message, hint=hint, details=details)
