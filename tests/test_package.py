"""What the package declares to need, it imports."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
MODULES = {"prometheus-client": "prometheus_client", "pyyaml": "yaml"}


def test_every_dependency_of_the_base_install_is_imported():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    sources = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    imported = set(re.findall(r"^\s*(?:import|from) (\w+)", sources, re.MULTILINE))
    names = [re.split("[>=<]", each)[0] for each in project["dependencies"]]
    assert [name for name in names if MODULES.get(name, name) not in imported] == []
