"""What each write does, as functions of what is stored: the contract of `base`, written once.

A rule looks at the store through a `View`, refuses with the contract's errors, and returns an
`Outcome`: the object's new row and the changes to make, in order. It changes nothing itself, so that a
store can run it inside its own transaction and run it again when that transaction failed.

A document is the complete JSON of an object. A `Draft` decodes its metadata and keeps every other part
as the bytes it was, so that a large spec or status costs nothing to carry along and fields that this
version does not know stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Any, get_type_hints

import msgspec

from shoal.objects import codec
from shoal.objects.errors import Conflict, Exists, Forbidden, Invalid, NotFound
from shoal.objects.kinds import Kind
from shoal.objects.meta import Object
from shoal.objects.paths import spell
from shoal.objects.status_rules import check_numbers
from shoal.store.backend import Change, Found, Row, View
from shoal.store.base import Actor

_EDITABLE = ("labels", "annotations", "finalizers", "owners")
_ORDER = ("apiVersion", "kind", "metadata", "spec", "status")
_PARTS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANY = msgspec.json.Decoder()
_PLAIN = msgspec.json.Encoder()
_NO_LABELS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a rule decided: the object's document, and the changes that make it so.

    No changes: the write says what is there already.
    """

    document: bytes
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Patch:
    """A status patch, as `Store.patch_status` has it; `fields` still as given."""

    actor: Actor
    writer: str
    uid: str
    counter: int
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    generation: int | None = None


def create(view: View, kind: Kind, obj: Object, *, submitter: str, uid: str, now: float) -> Outcome:
    """Store a new object.

    Raises:
        Exists: the key is taken.
        Conflict: an owner that it names is not there (any more).
        Invalid: it could not be read back.
    """
    draft = Draft(encoded(obj, described(kind, *obj.key)))
    draft.parts.pop("status", None)
    namespace, name = _key(kind, draft.metadata)
    what = described(kind, namespace, name)
    if view.find(kind.name, namespace, name) is not None:
        raise Exists(f"{what} exists already")
    _check_owners(view, draft, what)
    given = draft.metadata
    draft.metadata = {"name": name, "namespace": namespace}
    draft.metadata |= {key: given[key] for key in _EDITABLE if given.get(key)}
    revision, version = view.next_version()
    draft.metadata |= {"uid": uid, "resourceVersion": version, "generation": 1}
    draft.metadata |= {"created": now, "submitter": submitter}
    row = _row(kind.name, draft)
    validated(row.document, type(obj), what)
    return Outcome(row.document, (Change(revision, "Added", row),))


def update(view: View, kind: Kind, obj: Object, *, now: float) -> Outcome:
    """Replace labels, annotations, finalizers, owners and spec.

    Raises:
        NotFound: no object of this key and uid.
        Conflict: it was read at another version, or an owner that it names is not there.
        Invalid: it could not be read back, or it is being deleted and more than finalizers change.
    """
    new = Draft(encoded(obj, described(kind, *obj.key)))
    namespace, name = _key(kind, new.metadata)
    what = described(kind, namespace, name)
    row = _found(view, kind, namespace, name, new.metadata.get("uid", ""))
    draft = Draft(row.document)
    if new.metadata.get("resourceVersion") != draft.metadata["resourceVersion"]:
        raise Conflict(f"{what} has changed since it was read", hint="read it again")
    edited = _edit(draft, new, type(obj))
    if not edited:
        return Outcome(row.document)
    if draft.metadata.get("deleted"):
        _check_deleted(row, draft, edited, what)
        if not draft.metadata.get("finalizers"):
            return _removal(view, row.kind, draft, now)
    if "owners" in edited:
        _check_owners(view, draft, what)
    if "spec" in edited:
        draft.metadata["generation"] += 1
    revision, version = view.next_version()
    draft.metadata["resourceVersion"] = version
    changed = _row(row.kind, draft)
    validated(changed.document, type(obj), what)
    change = Change(revision, "Modified", changed, reowned="owners" in edited)
    return Outcome(changed.document, (change,))


def patch_status(view: View, kind: Kind, namespace: str, name: str, patch: Patch) -> Outcome:
    """Set one writer's fields of the status.

    Raises:
        NotFound: no object of this key and uid.
        Conflict: the writer's counter or the generation differ.
        Forbidden: the actor is not this writer, or a field is not this writer's.
        Invalid: a field could not be read back, or has a value that cannot be.
    """
    what = described(kind, namespace, name)
    _check_writer(kind, patch)
    row = _found(view, kind, namespace, name, patch.uid)
    draft = Draft(row.document)
    if patch.generation is not None and patch.generation != draft.metadata["generation"]:
        raise Conflict(f"the spec of {what} has changed since it was read", hint="read it again")
    status = draft.status()
    writers: dict[str, int] = msgspec.json.decode(status.get("writers", b"{}"))
    if writers.get(patch.writer, 0) != patch.counter:
        raise Conflict(
            f"{patch.writer!r} has written the status of {what} since it was read", hint="read it again"
        )
    if not _apply(status, draft.parts["spec"], kind, patch, what):
        return Outcome(row.document)
    writers[patch.writer] = patch.counter + 1
    status["writers"] = msgspec.Raw(codec.encode(writers))
    draft.set_status(status)
    revision, version = view.next_version()
    draft.metadata["resourceVersion"] = version
    changed = _row(row.kind, draft)
    return Outcome(changed.document, (Change(revision, "Modified", changed),))


