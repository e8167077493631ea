"""Users and their tokens: kept in the store, so that they are durable and shared by all servers of it.

A token reads `shoal-user-ID.SECRET`. Its object is named ID and holds the SHA-256 of SECRET (256 random
bits, so a plain hash cannot be searched). It belongs to its user: deleting the user deletes its tokens.
Roles are read with each request, so that a grant, a revocation and an expiry hold from the next one on.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable

import msgspec

from shoal.clock import Clock
from shoal.objects.account import ROLES, TOKEN, USER, Role, RoleBinding, Token, TokenSpec, User, UserSpec
from shoal.objects.errors import Conflict, Forbidden, Invalid, NotFound, Unauthenticated
from shoal.objects.meta import Metadata, OwnerReference, is_name
from shoal.store.authorise import require
from shoal.store.base import SYSTEM, Actor, Store

_PREFIX = "shoal-user-"
_ID = re.compile(r"[0-9a-f]{12}")
_RESERVED = ("system", "job")
_SECRET_BYTES = 32
_MOST_ATTEMPTS = 20
_MOST_BINDINGS = 1000


class Accounts:
    """Every call names its actor and checks its rights. Thread-safe; calls wait for the store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def authenticate(self, text: str) -> Actor:
        """The actor that a user's token stands for, with its roles as they are now.

        Raises:
            Unauthenticated: the token is not valid, was revoked, or has expired.
        """
        name, _, secret = text.removeprefix(_PREFIX).partition(".")
        known = self._token(name) if text.startswith(_PREFIX) and _ID.fullmatch(name) else None
        if known is None or not hmac.compare_digest(_hash(secret), known.spec.sha256):
            raise Unauthenticated("the token is not valid", hint="it may have been revoked")
        if known.spec.expires and known.spec.expires <= self._clock.now():
            raise Unauthenticated("the token has expired", hint="ask for a new one: shoal token create")
        try:
            user = self._store.get(User, "", known.spec.user, actor=SYSTEM)
        except NotFound:
            raise Unauthenticated(f"the user {known.spec.user} of this token is gone") from None
        return actor_of(user)

    def create_user(self, name: str, bindings: tuple[RoleBinding, ...], *, actor: Actor) -> User:
        """Add a user.

        Raises:
            Exists: there is one of this name.
            Invalid: the name is no lower-case name, or is reserved.
            Forbidden: the actor is no cluster-wide admin.
        """
        require(actor, "users")
        if not is_name(name) or name in _RESERVED:
            hint = "use lower-case letters, digits and dashes, such as alice"
            raise Invalid(f"{name!r} cannot name a user", hint=hint)
        for binding in bindings:
            _check_binding(binding)
        metadata = Metadata(name=name, namespace="", submitter=actor.name)
        user = User(metadata=metadata, spec=UserSpec(bindings=bindings))
        return self._store.create(user, actor=SYSTEM)

    def users(self, *, actor: Actor) -> tuple[User, ...]:
        """All users for admins; for others the ones with a role in a namespace that they manage, and
        themselves."""
        _refuse_job(actor)
        found: list[User] = [r.object for r in self._store.list(USER, actor=SYSTEM).records]
        return tuple(user for user in found if _may_see(actor, user))

    def grant(self, name: str, role: Role, namespace: str, *, actor: Actor) -> tuple[User, User]:
        """Bind a role to a user, in place of the one it has in that namespace; the user before and
        after.

        Raises:
            Forbidden: the actor is no manager there, or gives more than it has.
            NotFound: there is no such user.
        """
        binding = RoleBinding(role=role, namespace=namespace)
        _check_binding(binding)
        self._check_grant(actor, role, namespace)

        def change(user: User) -> tuple[RoleBinding, ...]:
            others = tuple(each for each in user.spec.bindings if each.namespace != namespace)
            for each in user.spec.bindings:
                if each.namespace == namespace:  # what is taken away by it has to be the actor's too
                    self._check_grant(actor, each.role, namespace)
            if len(others) >= _MOST_BINDINGS:
                raise Invalid(f"a user has at most {_MOST_BINDINGS} role bindings")
            return (*others, binding)

        return self._edit(name, change)

    def revoke(self, name: str, namespace: str, *, actor: Actor) -> tuple[User, User]:
        """Take a user's role in a namespace ("": the cluster-wide one); the user before and after.

        Raises:
            Forbidden: as `grant`.
            NotFound: there is no such user, or it has no role there.
        """
        self._check_grant(actor, "viewer", namespace)

        def change(user: User) -> tuple[RoleBinding, ...]:
            there = [each for each in user.spec.bindings if each.namespace == namespace]
            if not there:
                where = f"in namespace {namespace}" if namespace else "in the whole cluster"
                raise NotFound(f"user {name} has no role {where}")
            for each in there:
                self._check_grant(actor, each.role, namespace)
            return tuple(each for each in user.spec.bindings if each.namespace != namespace)

        return self._edit(name, change)

    def delete_user(self, name: str, *, actor: Actor) -> User:
        """Remove a user with its tokens, at once.

        Raises:
            NotFound: there is no such user.
        """
        require(actor, "users")
        for token in self._tokens():
            if token.spec.user == name:  # before the user: nothing waits for the cascade
                self._store.delete(TOKEN, "", token.metadata.name, actor=SYSTEM)
        return self._store.delete(USER, "", name, actor=SYSTEM).object

    def create_token(
        self, user: str, description: str, lifetime_seconds: float, *, actor: Actor
    ) -> tuple[Token, str]:
        """A token of a user (the actor's own where empty), and its text, which cannot be shown again.

        Raises:
            Forbidden: it is another user's, and the actor is no admin.
            NotFound: there is no such user.
        """
        name = self._own_or_required(user, actor)
        try:
            owner = self._store.get(User, "", name, actor=SYSTEM)
        except NotFound:
            hint = f"create it first: shoal user create {name} --role ROLE -n NAMESPACE"
            raise NotFound(f"there is no user {name}", hint=hint) from None
        identity, secret = secrets.token_hex(6), secrets.token_urlsafe(_SECRET_BYTES)
        reference = OwnerReference(kind=USER.name, name=name, uid=owner.metadata.uid)
        token = Token(
            metadata=Metadata(name=identity, namespace="", owners=(reference,), submitter=actor.name),
            spec=TokenSpec(
                user=name,
                sha256=_hash(secret),
                description=description,
                expires=self._clock.now() + lifetime_seconds if lifetime_seconds else 0.0,
            ),
        )
        return self._store.create(token, actor=SYSTEM), f"{_PREFIX}{identity}.{secret}"

    def tokens(self, *, actor: Actor) -> tuple[Token, ...]:
        """All tokens for admins, the actor's own for others."""
        if _is_admin(actor):
            return self._tokens()
        _refuse_job(actor)
        return tuple(token for token in self._tokens() if token.spec.user == actor.name)

    def revoke_token(self, name: str, *, actor: Actor) -> Token:
        """Make a token invalid from the next request on.

        Raises:
            NotFound: there is none of this id, or it is another user's.
        """
        _refuse_job(actor)
        token = self._token(name)
        if token is None or not (_is_admin(actor) or token.spec.user == actor.name):
            raise NotFound(f"there is no token {name}", hint="shoal token list shows the ids")
        return self._store.delete(TOKEN, "", name, actor=SYSTEM).object

    def _check_grant(self, actor: Actor, role: Role, namespace: str) -> None:
        if not namespace:
            require(actor, "users")
        require(actor, "grant", namespace)
        if role == "admin" and not _is_admin(actor):
            raise Forbidden("giving and taking the role admin needs the role admin")

    def _own_or_required(self, user: str, actor: Actor) -> str:
        _refuse_job(actor)
        if user and user != actor.name:
            require(actor, "tokens")
        return user or actor.name

    def _edit(self, name: str, change: Callable[[User], tuple[RoleBinding, ...]]) -> tuple[User, User]:
        for _ in range(_MOST_ATTEMPTS):
            before = self._store.get(User, "", name, actor=SYSTEM)
            bindings = tuple(sorted(change(before), key=lambda each: each.namespace))
            after = msgspec.structs.replace(before, spec=UserSpec(bindings=bindings))
            try:
                return before, self._store.update(after, actor=SYSTEM)
            except Conflict:
                continue
        raise Conflict(f"user {name} is being changed by others", hint="try again")

    def _token(self, name: str) -> Token | None:
        try:
            return self._store.get(Token, "", name, actor=SYSTEM)
        except NotFound:
            return None

    def _tokens(self) -> tuple[Token, ...]:
        return tuple(record.object for record in self._store.list(TOKEN, actor=SYSTEM).records)


