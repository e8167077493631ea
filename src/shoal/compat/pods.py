"""A pod template of Kubernetes as a role of a Job of Shoal: its main container, run as a process.

Images and volumes are left out with a note; what a process needs and cannot be given here (init
containers, variables taken from elsewhere) is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.compat.documents import Reader, items_of, mapping, texts

__all__ = ["primary", "role_of"]


def primary(
    reader: Reader, path: str, pod: Mapping[str, Any], name: str, *, required: bool = True
) -> dict[str, Any]:
    """The container called `name` (empty: the first). Where it is not `required`, the first stands for
    one that is not there."""
    containers = items_of(pod.get("containers"))
    found = [each for each in containers if each.get("name") == name] if name else containers[:1]
    if not found and not required:
        found = containers[:1]
    if not found:
        names = ", ".join(str(each.get("name")) for each in containers) or "none"
        reader.wrong(path, f"there is no container {name!r} (there are: {names})")
        return {}
    if pod.get("initContainers"):
        reader.wrong(path, "init containers are not supported: do their work in the command")
    if len(containers) > 1:
        reader.note(
            f"only the container {found[0].get('name')} runs, not the {len(containers) - 1} beside it"
        )
    if found[0].get("volumeMounts"):
        reader.note("volumes are not mounted: programs write to $SHOAL_OUTPUT")
    if found[0].get("image"):
        reader.note(f"the image {found[0]['image']} is left out: this cluster runs processes")
    return found[0]


def role_of(
    reader: Reader, path: str, pod: Mapping[str, Any], container: Mapping[str, Any], *,
    may_wait: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """The parts of a role that the pod and its container say; without those that are empty. Unless it
    `may_wait`, it has a program."""
    made: dict[str, Any] = {
        "command": texts(container.get("command")),
        "args": texts(container.get("args")),
        "env": _environment(reader, path, container),
        "workingDirectory": str(container.get("workingDir") or ""),
        "resources": _resources(reader, mapping(container.get("resources"))),
        "nodeSelector": mapping(pod.get("nodeSelector")),
        "tolerations": _tolerations(pod),
    }
    if not made["command"] and container and (made["args"] or not may_wait):
        reader.wrong(f"{path}.command", "the image's own program is not known here: write the command")
    return {name: value for name, value in made.items() if value not in ("", [], {})}


def _environment(reader: Reader, path: str, container: Mapping[str, Any]) -> dict[str, str]:
    made: dict[str, str] = {}
    for variable in items_of(container.get("env")):
        name = str(variable.get("name", ""))
        if "valueFrom" in variable:
            reader.wrong(path, f"the variable {name} has valueFrom: write its value")
        else:
            made[name] = str(variable.get("value", ""))
    if container.get("envFrom"):
        reader.wrong(path, "envFrom is not supported: write the variables in env")
    return made


def _resources(reader: Reader, given: Mapping[str, Any]) -> dict[str, Any]:
    requests, limits = mapping(given.get("requests")), mapping(given.get("limits"))
    made: dict[str, Any] = {}
    if cpu := requests.get("cpu", limits.get("cpu")):
        made["cpu"] = cpu
    if limits.get("cpu"):
        made["cpuLimit"] = limits["cpu"]
    if memory := limits.get("memory", requests.get("memory")):
        made["memory"] = memory
    for name, amount in {**requests, **limits}.items():
        if name == "nvidia.com/gpu":
            made["gpu"] = int(reader.number(amount, f"resources.{name}"))
        elif name not in ("cpu", "memory"):
            reader.note(f"the resource {name} is left out")
    return made


def _tolerations(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for given in items_of(pod.get("tolerations")):
        toleration = {name: given[name] for name in ("key", "effect") if given.get(name)}
        if given.get("operator") != "Exists":
            toleration["value"] = str(given.get("value") or "")
        if given.get("effect") != "PreferNoSchedule":  # nothing is kept away by such a taint here
            made.append(toleration)
    return made
