"""First stage: what each job gives back before anything is given out.

Voluntarily: everything once it has ended or is held back, indices that have ended, indices that are
wanted no more. Against its will: what stands on nodes that are lost, drained, or refused it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from shoal.objects.meta import Stamp
from shoal.objects.ranges import IndexSet
from shoal.schedule.snapshot import Form, Hold, JobRow, NodeRow, RoleForm
from shoal.schedule.taints import tolerates

__all__ = ["FORCED", "Draft", "Index", "give_back", "span"]

Index = tuple[str, int]
"""(role, index)."""

FORCED = ("NodeLost", "NodeDrained", "Refused")
"""Codes under which a node takes slots against the job's will."""


@dataclass
class Draft:
    """One job while a decision is made: what it keeps, loses and gets."""

    row: JobRow
    form: Form
    kept: dict[Index, Hold] = field(default_factory=dict[Index, Hold])
    lost: list[tuple[Hold, str]] = field(default_factory=list[tuple[Hold, str]])
    """Slots given back, with the code."""
    got: dict[Index, Hold] = field(default_factory=dict[Index, Hold])
    code: str = ""
    """Why it waits, if it does."""
    evidence: dict[str, Any] = field(default_factory=dict[str, Any])
    reserved: dict[Index, Hold] = field(default_factory=dict[Index, Hold])
    """What is kept for it until those who hold it have gone."""
    yielded: list[str] = field(default_factory=list[str])
    """For which jobs (`namespace/name`) it gives up slots."""
    why: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """By code of what it gives back: the numbers behind it."""
    promised: Stamp | None = None
    """When it starts at the latest."""
    place: dict[Index, Hold] = field(default_factory=dict[Index, Hold])
    """Where it starts then."""

    @property
    def forced(self) -> str:
        """The code under which slots were taken against the job's will, if any were."""
        return next((code for _, code in self.lost if code in FORCED), "")

    def drop(self, hold: Hold, code: str) -> None:
        """Give one slot back."""
        self.kept.pop((hold.role, hold.index), None)
        self.lost.append((hold, code))

    def give_up(self, hold: Hold, to: str) -> None:
        """Give one slot up for another job (`namespace/name`)."""
        self.drop(hold, "Preempted")
        if to not in self.yielded:
            self.yielded.append(to)

    def numbering(self, role: RoleForm) -> tuple[int, ...]:
        """The indices that may run, in their order: a decision knows them by their places."""
        done = self.done(role.name)
        allowed = span(role.indices)
        return tuple(index for index in allowed if index not in done) if len(done) else tuple(allowed)

    def done(self, role: str) -> IndexSet:
        """The role's indices that will not run again; those of a gang do when it restarts."""
        if self.form.whole:
            return span("")
        return span(next((text for name, text in self.row.done if name == role), ""))


def give_back(row: JobRow, form: Form, nodes: dict[str, NodeRow]) -> Draft:
    """The job's draft, with what it keeps and what it gives back."""
    draft = Draft(row, form)
    slots = [hold for hold in row.holds if hold.slot]
    if row.ending:
        draft.lost = [(hold, row.ending) for hold in slots]
        return draft
    allowed = {role.name: span(role.indices) for role in form.roles}
    untouched = row.refused and (form.whole or not any(hold.live for hold in slots))
    for hold in slots:
        node = nodes.get(hold.node)
        code = ""
        if untouched or (row.refused and not hold.live and hold.node == row.avoid):
            code = "Refused"
        elif hold.index not in allowed.get(hold.role, ()):
            code = "Shrunk"
        elif hold.index in draft.done(hold.role):
            code = "Finished"
        elif node is None or node.lost:
            code = "NodeLost"
        elif _drained(node, form, hold.role):
            code = "NodeDrained"
        if code:
            draft.lost.append((hold, code))
        else:
            draft.kept[hold.role, hold.index] = hold
    if form.parallelism is not None and len(draft.kept) > form.parallelism:
        highest = sorted(draft.kept.values(), key=lambda hold: hold.index)[form.parallelism :]
        for hold in highest:
            draft.drop(hold, "Shrunk")
    return draft


@functools.lru_cache(maxsize=1000)
def span(text: str) -> IndexSet:
    """The indices of a text, remembered: jobs ask for the same few again and again."""
    return IndexSet.parse(text)


def _drained(node: NodeRow, form: Form, role: str) -> bool:
    taints = [taint for taint in node.taints if taint.effect == "NoExecute"]
    if not taints:
        return False
    tolerations = next((each.shape.tolerations for each in form.roles if each.name == role), ())
    return not all(tolerates(tolerations, taint) for taint in taints)
