"""Secrets: values that are encrypted before they are stored, and decrypted for tasks alone.

A value is sealed with AES-256-GCM under a random nonce; the namespace, the secret's name and the key of
the value are authenticated with it, so that a sealed value cannot be moved to another secret. The
encryption key is kept outside the store, in `keys/secrets.json` (mode 0600, with a copy). No call
returns a value but `for_tasks`, which the rendezvous of tasks uses.

**Rotation** (`rotate`): a new key is added to the file and seals from then on; each secret is sealed
again; then the old keys are removed. A process that dies in between leaves every value readable, since
all keys that seal something are in the file; the next rotation finishes the work. Servers that share a
store need the same key file; it is read again when a value names a key that is not known.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import logging
import secrets
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shoal import faults, statefiles
from shoal.clock import Clock
from shoal.objects.errors import Conflict, Exists, Invalid, NotFound, ShoalError
from shoal.objects.job import Job
from shoal.objects.kinds import SECRET
from shoal.objects.meta import Metadata, is_name
from shoal.objects.nearest import did_you_mean
from shoal.objects.secret import LARGEST_SECRET_BYTES, Secret, SecretSpec, is_key
from shoal.store.authorise import require
from shoal.store.base import SYSTEM, Actor, Store

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_FILE = "secrets.json"
"""In the platform's folder of keys."""

_LOG = logging.getLogger("shoal.server")
_KEY_BYTES = 32
_NONCE_BYTES = 12
_SEAL_BYTES = _NONCE_BYTES + 16
"""What a sealed value has beside the value: the nonce, and the tag of GCM."""
_MOST_ATTEMPTS = 20


class _Keys(msgspec.Struct, frozen=True):
    current: str
    """The id of the key that seals."""
    keys: dict[str, bytes]
    """Every key that something may be sealed with, by its id."""


class SecretKeys:
    """The encryption keys. Not thread-safe: `Secrets` serialises its calls."""

    def __init__(self, folder: Path) -> None:
        """The keys in `folder`, which is the platform's; made when the first value is sealed."""
        self._path, self._copy = folder / KEY_FILE, folder / f"copy.{KEY_FILE}"
        self._keys: _Keys | None = None

    def seal(self, name: str, value: bytes) -> str:
        """The value encrypted for this name, under the current key."""
        keys = self._keys or self._read() or self._add()
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = nonce + _cipher(keys.keys[keys.current]).encrypt(nonce, value, name.encode())
        return f"{keys.current}.{base64.urlsafe_b64encode(sealed).decode()}"

    def unseal(self, name: str, sealed: str) -> bytes:
        """The value that was sealed for this name.

        Raises:
            ShoalError: its key is gone, or it was changed or sealed for another name.
        """
        from cryptography.exceptions import InvalidTag

        identity, _, text = sealed.partition(".")
        if self._keys is None or identity not in self._keys.keys:
            self._read()
        key = self._keys.keys.get(identity) if self._keys is not None else None
        if key is None:
            raise ShoalError(
                f"secret {name} cannot be decrypted: its encryption key {identity} is not in "
                f"{self._path.name}",
                hint="set its values again: shoal secret create --replace",
            )
        try:
            data = base64.b64decode(text, altchars=b"-_", validate=True)
            return _cipher(key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], name.encode())
        except (InvalidTag, binascii.Error, ValueError):
            raise ShoalError(
                f"secret {name} cannot be decrypted: what is stored was changed",
                hint="set its values again: shoal secret create --replace",
            ) from None

    def is_current(self, sealed: str) -> bool:
        """Whether it is sealed with the current key."""
        return self._keys is not None and sealed.partition(".")[0] == self._keys.current

    def add(self) -> str:
        """Make a new key the current one and keep the others; its id."""
        self._read()
        return self._add().current

    def drop_others(self) -> None:
        """Keep the current key alone."""
        if self._keys is not None:
            current = self._keys.current
            self._write(_Keys(current, {current: self._keys.keys[current]}))

    def _read(self) -> _Keys | None:
        self._keys = statefiles.read(self._path, _decode, _LOG.warning, copy=self._copy)
        return self._keys

    def _add(self) -> _Keys:
        identity = secrets.token_hex(4)
        others = self._keys.keys if self._keys is not None else {}
        made = _Keys(identity, {**others, identity: secrets.token_bytes(_KEY_BYTES)})
        self._write(made)
        return made

    def _write(self, keys: _Keys) -> None:
        statefiles.write(self._path, msgspec.json.encode(keys), copy=self._copy)
        self._keys = keys


