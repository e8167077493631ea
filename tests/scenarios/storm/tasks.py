"""The program of every task: light, for hundreds run on two cores.

First it claims its incarnation: a file that it creates exclusively where all tasks of the job see it.
Who finds it taken leaves a second file and exits with 99: an incarnation that ran twice never goes
unnoticed. Then it sleeps and exits as its step says: `SECONDS CODE MANNERS`, from the variable
`STEP_<index>_<incarnation>`, or from `STEP` where there is none. Manners: `plain` ends at SIGTERM,
`polite` exits 0 then, `deaf` ignores it.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["COMMAND", "claims", "ran_twice", "step"]

_SCRIPT = """\
me="$SHOAL_ROLE-$SHOAL_INDEX-$SHOAL_INCARNATION"
set -C
echo "$SHOAL_NODE" > "$SHOAL_OUTPUT/claim-$me" || { echo > "$SHOAL_OUTPUT/twice-$me-$$"; exit 99; }
eval "step=\\${STEP_${SHOAL_INDEX}_${SHOAL_INCARNATION}:-\\$STEP}"
set -- $step
case $3 in
deaf) trap '' TERM ;;
polite) trap 'exit 0' TERM ;;
esac
echo "$me: $step"
sleep "$1"
exit "$2"
"""

COMMAND = ("sh", "-c", _SCRIPT)


def step(seconds: float, code: int = 0, manners: str = "plain") -> str:
    """The text of a step."""
    return f"{seconds:g} {code} {manners}"


def claims(output: Path) -> set[tuple[str, int, int]]:
    """(role, index, incarnation) of every task of a job that ran, from the job's output folder."""
    found: set[tuple[str, int, int]] = set()
    for path in output.glob("claim-*"):
        role, index, incarnation = path.name.removeprefix("claim-").rsplit("-", 2)
        found.add((role, int(index), int(incarnation)))
    return found


def ran_twice(output: Path) -> list[str]:
    """Every sign of an incarnation that ran twice."""
    return sorted(path.name for path in output.glob("twice-*"))
