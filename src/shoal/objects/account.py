"""Users, their roles, and the tokens with which they authenticate.

Both kinds are internal: the routes of `shoal user` and `shoal token` alone read and write them. A token
is stored as its SHA-256; the 256 random bits that it is made of are shown once and kept nowhere.
"""

from __future__ import annotations

from typing import Literal, get_args

from shoal.objects.kind import Kind
from shoal.objects.meta import Namespace, Object, Part, Stamp

__all__ = [
    "ROLES",
    "TOKEN",
    "USER",
    "Role",
    "RoleBinding",
    "Token",
    "TokenSpec",
    "User",
    "UserSpec",
]

Role = Literal["viewer", "user", "manager", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
"""In ascending order: each role may do all that those before it may."""


class RoleBinding(Part, frozen=True, kw_only=True):
    """A role in one namespace, or, with an empty namespace, in the whole cluster."""

    role: Role
    namespace: Namespace = ""


class UserSpec(Part, frozen=True, kw_only=True):
    """The roles of a user."""

    bindings: tuple[RoleBinding, ...] = ()


class User(Object, frozen=True, kw_only=True):
    """A person or a program that may call the API."""

    spec: UserSpec
    kind: str = "User"


class TokenSpec(Part, frozen=True, kw_only=True):
    """The user that a token authenticates, and how long it is valid."""

    user: str
    sha256: str
    """Of the secret part, in hexadecimal."""
    description: str = ""
    expires: Stamp = 0.0
    """0: never."""


class Token(Object, frozen=True, kw_only=True):
    """A bearer token; its name is the part of the token that is no secret."""

    spec: TokenSpec
    kind: str = "Token"


USER = Kind(name="User", plural="users", struct=User, namespaced=False, internal=True)
TOKEN = Kind(name="Token", plural="tokens", struct=Token, namespaced=False, internal=True)
