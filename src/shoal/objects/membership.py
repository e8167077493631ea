"""What an elastic job's coordinator keeps: one text per job, written by compare-and-set.

It belongs to the Job and goes with it. The platform never reads the text; it is the coordinator's.
"""

from __future__ import annotations

from shoal.objects.kind import Kind
from shoal.objects.meta import Object, Part

LARGEST_RECORD = 256 * 1024
"""Bytes of the text, in UTF-8."""


class MembershipSpec(Part, frozen=True, kw_only=True):
    """The text, and the task that wrote it."""

    job_uid: str
    attempt: int
    """Of the task that wrote it; one of an earlier attempt may neither read nor write any more."""
    record: str


class Membership(Object, frozen=True, kw_only=True):
    """The record of one job, under the job's own name."""

    spec: MembershipSpec
    kind: str = "Membership"


MEMBERSHIP = Kind(name="Membership", plural="memberships", struct=Membership, internal=True)
"""Written by the coordinator's own route alone."""