def delete(view: View, kind: Kind, namespace: str, name: str, *, uid: str, now: float) -> Outcome:
    """Remove the object and what it owns, or stamp it deleted while it has finalizers.

    Raises:
        NotFound: no object of this key (and uid, when given).
    """
    row = _found(view, kind, namespace, name, uid)
    draft = Draft(row.document)
    if not draft.metadata.get("finalizers"):
        return _removal(view, row.kind, draft, now)
    if draft.metadata.get("deleted"):
        return Outcome(row.document)
    change = _stamp_deleted(view, row.kind, draft, now)
    return Outcome(change.row.document, (change,))


def described(kind: Kind, namespace: str, name: str) -> str:
    """An object in a sentence."""
    return f"{kind.name.lower()} {namespace}/{name}" if namespace else f"{kind.name.lower()} {name}"


def _key(kind: Kind, metadata: Mapping[str, Any]) -> tuple[str, str]:
    """The key as stored; a missing namespace is the default one, as in `Metadata`."""
    if not kind.namespaced:
        return "", metadata["name"]
    namespace = metadata.get("namespace", "default")
    if not namespace:
        raise Invalid(f"{kind.name.lower()} {metadata['name']} needs a namespace")
    return namespace, metadata["name"]


def _row(kind: str, draft: Draft) -> Row:
    metadata = draft.metadata
    return Row(
        kind=kind,
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        labels=metadata.get("labels") or _NO_LABELS,
        owners=tuple(owner["uid"] for owner in metadata.get("owners", ())),
        document=draft.seal(),
    )


def _found(view: View, kind: Kind, namespace: str, name: str, uid: str) -> Found:
    row = view.find(kind.name, namespace, name)
    if row is None:
        raise NotFound(f"{described(kind, namespace, name)} does not exist")
    if uid and row.uid != uid:
        raise NotFound(
            f"{described(kind, namespace, name)} is another object of that name now",
            details={"uid": row.uid, "wanted": uid},
        )
    return row


def _check_owners(view: View, draft: Draft, what: str) -> None:
    """Refuse owners that are gone already: their deletion would never reach the object."""
    for owner in draft.metadata.get("owners", ()):
        if not view.has_uid(owner["uid"]):
            raise Conflict(f"{what} names an owner that is gone: {owner['kind']} {owner['name']}")


def _edit(draft: Draft, new: Draft, struct: type[Object]) -> set[str]:
    """Bring what people own from `new` into `draft`; the names of what differs."""
    merged = Draft(codec.merge_unknown(draft.people_part(), new.people_part(), struct))
    edited: set[str] = set()
    for key in _EDITABLE:
        value = merged.metadata.get(key) or None
        if value == draft.metadata.get(key):
            continue
        edited.add(key)
        draft.metadata.pop(key, None)
        if value is not None:
            draft.metadata[key] = value
    if not same(draft.parts["spec"], merged.parts["spec"]):
        edited.add("spec")
        draft.parts["spec"] = merged.parts["spec"]
    return edited


def _check_deleted(row: Found, draft: Draft, edited: set[str], what: str) -> None:
    kept: list[str] = Draft(row.document).metadata.get("finalizers", [])
    if edited != {"finalizers"} or not set(draft.metadata.get("finalizers", ())) <= set(kept):
        raise Invalid(f"{what} is being deleted: its finalizers can be removed, nothing else changes")


def _check_writer(kind: Kind, patch: Patch) -> None:
    """A writer's name belongs to an identity: the platform's own components have all of them, and an
    actor with the role `controller:NAME` the one of that name. People and tasks have none."""
    if not {"system", f"controller:{patch.writer}"} & set(patch.actor.roles):
        raise Forbidden(
            f"{patch.actor.name} cannot write the status of {kind.plural} as {patch.writer!r}",
            hint="status is written by controllers: change the spec instead",
        )
    owned = kind.status_writers.get(patch.writer, ())
    others = {
        name for writer, names in kind.status_writers.items() if writer != patch.writer for name in names
    }
    for name in patch.fields:
        if name == "writers" or not (name in owned or ("*" in owned and name not in others)):
            raise Forbidden(f"status.{name} of {kind.plural} is not {patch.writer!r}'s to write")


def _apply(
    status: dict[str, msgspec.Raw], spec: msgspec.Raw, kind: Kind, patch: Patch, what: str
) -> bool:
    """Bring the patch into `status`; whether anything differs."""
    given = {name: value for name, value in patch.fields.items() if value is not None}
    fields = encoded(given, what)
    typed = status_of(fields, kind.struct, what)
    findings = chain(check_numbers(typed), kind.check_status(typed, bytes(spec)))
    try:
        wrong = next(findings, None)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Invalid(f"the spec of {what}, as stored, cannot be read: {error}") from error
    if wrong is not None:
        raise Invalid(f"the status of {what} is not valid: {spell(wrong.path)}: {wrong.message}")
    new = merged_status(status, fields, typed)
    changed = False
    for name in patch.fields:
        raw = new.get(name)
        if same(status.get(name), raw):
            continue
        changed = True
        status.pop(name, None)
        if raw is not None:
            status[name] = raw
    return changed


