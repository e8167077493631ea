"""What the common options of a command line amount to: home, context, namespace, output; and a client of
that server.

Filled in by option callbacks while Click parses, read by the verbs afterwards. Precedence: flag, then
`SHOAL_*` variable, then the context, then the default.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from shoal.cli import contexts

if TYPE_CHECKING:
    from shoal.client import Client

Output = Literal["table", "wide", "json", "yaml", "name", "csv"]
OUTPUTS: tuple[Output, ...] = ("table", "wide", "json", "yaml", "name", "csv")


@dataclass
class Settings:
    """The choices of one invocation; an empty string means "not said"."""

    home_flag: str = ""
    context_flag: str = ""
    namespace_flag: str = ""
    output: Output = "table"
    debug: bool = False

    @property
    def context(self) -> contexts.Context:
        """The chosen context; the local cluster under `home` where none is named.

        Raises:
            NotFound: no such context.
            Invalid: the file of contexts cannot be read.
        """
        named = self.context_flag or os.environ.get("SHOAL_CONTEXT", "")
        if not named and (self.home_flag or os.environ.get("SHOAL_HOME", "")):
            return contexts.Context()  # a home was said, so the file's current context is not meant
        return contexts.chosen(named)

    @property
    def home(self) -> Path:
        """The folder that holds the local cluster's state."""
        said = self.said_home
        return Path(said).expanduser().absolute() if said else Path.home() / ".shoal"

    @property
    def said_home(self) -> str:
        """The home as the user named it; empty: not named."""
        return self.home_flag or self.context.home or os.environ.get("SHOAL_HOME", "")

    @property
    def remote(self) -> bool:
        """Whether the server is not this machine's own: one with an address, or, inside a task, the
        platform that runs it."""
        if self.home_flag:
            return False
        return bool(self.context.url or (not self.said_home and os.environ.get("SHOAL_API")))

    @property
    def namespace(self) -> str:
        """The namespace of objects named without one."""
        return (
            self.namespace_flag
            or os.environ.get("SHOAL_NAMESPACE", "")
            or self.context.namespace
            or "default"
        )

    def spelt(self, words: str) -> str:
        """A command line that means the same server and namespace as this one: for hints."""
        flags = [
            f"{flag} {value}"
            for flag, value in (
                ("--home", self.home_flag),
                ("--context", self.context_flag),
                ("-n", self.namespace_flag),
            )
            if value
        ]
        return " ".join(["shoal", *flags, words])

    @property
    def machine_readable(self) -> bool:
        """Whether stdout is for a program: then nothing but the document goes there."""
        return self.output in ("json", "yaml", "name", "csv")

    def guess_from(self, arguments: list[str]) -> None:
        """Take `--debug` and the output from unparsed words, for errors raised while parsing."""
        words = arguments[: arguments.index("--")] if "--" in arguments else arguments
        self.debug = self.debug or "--debug" in words
        if "--json" in words:
            self.output = "json"
        for word, following in pairwise([*words, ""]):
            value = following if word in ("-o", "--output") else ""
            for prefix in ("--output=", "-o"):
                if not value and word.startswith(prefix):
                    value = word.removeprefix(prefix).removeprefix("=")
            if value in OUTPUTS:
                self.output = value


def connect(settings: Settings, *, timeout_seconds: float = 30.0, check_version: bool = True) -> Client:
    """A client; nothing is sent before its first call.

    Raises:
        NotFound: no such context.
        Invalid: the context is wrong.
    """
    from shoal.client import Client

    options: _Options = {"timeout_seconds": timeout_seconds, "check_version": check_version}
    if settings.remote:
        context = settings.context
        client = Client.connect(
            url=context.url, token=context.token, fingerprint=context.fingerprint, **options
        )
    else:
        client = Client.connect(settings.home, **options)
    client.transport.on_warning = _Once()
    return client


class _Options(TypedDict):
    timeout_seconds: float
    check_version: bool


class _Once:
    """Says each of the server's warnings once: what is shown before it is done is said again when it is
    done."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            from shoal.cli.output import say

            say(f"warning: {sentence}")
