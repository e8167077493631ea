"""Contexts: named servers, kept in one small file of the user's, `~/.config/shoal/config.toml`.

    current = "lab"                       # used when --context is not given

    [contexts.lab]
    url = "https://shoal.example.org"     # a server that is reached by address
    token-file = "~/.config/shoal/lab.token"
    fingerprint = "9f86d0..."             # SHA-256 of the server's certificate, pinned by `shoal login`
    namespace = "team-a"                  # when -n is not given

    [contexts.scratch]
    home = "~/.shoal-scratch"             # a local cluster with a home of its own

TOML because the standard library reads it in two milliseconds: YAML would cost every verb twenty.
`$SHOAL_CONFIG` names another file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from shoal.objects.errors import Invalid, NotFound

_FIELDS = ("url", "token-file", "namespace", "home", "fingerprint")


@dataclass(frozen=True)
class Context:
    """One named server; an empty `url` means the local cluster under `home`."""

    name: str = ""
    url: str = ""
    token_file: str = ""
    namespace: str = ""
    home: str = ""
    fingerprint: str = ""
    """SHA-256 of the certificate that an https `url` must show."""

    @property
    def token(self) -> str:
        """The token that the file holds; empty where no file is named.

        Raises:
            Invalid: the file cannot be read.
        """
        if not self.token_file:
            return ""
        path = Path(self.token_file).expanduser()
        try:
            return path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Invalid(
                f"the token of context {self.name} cannot be read from {path}: {error}",
                hint=f"correct token-file in {config_file()}",
            ) from error


def config_file() -> Path:
    """Where contexts are kept."""
    said = os.environ.get("SHOAL_CONFIG", "")
    if said:
        return Path(said).expanduser()
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if base else Path.home() / ".config") / "shoal" / "config.toml"


def chosen(name: str) -> Context:
    """The context called `name`, or the file's current one, or the local cluster.

    Raises:
        NotFound: no context is called so.
        Invalid: the file is wrong.
    """
    return _chosen(name, config_file())


def forget() -> None:
    """Read the file anew next time."""
    _chosen.cache_clear()


def everything() -> tuple[str, dict[str, Context]]:
    """The current context's name (empty: none) and all contexts.

    Raises:
        Invalid: the file is wrong.
    """
    return _read(config_file())


def changed(context: Context, fields: dict[str, str]) -> Context:
    """The context with other fields."""
    return replace(context, **fields)


def save(context: Context, *, current: bool) -> None:
    """Add the context, or replace the one of its name; `current` makes it the current one."""
    now, contexts = everything()
    _write(context.name if current else now, {**contexts, context.name: context})


def use(name: str) -> None:
    """Make a context the current one.

    Raises:
        NotFound: there is none of this name.
    """
    _, contexts = everything()
    _known(name, contexts)
    _write(name, contexts)


def remove(name: str) -> None:
    """Remove a context.

    Raises:
        NotFound: there is none of this name.
    """
    current, contexts = everything()
    _known(name, contexts)
    left = {other: each for other, each in contexts.items() if other != name}
    _write("" if current == name else current, left)


def write_private(path: Path, text: str) -> None:
    """Write a file for its owner alone, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)


def _known(name: str, contexts: dict[str, Context]) -> None:
    if name not in contexts:
        known = f"there are {', '.join(sorted(contexts))}" if contexts else "there is none yet"
        raise NotFound(f"no context is called {name}", hint=known)


def _write(current: str, contexts: dict[str, Context]) -> None:
    import json  # its strings are TOML's basic strings

    lines = [f"current = {json.dumps(current)}"] if current else []
    for name, context in contexts.items():
        lines += ["", f"[contexts.{json.dumps(name)}]"]
        for field in _FIELDS:
            if value := getattr(context, field.replace("-", "_")):
                lines.append(f"{field} = {json.dumps(value)}")
    write_private(config_file(), "\n".join(lines).lstrip("\n") + "\n")
    forget()


@cache
def _chosen(name: str, file: Path) -> Context:
    current, contexts = _read(file)
    wanted = name or current
    if not wanted:
        return Context()
    if wanted in contexts:
        return contexts[wanted]
    known = f"it has {', '.join(sorted(contexts))}" if contexts else "there is none yet"
    raise NotFound(f"no context is called {wanted}", hint=f"contexts are kept in {file}; {known}")


def _read(file: Path) -> tuple[str, dict[str, Context]]:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return "", {}
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{file} cannot be read: {error}") from error
    import tomllib

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Invalid(f"{file} is not TOML: {error}") from error
    current: Any = document.get("current", "")
    sections: Any = document.get("contexts", {})
    unknown = sorted(set(document) - {"current", "contexts"})
    if unknown or not isinstance(current, str) or not isinstance(sections, dict):
        found = f"; it has {', '.join(unknown)}" if unknown else ""
        raise Invalid(f"{file} may hold `current`, a name, and `[contexts.NAME]` sections{found}")
    return current, {str(name): _context(file, str(name), entry) for name, entry in sections.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _context(file: Path, name: str, entry: Any) -> Context:
    if not isinstance(entry, dict):
        raise Invalid(f"{file}: contexts.{name} is not a section", hint=f"write [contexts.{name}]")
    fields: dict[str, Any] = entry  # pyright: ignore[reportUnknownVariableType]
    for key, value in fields.items():
        if key not in _FIELDS or not isinstance(value, str):
            raise Invalid(
                f"{file}: contexts.{name}.{key} is not known or not text",
                hint=f"a context may have {', '.join(_FIELDS)}",
            )
    return Context(name=name, **{key.replace("-", "_"): value for key, value in fields.items()})