def actor_of(user: User) -> Actor:
    """The actor that a user is, with its roles."""
    bindings = user.spec.bindings
    return Actor(
        user.metadata.name,
        tuple(each.role for each in bindings if not each.namespace),
        bindings=tuple((each.namespace, each.role) for each in bindings if each.namespace),
    )


def _check_binding(binding: RoleBinding) -> None:
    if binding.role not in ROLES:
        raise Invalid(f"there is no role {binding.role!r}", hint=f"the roles are {', '.join(ROLES)}")
    if binding.namespace and not is_name(binding.namespace):
        raise Invalid(f"{binding.namespace!r} cannot name a namespace")
    if binding.namespace and binding.role == "admin":
        raise Invalid("the role admin is cluster-wide", hint="a namespace has managers")


def _refuse_job(actor: Actor) -> None:
    if actor.job is not None:
        raise Forbidden("the token of a job does not allow users and tokens")


def _is_admin(actor: Actor) -> bool:
    return "admin" in actor.roles or "system" in actor.roles


def _may_see(actor: Actor, user: User) -> bool:
    if _is_admin(actor) or user.metadata.name == actor.name:
        return True
    managed = {space for space, role in actor.bindings if role == "manager"}
    spaces = {each.namespace for each in user.spec.bindings}
    return bool("manager" in actor.roles or managed & spaces)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
