"""What was decided, brought back to the jobs as a server knows them: indices, devices, reasons.

A decision numbers the indices that may run from 0 on (`Draft.numbering`); here each gets its own again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from shoal.objects.meta import Stamp
from shoal.schedule.cycle.rows import Task
from shoal.schedule.cycle.steps import Deny, Grow, Move, Preempt, Reserve, Shrink, Start, Step
from shoal.schedule.give_back import Draft, Index
from shoal.schedule.posing import avoided, index_of
from shoal.schedule.snapshot import Hold, NodeRow, RoleForm

__all__ = ["Carrying"]

_NO_PLACE = frozenset(
    ("NoNodeSuits", "TooLarge", "TooFarApart", "WaitingForNode", "TopologyBusy", "NoRoom", "Fragmented")
)
"""What a job may be told because it stays away from a node."""
_FOR_OTHERS = "Preempted"


class Carrying:
    """Of one decision. `drafts` are there already, by uid, others are made by `made`; `named`: whose the
    jobs of the decision are."""

    def __init__(
        self,
        drafts: dict[str, Draft],
        made: Callable[[str], Draft],
        named: Mapping[str, str],
        nodes: Mapping[str, NodeRow],
        now: Stamp,
    ) -> None:
        self._drafts = drafts
        self._made = made
        self._named = named
        self._nodes = nodes
        self._now = now

    def has(self, uid: str) -> bool:
        """Whether the job has a draft."""
        return uid in self._drafts

    def draft(self, uid: str) -> Draft:
        """The job's draft."""
        found = self._drafts.get(uid)
        if found is None:
            found = self._drafts[uid] = self._made(uid)
        return found

    def carry(self, step: Step) -> None:
        """Into the job's draft."""
        draft, part = self.draft(self._named[step.job]), index_of(step.job)
        match step:
            case Start() | Grow():
                draft.got.update(self._holds(draft, step.tasks, part))
            case Shrink() | Preempt():
                self._gives(draft, part, step.tasks, step.code, step.beneficiary, step.evidence)
                if not draft.kept:
                    self._emptied(draft, step)
            case Move():
                self._gives(
                    draft, part, step.tasks, step.code, "", {"for": [self._title(step.beneficiary)]}
                )
                draft.reserved.update(self._holds(draft, step.to, part))
                draft.code, draft.evidence = step.code, {}
            case Reserve():
                draft.reserved.update(self._holds(draft, step.tasks, part))
                draft.place.update(self._holds(draft, step.place, part))
                draft.promised = step.at
                self._waits(draft, step.code, step.evidence, part)
            case Deny():
                self._waits(draft, step.code, step.evidence, part)
            case _:
                raise AssertionError(f"nobody knows what {type(step).__name__} means")

    def _waits(self, draft: Draft, code: str, evidence: dict[str, Any], part: int | None) -> None:
        """Of an array the first index that is kept a place speaks, else the first that waits while
        nothing of it runs."""
        row = draft.row
        if part is not None and (draft.code or ((draft.kept or draft.got) and not draft.reserved)):
            return
        if code == "Departing" and row.code in ("Preempting", "Consolidating"):
            code, evidence = row.code, row.evidence
        elif (avoid := avoided(row, self._now)) and code in _NO_PLACE:
            why = {"reason": row.avoid_reason, "message": row.avoid_message}
            code, evidence = "PlacementRefused", {"node": avoid, "until": row.avoid_until, **why}
        draft.code, draft.evidence = code, self._titled(evidence)

    def _emptied(self, draft: Draft, step: Shrink | Preempt) -> None:
        """It waits again, and the next decision says for what."""
        draft.code, draft.evidence = step.code, step.evidence
        if draft.yielded:
            draft.evidence = {"tasks": len(step.tasks), "left": 0, "for": list(draft.yielded)}

    def _gives(
        self,
        draft: Draft,
        part: int | None,
        tasks: Iterable[Task],
        code: str,
        to: str,
        evidence: dict[str, Any],
    ) -> None:
        numbers = {form.name: draft.numbering(form) for form in draft.form.roles}
        for task in tasks:
            index = numbers[task.role][task.index] if part is None else part
            hold = draft.kept[task.role, index]
            if to and code == _FOR_OTHERS:
                draft.give_up(hold, self._title(to))
            else:
                draft.drop(hold, code)
        draft.why[code] = evidence

    def _holds(self, draft: Draft, tasks: Sequence[Task], part: int | None) -> dict[Index, Hold]:
        roles = {form.name: form for form in draft.form.roles}
        numbers = {name: draft.numbering(form) for name, form in roles.items()}
        found: dict[Index, Hold] = {}
        for task in tasks:
            index = numbers[task.role][task.index] if part is None else part
            found[task.role, index] = self._hold(roles[task.role], index, task)
        return found

    def _hold(self, form: RoleForm, index: int, task: Task) -> Hold:
        shape, node = form.shape, self._nodes[task.node]
        return Hold(
            role=form.name,
            index=index,
            node=task.node,
            devices=tuple(node.gpus[at] for at in task.gpus),
            cpu=shape.cpu,
            memory=shape.memory,
            gpu=shape.gpu,
            share=shape.share,
            slot=True,
        )

    def _title(self, name: str) -> str:
        return name.partition("#")[0]

    def _titled(self, evidence: dict[str, Any]) -> dict[str, Any]:
        """Jobs by the names that people know."""
        found = dict(evidence)
        for key in ("waitsFor", "holders", "behind"):
            if key in found:
                names = (self._title(name) for name in found[key] if not name.startswith("~"))
                found[key] = list(dict.fromkeys(names))[:_MOST_NAMES]
        if "also" in found:
            found["also"] = [self._titled(each) for each in found["also"]]
        return found


_MOST_NAMES = 20
