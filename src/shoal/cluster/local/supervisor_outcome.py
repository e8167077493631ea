"""How a task ended, in the words of `exit.json`. Pure: the supervisor and, should it have been killed,
the agent that finishes its work say the same of the same facts."""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it, without its import
if TYPE_CHECKING:
    import signal
    from typing import Any
else:
    import _signal as signal

__all__ = ["classify", "not_started", "signal_name"]


def classify(
    status: dict[str, Any] | None,
    *,
    stop: dict[str, Any] | None = None,
    out_of_memory_kills: int = 0,
    memory_bytes: int | None = None,
    grace_over: bool = False,
) -> dict[str, Any]:
    """`exit_code, signal, reason, message, stop_reason`, from what the init noted.

    `status` None is an end that was not observed. `grace_over`: it was killed after its grace.
    """
    base = {"signal": 0, "message": "", "stop_reason": stop["reason"] if stop else None}
    if status is None:
        return base | {
            "exit_code": -1,
            "reason": "SupervisorLost",
            "message": "the task's supervisor was killed, and the task with it",
        }
    if "reason" in status:
        return base | {key: status[key] for key in ("exit_code", "reason", "message")}
    ended = base | {"exit_code": status["exit_code"], "signal": status["signal"], "reason": "Exited"}
    if out_of_memory_kills and status["exit_code"]:
        limit = "its limit" if memory_bytes is None else f"its limit of {_mebibytes(memory_bytes)}"
        message = f"killed for using more memory than {limit}"
        if out_of_memory_kills > 1:
            message += f" ({out_of_memory_kills} processes)"
        return ended | {"reason": "OutOfMemory", "message": message}
    if not status["signal"]:
        return ended
    how = signal_name(status["signal"])
    message = f"killed by {how}"
    if grace_over and status["signal"] == signal.SIGKILL and stop:
        message = f"killed: it had not ended {stop['grace_seconds']:g} s after SIGTERM"
    return ended | {"reason": "Signalled", "message": message}


def not_started(message: str, stop: dict[str, Any] | None = None) -> dict[str, Any]:
    """The end of a task that never ran its command: asked to stop before, or the machine's fault."""
    if stop is not None:
        number = int(signal.SIGTERM)
        return {
            "exit_code": 128 + number,
            "signal": number,
            "reason": "Signalled",
            "message": "stopped before it was started",
            "stop_reason": stop["reason"],
        }
    return {
        "exit_code": 126,
        "signal": 0,
        "reason": "StartFailed",
        "message": message,
        "stop_reason": None,
    }


def signal_name(number: int) -> str:
    """`SIGSEGV` for 11."""
    for name in dir(signal):
        if name.startswith("SIG") and not name.startswith("SIG_") and getattr(signal, name) == number:
            return name
    return f"signal {number}"


def _mebibytes(count: int) -> str:
    return f"{count / (1 << 20):.4g} MiB"
