"""Secrets at rest: sealed, bound to their names, and readable after a rotation that was cut off."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from shoal import faults
from shoal.clock import SystemClock
from shoal.objects import codec
from shoal.objects.errors import Exists, Forbidden, Invalid, NotFound, ShoalError
from shoal.objects.job import Job, JobSpec, Role, SecretUse
from shoal.objects.kinds import SECRET
from shoal.objects.meta import Metadata
from shoal.objects.secret import LARGEST_SECRET_BYTES
from shoal.server.secrets import KEY_FILE, Secrets
from shoal.store.authorise import authorise
from shoal.store.base import SYSTEM, Actor
from shoal.store.memory import MemoryStore
from tests.server.harness import LiveServer

ADMIN = Actor("root", ("admin",))
ALICE = Actor("alice", bindings=(("team", "user"),))
VIEWER = Actor("vera", bindings=(("team", "viewer"),))
VALUE = b"correct-horse-battery"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(authorise=authorise)


@pytest.fixture
def secrets(store: MemoryStore, tmp_path: Path) -> Secrets:
    return Secrets(store, tmp_path, SystemClock())


def a_job(*uses: SecretUse) -> Job:
    role = Role(command=("x",), secrets=uses)
    return Job(metadata=Metadata(name="train", namespace="team"), spec=JobSpec(roles=(role,)))


def given(secrets: Secrets, *uses: SecretUse) -> tuple[dict[str, str], dict[str, str]]:
    return secrets.for_tasks(a_job(*uses), "worker")


def in_clear(store: MemoryStore) -> bool:
    documents = [record.document for record in store.list(SECRET, actor=SYSTEM).records]
    return any(VALUE in document for document in documents)


def test_a_value_is_sealed_in_the_store_and_given_to_tasks(
    secrets: Secrets, store: MemoryStore, tmp_path: Path
) -> None:
    before, made = secrets.set("team", "hub", {"value": VALUE}, replace=False, actor=ALICE)
    assert before is None and list(made.spec.sealed) == ["value"]
    assert not in_clear(store)
    for name in (KEY_FILE, f"copy.{KEY_FILE}"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    uses = SecretUse(name="hub", env="HUB"), SecretUse(name="hub", file="hub")
    assert given(secrets, *uses) == ({"HUB": VALUE.decode()}, {"hub": VALUE.decode()})
    again = Secrets(store, tmp_path, SystemClock())  # as after a restart
    assert given(again, uses[0])[0] == {"HUB": VALUE.decode()}


def test_equal_values_are_sealed_differently(secrets: Secrets) -> None:
    _, made = secrets.set("team", "hub", {"a": VALUE, "b": VALUE}, replace=False, actor=ALICE)
    assert made.spec.sealed["a"] != made.spec.sealed["b"]


def test_a_sealed_value_cannot_be_moved_to_another_secret(secrets: Secrets, store: MemoryStore) -> None:
    import msgspec

    _, taken = secrets.set("other", "theirs", {"value": VALUE}, replace=False, actor=ADMIN)
    _, own = secrets.set("team", "mine", {"value": b"own"}, replace=False, actor=ALICE)
    store.update(msgspec.structs.replace(own, spec=taken.spec), actor=SYSTEM)
    with pytest.raises(ShoalError, match="cannot be decrypted: what is stored was changed"):
        given(secrets, SecretUse(name="mine", env="MINE"))


def test_what_does_not_exist_is_named_with_the_nearest(secrets: Secrets) -> None:
    secrets.set("team", "hub-token", {"value": VALUE}, replace=False, actor=ALICE)
    with pytest.raises(NotFound, match="no secret hub-tokn in namespace team; did you mean hub-token"):
        given(secrets, SecretUse(name="hub-tokn", env="HUB"))
    with pytest.raises(NotFound, match="has no key vlue; did you mean value"):
        given(secrets, SecretUse(name="hub-token", key="vlue", env="HUB"))


def test_an_existing_secret_is_replaced_only_when_asked(secrets: Secrets) -> None:
    secrets.set("team", "hub", {"value": VALUE, "old": b"x"}, replace=False, actor=ALICE)
    with pytest.raises(Exists, match="exists already in namespace team"):
        secrets.set("team", "hub", {"value": b"2"}, replace=False, actor=ALICE)
    secrets.set("team", "hub", {"value": b"2"}, replace=True, actor=ALICE)
    assert given(secrets, SecretUse(name="hub", env="HUB"))[0] == {"HUB": "2"}
    assert list(secrets.get("team", "hub", actor=ALICE).spec.sealed) == ["value"]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("Hub", {"value": VALUE}),
        ("hub", {}),
        ("hub", {"../x": VALUE}),
        ("hub", {"value": VALUE * LARGEST_SECRET_BYTES}),
    ],
)
def test_a_refusal_does_not_repeat_a_value(
    secrets: Secrets, name: str, values: dict[str, bytes]
) -> None:
    with pytest.raises(Invalid) as caught:
        secrets.set("team", name, values, replace=False, actor=ALICE)
    assert VALUE.decode() not in f"{caught.value} {caught.value.hint} {caught.value.details}"


def test_values_that_no_variable_can_hold_are_named_by_their_key(secrets: Secrets) -> None:
    secrets.set("team", "hub", {"nul": b"a\0b", "raw": b"\xff"}, replace=False, actor=ALICE)
    with pytest.raises(ShoalError, match="key nul of secret hub holds a NUL"):
        given(secrets, SecretUse(name="hub", key="nul", env="X"))
    with pytest.raises(ShoalError, match="key raw of secret hub is no UTF-8 text"):
        given(secrets, SecretUse(name="hub", key="raw", file="x"))


def test_viewers_other_namespaces_and_jobs_are_refused(secrets: Secrets) -> None:
    secrets.set("team", "hub", {"value": VALUE}, replace=False, actor=ALICE)
    outsider = Actor("olaf", bindings=(("other", "manager"),))
    job = Actor("job", job=("team", "train", "uid"))
    for actor in (VIEWER, outsider, job):
        with pytest.raises(Forbidden):
            secrets.list("team", actor=actor)
        with pytest.raises(Forbidden):
            secrets.get("team", "hub", actor=actor)
        with pytest.raises(Forbidden):
            secrets.set("team", "hub", {"value": b"2"}, replace=True, actor=actor)
        with pytest.raises(Forbidden):
            secrets.delete("team", "hub", actor=actor)
    with pytest.raises(Forbidden):
        secrets.rotate(actor=ALICE)


def key_ids(folder: Path) -> set[str]:
    return set(json.loads((folder / KEY_FILE).read_text())["keys"])


def test_rotation_seals_everything_with_a_new_key_and_removes_the_old_one(
    secrets: Secrets, store: MemoryStore, tmp_path: Path
) -> None:
    for number in range(3):
        secrets.set("team", f"s{number}", {"value": VALUE}, replace=False, actor=ALICE)
    old = key_ids(tmp_path)
    assert secrets.rotate(actor=ADMIN) == 3
    new = key_ids(tmp_path)
    assert len(new) == 1 and not new & old
    records = store.list(SECRET, actor=SYSTEM).records
    used = {record.object.spec.sealed["value"].partition(".")[0] for record in records}
    assert used == new
    assert given(secrets, SecretUse(name="s2", env="S"))[0] == {"S": VALUE.decode()}


class Interrupted(Exception):
    pass


POINTS = [
    ("server.secrets.key.added", 1), ("server.secrets.resealed", 1), ("server.secrets.resealed", 3),
    ("server.secrets.keys.dropped", 1), ("write", 1), ("write", 2), ("write", 3), ("write", 4),
]  # fmt: skip


@pytest.mark.parametrize(("point", "nth"), POINTS)
def test_a_rotation_that_is_cut_off_leaves_every_value_readable(
    secrets: Secrets,
    store: MemoryStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    nth: int,
) -> None:
    """At the named points, and after each file that is written (`write`: copy and file, twice)."""
    from shoal import statefiles

    for number in range(3):
        secrets.set("team", f"s{number}", {"value": VALUE}, replace=False, actor=ALICE)
    visits = 0

    def visit(name: str) -> None:
        nonlocal visits
        visits += name == point
        if name == point and visits == nth:
            raise Interrupted

    write = statefiles.write

    def counted(path: Path, data: bytes, *, copy: Path | None = None) -> None:
        write(path, data, copy=copy)
        if copy is None:
            visit("write")

    def in_steps(path: Path, data: bytes, *, copy: Path | None = None) -> None:
        if copy is not None:
            counted(copy, data)
        counted(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(faults, "point", visit)
        patch.setattr("shoal.server.secrets.statefiles.write", in_steps)
        with pytest.raises(Interrupted):
            secrets.rotate(actor=ADMIN)
    later = Secrets(store, tmp_path, SystemClock())
    for number in range(3):
        assert given(later, SecretUse(name=f"s{number}", env="S"))[0] == {"S": VALUE.decode()}
    assert later.rotate(actor=ADMIN) == 3
    assert len(key_ids(tmp_path)) == 1
    assert given(later, SecretUse(name="s0", env="S"))[0] == {"S": VALUE.decode()}


def test_a_damaged_key_file_is_replaced_by_its_copy(
    secrets: Secrets, store: MemoryStore, tmp_path: Path
) -> None:
    secrets.set("team", "hub", {"value": VALUE}, replace=False, actor=ALICE)
    (tmp_path / KEY_FILE).write_text("garbage")
    later = Secrets(store, tmp_path, SystemClock())
    assert given(later, SecretUse(name="hub", env="S"))[0] == {"S": VALUE.decode()}
    (tmp_path / KEY_FILE).unlink()
    (tmp_path / f"copy.{KEY_FILE}").unlink()
    lost = Secrets(store, tmp_path, SystemClock())
    with pytest.raises(ShoalError, match=r"its encryption key .* is not in secrets\.json"):
        given(lost, SecretUse(name="hub", env="S"))
    lost.set("team", "hub", {"value": b"new"}, replace=True, actor=ALICE)
    assert given(lost, SecretUse(name="hub", env="S"))[0] == {"S": "new"}


def test_no_answer_of_the_api_and_no_audit_event_holds_a_value(tmp_path: Path) -> None:
    from shoal.history.recorder import Recorder

    server = LiveServer(tmp_path / "home")
    try:
        server.services.audit.attach(Recorder(server.history, SystemClock()))
        with server.client() as client:
            made = client.set_secret("team", "hub", {"value": VALUE})
            assert (made.name, made.keys) == ("hub", ("value",))
            with pytest.raises(Exists):
                client.set_secret("team", "hub", {"value": VALUE})
            client.set_secret("team", "hub", {"value": VALUE}, replace=True)
            answers = [
                client.transport.request("GET", f"/api/v1/namespaces/team/secrets{path}").body
                for path in ("", "/hub")
            ]
            assert client.rotate_secret_key() == 1
            with pytest.raises(Invalid) as caught:
                client.set_secret("team", "hub", {"not a key": VALUE}, replace=True)
            with pytest.raises(Invalid) as malformed:
                body = b'{"values": {"value": "%s!"}}' % VALUE
                client.transport.request("PUT", "/api/v1/namespaces/team/secrets/x", body=body)
            client.delete_secret("team", "hub")
            assert client.secrets("team") == ()
            audited = client.audit(namespace="team", kind=None)
        assert [entry.reason for entry in audited] == ["create", "update", "delete"]
        said = [*answers, codec.encode(audited), str(caught.value).encode()]
        said += [str(malformed.value).encode(), codec.encode(malformed.value.details)]
        assert not any(VALUE in text for text in said)
    finally:
        server.close()


def test_the_generic_routes_do_not_reach_secrets(tmp_path: Path) -> None:
    server = LiveServer(tmp_path / "home")
    try:
        with server.client() as client:
            client.set_secret("team", "hub", {"value": VALUE})
            for path in (
                "/api/v1/secrets",
                "/schema/Secret",
                "/api/v1/namespaces/team/secrets/hub/explain",
            ):
                with pytest.raises((NotFound, Forbidden)):
                    client.transport.request("GET", path)
    finally:
        server.close()