class Secrets:
    """Every call of a user names its actor and checks its rights. Thread-safe; waits for the store."""

    def __init__(self, store: Store, keys: Path, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._keys = SecretKeys(keys)
        self._lock = threading.Lock()
        """Held from sealing until the write: a rotation must see every value of an older key."""

    def set(
        self,
        namespace: str,
        name: str,
        values: Mapping[str, bytes],
        *,
        replace: bool = False,
        keep: bool = False,
        actor: Actor,
    ) -> tuple[Secret | None, Secret]:
        """Store a secret; with `replace` in place of the one of its name, with `keep` the values are
        set in that one and its other keys stay. The one before, and the new.

        Raises:
            Exists: there is one, and neither `replace` nor `keep` is set.
            Invalid: a name, a key or the size is not allowed.
        """
        require(actor, "secrets", namespace)
        _check(namespace, name, values)
        with self._lock:
            spec = SecretSpec(
                sealed={
                    key: self._keys.seal(_sealed_name(namespace, name, key), value)
                    for key, value in sorted(values.items())
                },
                updated=self._clock.now(),
            )
            for _ in range(_MOST_ATTEMPTS):
                try:
                    old = self._get(namespace, name)
                except NotFound:
                    metadata = Metadata(name=name, namespace=namespace)
                    author = dataclasses.replace(SYSTEM, on_behalf_of=actor.submitter)
                    try:
                        made = Secret(metadata=metadata, spec=spec)
                        return None, self._store.create(made, actor=author)
                    except Exists:
                        continue  # made in between, by another server of the store
                if not (replace or keep):
                    raise Exists(
                        f"secret {name} exists already in namespace {namespace}",
                        hint="--replace sets its values anew",
                    )
                try:
                    new = msgspec.structs.replace(old, spec=_added(old, spec) if keep else spec)
                    return old, self._store.update(new, actor=SYSTEM)
                except (Conflict, NotFound):
                    continue
        raise Conflict(f"secret {name} is written by others at the same time", hint="try again")

    def list(self, namespace: str, *, actor: Actor) -> tuple[Secret, ...]:
        """The secrets of a namespace, sealed."""
        require(actor, "secrets", namespace)
        records = self._store.list(SECRET, namespace=namespace, actor=SYSTEM).records
        return tuple(record.object for record in records)

    def get(self, namespace: str, name: str, *, actor: Actor) -> Secret:
        """One secret, sealed.

        Raises:
            NotFound: there is none; the message names the nearest.
        """
        require(actor, "secrets", namespace)
        return self._get(namespace, name)

    def delete(self, namespace: str, name: str, *, actor: Actor) -> Secret:
        """Remove a secret, at once. Tasks that have its values keep them until they end.

        Raises:
            NotFound: there is none.
        """
        require(actor, "secrets", namespace)
        self._get(namespace, name)
        return self._store.delete(SECRET, namespace, name, actor=SYSTEM).object

    def rotate(self, *, actor: Actor) -> int:
        """Encrypt every secret with a new key and remove the old ones; the number of secrets. Safe to
        interrupt: see the module.

        Raises:
            ShoalError: a value cannot be decrypted; then the old keys are kept.
        """
        require(actor, "server")
        with self._lock:
            self._keys.add()
            faults.point("server.secrets.key.added")
            records = self._store.list(SECRET, actor=SYSTEM).records
            for record in records:
                self._reseal(*record.object.key)
                faults.point("server.secrets.resealed")
            self._keys.drop_others()
            faults.point("server.secrets.keys.dropped")
        return len(records)

    def for_tasks(self, job: Job, role: str) -> tuple[dict[str, str], dict[str, str]]:
        """The variables and the files (name to text) that the tasks of a role are given.

        Raises:
            NotFound: a secret or a key of one does not exist.
            ShoalError: one cannot be decrypted, or is no text.
        """
        env: dict[str, str] = {}
        files: dict[str, str] = {}
        namespace = job.metadata.namespace
        uses = next((each.secrets for each in job.spec.roles if each.name == role), ())
        for use in uses:
            sealed = self._get(namespace, use.name).spec.sealed
            if use.key not in sealed:
                raise NotFound(
                    f"secret {use.name} of namespace {namespace} has no key {use.key}"
                    f"{did_you_mean(use.key, sealed)}"
                )
            name = _sealed_name(namespace, use.name, use.key)
            with self._lock:
                value = self._keys.unseal(name, sealed[use.key])
            try:
                text = value.decode()
            except UnicodeDecodeError:
                raise ShoalError(f"key {use.key} of secret {use.name} is no UTF-8 text") from None
            if use.env and "\0" in text:
                raise ShoalError(f"key {use.key} of secret {use.name} holds a NUL: give it as a file")
            if use.env:
                env[use.env] = text
            if use.file:
                files[use.file] = text
        return env, files

    def _get(self, namespace: str, name: str) -> Secret:
        try:
            return self._store.get(Secret, namespace, name, actor=SYSTEM)
        except NotFound:
            known = self._store.list(SECRET, namespace=namespace, actor=SYSTEM).records
            near = did_you_mean(name, [record.identity.name for record in known])
            raise NotFound(f"there is no secret {name} in namespace {namespace}{near}") from None

    def _reseal(self, namespace: str, name: str) -> None:
        for _ in range(_MOST_ATTEMPTS):
            try:
                old = self._store.get(Secret, namespace, name, actor=SYSTEM)
                if all(self._keys.is_current(sealed) for sealed in old.spec.sealed.values()):
                    return
                sealed = {
                    key: self._keys.seal(at, self._keys.unseal(at, text))
                    for key, text in old.spec.sealed.items()
                    for at in (_sealed_name(namespace, name, key),)
                }
                spec = msgspec.structs.replace(old.spec, sealed=sealed)
                self._store.update(msgspec.structs.replace(old, spec=spec), actor=SYSTEM)
                return
            except NotFound:
                return  # deleted in between
            except Conflict:
                continue
        raise Conflict(f"secret {name} is written by others at the same time", hint="rotate again")


def _cipher(key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # late: it slows down every start

    return AESGCM(key)


def _decode(data: bytes) -> _Keys:
    """Raises:
    ValueError: these are not keys.
    """
    keys = msgspec.json.decode(data, type=_Keys)
    if keys.current not in keys.keys or any(len(each) != _KEY_BYTES for each in keys.keys.values()):
        raise ValueError("the keys are not complete")
    return keys


def _added(old: Secret, new: SecretSpec) -> SecretSpec:
    """The values of both, those of `new` where both have a key.

    Raises:
        Invalid: together they are too large.
    """
    sealed = {**old.spec.sealed, **new.sealed}
    # from the lengths: what is damaged need not be decoded
    size = sum(len(text.partition(".")[2]) * 3 // 4 - _SEAL_BYTES for text in sealed.values())
    _check_size(old.metadata.name, size)
    return msgspec.structs.replace(new, sealed=dict(sorted(sealed.items())))


def _sealed_name(namespace: str, name: str, key: str) -> str:
    return f"{namespace}/{name}/{key}"


def _check(namespace: str, name: str, values: Mapping[str, bytes]) -> None:
    """Raises:
    Invalid: in a sentence that holds no value.
    """
    for what, text in (("namespace", namespace), ("secret", name)):
        if not is_name(text):
            hint = "use lower-case letters, digits and dashes, such as hub-token"
            raise Invalid(f"{text!r} cannot name a {what}", hint=hint)
    if not values:
        raise Invalid(f"secret {name} has no value", hint="give one on standard input or in a file")
    for key in values:
        if not is_key(key):
            raise Invalid(
                f"{key[:60]!r} cannot be a key of a secret",
                hint="use letters, digits, dots, dashes and underscores, such as api_key",
            )
    _check_size(name, sum(map(len, values.values())))


def _check_size(name: str, size: int) -> None:
    if size > LARGEST_SECRET_BYTES:
        most = LARGEST_SECRET_BYTES // 1024
        raise Invalid(f"secret {name} has {size} bytes, and may have {most} KiB")