def _stamp_deleted(view: View, kind: str, draft: Draft, now: float) -> Change:
    """The object asked to go: it goes if nothing holds it any more."""
    revision, version = view.next_version()
    draft.metadata["resourceVersion"] = version
    if not draft.metadata.get("deleted"):
        draft.metadata["deleted"] = max(now, 1e-6)  # 0 means: not asked for
    row = _row(kind, draft)
    return Change(revision, "Modified" if draft.metadata.get("finalizers") else "Deleted", row)


def _removal(view: View, kind: str, draft: Draft, now: float) -> Outcome:
    """The end of an object that has no finalizers, and of what it owns, owners first."""
    changes = [_stamp_deleted(view, kind, draft, now)]
    seen = {changes[0].row.uid}
    for change in changes:  # grows while it is walked: what goes may own others
        if change.type != "Deleted":
            continue
        for row in view.owned_by(change.row.uid):
            if row.uid in seen:
                continue
            seen.add(row.uid)
            owned = Draft(row.document)
            if not (owned.metadata.get("deleted") and owned.metadata.get("finalizers")):
                changes.append(_stamp_deleted(view, row.kind, owned, now))
    return Outcome(changes[0].row.document, tuple(changes))


class Draft:
    """A document being changed. `parts` are its top-level fields but for `metadata`, undecoded."""

    __slots__ = ("metadata", "parts")

    def __init__(self, document: bytes) -> None:
        self.parts: dict[str, msgspec.Raw] = _PARTS.decode(document)
        self.metadata: dict[str, Any] = _ANY.decode(self.parts.pop("metadata"))

    def status(self) -> dict[str, msgspec.Raw]:
        """The fields of the status, undecoded."""
        raw = self.parts.get("status")
        return {} if raw is None or bytes(raw) == b"null" else _PARTS.decode(raw)

    def set_status(self, status: dict[str, msgspec.Raw]) -> None:
        """Put the status back."""
        self.parts["status"] = msgspec.Raw(_PLAIN.encode(status))

    def people_part(self) -> bytes:
        """A document of the metadata and spec alone."""
        return _PLAIN.encode({"metadata": self.metadata, "spec": self.parts["spec"]})

    def seal(self) -> bytes:
        """The document as it is stored."""
        parts: dict[str, Any] = {**self.parts, "metadata": self.metadata}
        ordered = {name: parts[name] for name in _ORDER if name in parts}
        return _PLAIN.encode(ordered | parts)


def same(one: msgspec.Raw | None, other: msgspec.Raw | None) -> bool:
    """Whether two parts say the same, whatever their spacing and order of keys."""
    if one is None or other is None:
        return one is other
    left, right = bytes(one), bytes(other)
    return left == right or _ANY.decode(left) == _ANY.decode(right)


def encoded(value: Any, what: str) -> bytes:  # Any: whatever has a place on the wire
    """Its JSON.

    Raises:
        Invalid: it holds text that has none.
    """
    try:
        return codec.encode(value)
    except UnicodeEncodeError as error:
        raise Invalid(f"{what} holds text that is not Unicode: {error}") from error


def validated(document: bytes, struct: type[Object], what: str) -> Any:  # Any: of that struct
    """The typed object in a document that is about to be stored.

    Raises:
        Invalid: a field has a type or value that could not be read back.
    """
    try:
        return codec.decode(document, struct)
    except msgspec.ValidationError as error:
        raise Invalid(f"{what} is not valid: {error}") from error


def status_of(fields: bytes, struct: type[Object], what: str) -> msgspec.Struct:
    """The status of that kind of object which `fields` (a JSON object) describe.

    Raises:
        Invalid: a field has a type or value that could not be read back.
    """
    try:
        return codec.decode(fields, _status_struct(struct))
    except msgspec.ValidationError as error:
        raise Invalid(f"the status of {what} is not valid: {error}") from error


def merged_status(
    stored: dict[str, msgspec.Raw], fields: bytes, status: msgspec.Struct
) -> dict[str, msgspec.Raw]:
    """The patched `fields` (a JSON object, decoded: `status`) in the form in which they are stored.

    What equals its default is left out, so that writing a default again is seen to change nothing;
    unknown fields, those given and those stored inside the same fields, are kept.
    """
    shape = type(status)
    given = _PARTS.decode(fields)
    before = _PLAIN.encode({name: stored[name] for name in given if name in stored})
    canonical = codec.merge_unknown(fields, codec.encode(status), shape)
    after = _PARTS.decode(codec.merge_unknown(before, canonical, shape))
    return {name: raw for name, raw in after.items() if name in given}


@cache
def _status_struct(struct: type[Object]) -> type[msgspec.Struct]:
    return get_type_hints(struct)["status"]
