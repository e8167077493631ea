"""Random valid-looking documents: admission takes them or says in one sentence why not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.admission.admission import Admission
from shoal.objects import codec
from shoal.objects.errors import ShoalError
from shoal.objects.kinds import KINDS, Kind
from shoal.objects.meta import Metadata
from shoal.objects.node import Capacity, Node, NodeStatus
from shoal.objects.quantities import Bytes, CpuMillis
from shoal.objects.queue import Queue
from shoal.store.authorise import authorise
from shoal.store.base import SYSTEM, Actor
from shoal.store.memory import MemoryStore
from tests.support.strategies import hostile_documents

OWNER = Actor("owner", ("admin",))
QUICK = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))

_TEXT = st.sampled_from(["", "x", "a-b", "A", "../..", "x" * 300, "\u0000", "\x1b[2J", "default", "ü"])
_ODD = st.one_of(
    _TEXT, st.none(), st.integers(), st.lists(_TEXT, max_size=2), st.dictionaries(_TEXT, _TEXT)
)


def documents() -> st.SearchStrategy[tuple[Kind, dict[str, Any]]]:
    """Documents whose metadata is odd too, now and then."""
    metadata = st.fixed_dictionaries(
        {"name": st.one_of(st.just("odd"), _TEXT)},
        optional=dict.fromkeys(
            ("namespace", "labels", "annotations", "finalizers", "owners", "uid", "generation"), _ODD
        ),
    )
    made = [
        st.tuples(hostile_documents(kind.struct), metadata).map(
            lambda both, kind=kind: (
                kind,
                {
                    "apiVersion": "shoal.dev/v1alpha1",
                    "kind": kind.name,
                    "metadata": both[1],
                    "spec": both[0]["spec"],
                },
            )
        )
        for kind in KINDS.values()
    ]
    return st.one_of(made)


def check(kind: Kind, document: dict[str, Any]) -> None:
    """Created, created again, applied and read back; whatever is stored can be decoded."""
    store = MemoryStore(authorise=authorise)
    store.create(Queue(metadata=Metadata(name="default", namespace="")), actor=SYSTEM)
    capacity = Capacity(cpu=CpuMillis(8000), memory=Bytes(2**33), gpus=("0",))
    nodes = [Node(metadata=Metadata(name="n0"), status=NodeStatus(capacity=capacity))]
    admission = Admission(store, lambda: nodes, lambda: ("rack",), authorise=authorise)
    body = msgspec.json.encode(document)
    namespace = "default" if kind.namespaced else ""
    name = document["metadata"]["name"]
    for call in (
        lambda: admission.create_document(kind, body, namespace, OWNER, dry_run=False),
        lambda: admission.create_document(kind, body, namespace, OWNER, key="again", dry_run=False),
        lambda: admission.put(kind, body, (namespace, name), OWNER),
    ):
        try:
            put = call()
        except ShoalError as error:
            assert error.message
            assert "\n" not in error.message
            assert "\x1b" not in error.message
        else:
            assert put.record.object.kind == kind.name
            for sentence in admission.advice(put.record.object):
                assert sentence
    for record in store.list(kind, actor=SYSTEM).records:
        assert not record.problem
        codec.encode(record.object)


@QUICK
@given(documents())
@pytest.mark.slow
def test_every_document_is_admitted_or_refused_in_one_sentence(
    made: tuple[Kind, dict[str, Any]],
) -> None:
    check(*made)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@LONG
@given(documents())
def test_every_document_for_long(made: tuple[Kind, dict[str, Any]]) -> None:
    check(*made)
