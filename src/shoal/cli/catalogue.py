"""Which verbs there are, in the order and the groups in which help lists them.

Kept apart from the verbs so that `shoal --help`, completion and "did you mean" import none of them.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click


@dataclass(frozen=True)
class Verb:
    """One verb: `module` holds its Click command under the name `attribute`."""

    module: str
    attribute: str
    section: str
    help: str
    """The first line of the command's own help; a test compares the two."""

    def load(self) -> click.Command:
        """Import the command."""
        return getattr(importlib.import_module(self.module), self.attribute)


def _verb(where: str, section: str, text: str) -> Verb:
    """`where` is a module of this package, and after a colon the command in it if not `command`."""
    module, _, attribute = where.partition(":")
    return Verb(f"shoal.cli.{module}", attribute or "command", section, text)


_START = "Start and stop"
_SEE = "See"
_CHANGE = "Change"
_NODES = "Nodes"
_ACCESS = "Servers and users"
_SELF = "Shoal itself"

VERBS: dict[str, Verb] = {
    "run": _verb("verbs.run", _START, "Run a command as a job and follow it."),
    "search": _verb("verbs.search", _START, "Search for the best parameters of a command."),
    "apply": _verb("verbs.apply", _START, "Create or change objects from YAML files."),
    "up": _verb("offline.up", _START, "Start Shoal on this machine."),
    "down": _verb("offline.up:down", _START, "Stop Shoal on this machine."),
    "get": _verb("verbs.get", _SEE, "List objects, or show some of them."),
    "describe": _verb("verbs.describe", _SEE, "Show one object in full, with its recent events."),
    "explain": _verb("verbs.describe:explain", _SEE, "Say why a job is in the state it is in."),
    "logs": _verb("verbs.logs", _SEE, "Show what a job's tasks have written."),
    "experiment": _verb(
        "verbs.experiment:experiment", _SEE, "Show a search's trials, plots and best parameters."
    ),
    "metrics": _verb("verbs.metrics", _SEE, "Show the metric points that a job has reported."),
    "output": _verb("offline.output_folder", _SEE, "Show where a job's output folder is, or copy it."),
    "events": _verb("verbs.events", _SEE, "Show what happened."),
    "top": _verb("verbs.top", _SEE, "Show what jobs, nodes or queues use."),
    "wait": _verb("verbs.wait", _SEE, "Wait until jobs have finished, or something else is so."),
    "exec": _verb("verbs.exec", _CHANGE, "Run a command beside a task, in its isolation."),
    "port-forward": _verb("verbs.port_forward", _CHANGE, "Reach ports of a task from this machine."),
    "retry": _verb("verbs.edits:retry", _CHANGE, "Submit finished jobs again, as new jobs."),
    "scale": _verb("verbs.edits:scale", _CHANGE, "Change how many tasks a job has."),
    "suspend": _verb("verbs.edits:suspend", _CHANGE, "Stop jobs for now; resume continues them."),
    "resume": _verb("verbs.edits:resume", _CHANGE, "Continue suspended jobs."),
    "cancel": _verb("verbs.edits:cancel", _CHANGE, "End jobs for good; they stay listed."),
    "delete": _verb("verbs.delete", _CHANGE, "Remove objects."),
    "secret": _verb("verbs.secret:secret", _CHANGE, "Store values for tasks; they are never shown."),
    "cordon": _verb("verbs.edits:cordon", _NODES, "Start no new tasks on nodes."),
    "uncordon": _verb("verbs.edits:uncordon", _NODES, "Let tasks start on nodes again."),
    "drain": _verb("verbs.edits:drain", _NODES, "Cordon nodes and move their tasks away."),
    "lost": _verb(
        "verbs.edits:lost", _NODES, "Declare nodes gone, so that their tasks start elsewhere."
    ),
    "convert": _verb("offline.convert", _SELF, "Show manifests of other systems as objects of Shoal."),
    "doctor": _verb("offline.doctor", _SELF, "Check this machine: isolation, versions, disk."),
    "simulate": _verb(
        "offline.simulate", _SELF, "Try scheduling policies on a list of jobs, in virtual time."
    ),
    "replay": _verb(
        "offline.replay", _SELF, "Make recorded decisions again, and show what they do and why."
    ),
    "login": _verb(
        "verbs.login:login", _ACCESS, "Log in to a server over TLS, and make it the current context."
    ),
    "logout": _verb(
        "verbs.login:logout", _ACCESS, "Remove a context with the token that `login` stored."
    ),
    "whoami": _verb("verbs.accounts:whoami", _ACCESS, "Show your name and roles, and the server."),
    "token": _verb(
        "verbs.accounts:token", _ACCESS, "Make, list and revoke tokens for the API over TCP."
    ),
    "user": _verb("verbs.accounts:user", _ACCESS, "Add users and give them roles."),
    "audit": _verb("verbs.accounts:audit", _ACCESS, "Show audit events: one for each write."),
    "config": _verb(
        "verbs.login:config", _ACCESS, "List, change and choose contexts: the servers of this CLI."
    ),
    "version": _verb("verbs.program:version", _SELF, "Show the versions of client and server."),
    "completion": _verb("verbs.program:completion", _SELF, "Print a shell's completion script."),
}
