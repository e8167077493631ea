"""What a job lacks: first the indices without which it may not run, then those it could use beside.

Indices are never renumbered; the lowest free one comes first. Indices that have ended well count
towards the minimum, for they will not run again. Once a task of an elastic role or of a gang has ended
well the job is coming to its end: it gets no more than it needs.
"""

from __future__ import annotations

from itertools import islice

from shoal.schedule.give_back import Draft, Index, span
from shoal.schedule.snapshot import RoleForm

__all__ = ["lacking", "surplus"]


def lacking(draft: Draft) -> list[Index]:
    """What it needs to run; for an array every index that may run now, for they run apart."""
    form = draft.form
    if form.array:
        role = form.roles[0]
        cap = form.parallelism if form.parallelism is not None else len(span(role.indices))
        return [(role.name, index) for index in _free(draft, role, cap - _has(draft, role))]
    if _ends(draft) and draft.kept and not draft.forced:
        return []
    wanted: list[Index] = []
    total = 0
    for role in form.roles:
        there = _has(draft, role) + len(draft.done(role.name))
        lack = _free(draft, role, role.minimum - there)
        wanted += [(role.name, index) for index in lack]
        total += there + len(lack)
    least = form.minimum - total
    if not (wanted or draft.kept or draft.got):
        least = max(least, 1)  # the minimum has ended well; what is left needs a start of its own
    return wanted + _evenly(draft, set(wanted), least) if least > 0 else wanted


def surplus(draft: Draft) -> list[tuple[RoleForm, list[int]]]:
    """What it could use beyond its minimum, role by role."""
    if draft.form.array or _ends(draft):
        return []
    more: list[tuple[RoleForm, list[int]]] = []
    for role in draft.form.roles:
        if not _closed(draft, role) and len(span(role.indices)) > _has(draft, role) + len(
            draft.done(role.name)
        ):
            free = _free(draft, role, len(span(role.indices)))
            if free:
                more.append((role, free))
    return more


def _has(draft: Draft, role: RoleForm) -> int:
    if len(draft.form.roles) == 1:
        return len(draft.kept) + len(draft.got)
    return sum(name == role.name for name, _ in (*draft.kept, *draft.got))


def _free(draft: Draft, role: RoleForm, most: int) -> list[int]:
    if most <= 0:
        return []
    done = set(draft.done(role.name))
    free = (
        index
        for index in span(role.indices)
        if (role.name, index) not in draft.kept
        and (role.name, index) not in draft.got
        and index not in done
    )
    return list(islice(free, most))


def _evenly(draft: Draft, wanted: set[Index], count: int) -> list[Index]:
    """The lowest indices first, role after role, so that no role is left out."""
    free = [
        (index, position, role.name)
        for position, role in enumerate(draft.form.roles)
        if not _closed(draft, role)
        for index in _free(draft, role, count + len(wanted))
        if (role.name, index) not in wanted
    ]
    return [(name, index) for index, _, name in sorted(free)[:count]]


def _ends(draft: Draft) -> bool:
    return draft.form.whole and bool(draft.row.done)


def _closed(draft: Draft, role: RoleForm) -> bool:
    return role.elastic and bool(draft.done(role.name))
