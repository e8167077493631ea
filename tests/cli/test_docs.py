"""docs/cli.md and the command line say the same."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

import shoal
from shoal.cli import failures
from shoal.cli.catalogue import VERBS
from shoal.client import submit
from shoal.objects import errors

_PAGE = Path(shoal.__file__).parents[2] / "docs" / "cli.md"

pytestmark = pytest.mark.skipif(not _PAGE.exists(), reason="installed without its documentation")


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_and_option_is_there(name: str) -> None:
    page = _PAGE.read_text()
    assert re.search(rf"(`|shoal |### |, ){name}\b", page)
    command: click.Command = VERBS[name].load()
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert any(re.search(rf"`[^`]*{option}\b", page) for option in parameter.opts), (
                parameter.opts
            )


def test_every_exit_code_is_there() -> None:
    page = _PAGE.read_text().split("**Exit codes.**")[1].split("**Ctrl-C**")[0]
    classes = [
        value
        for module in (errors, failures)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, errors.ShoalError)
    ]
    for code in {each.exit_code for each in classes} | {failures.INTERRUPTED, failures.JOB_CANCELLED}:
        assert re.search(rf"\| [^|]*\b{code}\b", page), code


def test_every_variable_that_is_passed_on_is_there() -> None:
    page = _PAGE.read_text()
    for name in (*submit._NAMES, *submit._FAMILIES, *submit._SECRET_WORDS):
        assert re.search(rf"[` ]{name}[` ]", page), name


def test_every_verb_on_the_page_is_one() -> None:
    told = set(re.findall(r"`shoal ([a-z]+(?:-[a-z]+)*)", _PAGE.read_text()))
    assert told <= set(VERBS), told - set(VERBS)
