"""How long a job's tasks have been on nodes, kept in its status so that no restart forgets it.

A node counts for as long as a task of the job is on it, however many there are and however small. The
number of nodes changes only when a task comes or goes, so the status says how many there have been
since when, and what was before. A node that does not answer counts on: of its tasks nothing is known.
"""

from __future__ import annotations

from shoal.control.job.book import Book
from shoal.control.job.seen import Seen
from shoal.objects.job import NodeTime

__all__ = ["count_nodes", "hours_at", "seconds_until"]

_HOUR = 3600.0


def count_nodes(seen: Seen, book: Book, now: float) -> None:
    """Write into the book on how many nodes tasks are now."""
    before = book.node_time
    nodes = {task.spec.placement.node for task in seen.tasks if task.phase != "Ended"}
    nodes |= {node for node in book.members().values() if seen.unknown(node)}
    if len(nodes) == before.nodes:
        return
    at = now
    if len(nodes) < before.nodes:  # while no server was up, tasks may have ended long ago
        at = min(now, max((task.ended for task in seen.tasks if task.ended), default=now))
    used = before.node_seconds + before.nodes * max(0.0, at - before.since)
    book.node_time = NodeTime(node_seconds=used, nodes=len(nodes), since=at if nodes else 0.0)


def hours_at(used: NodeTime, now: float) -> float:
    """Node hours used by then."""
    return (used.node_seconds + used.nodes * max(0.0, now - used.since)) / _HOUR


def seconds_until(used: NodeTime, hours: float, now: float) -> float | None:
    """How long until so many node hours are used; None while nothing uses any."""
    if not used.nodes:
        return None
    return max(0.0, (hours - hours_at(used, now)) * _HOUR / used.nodes)
