from __future__ import annotations

import msgspec
import pytest

from shoal.objects import errors
from shoal.objects.errors import Conflict, Invalid, Problem, ShoalError, by_code
from shoal.objects.quantities import QuantityError
from shoal.server.middleware import document_of, problem

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, ShoalError) and kind is not ShoalError
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_every_error_survives_the_wire(kind: type[ShoalError]) -> None:
    answer = problem(kind("one sentence", hint="a hint"))
    assert answer.status_code == kind.http_status
    assert answer.media_type == "application/problem+json"
    back = by_code(msgspec.json.decode(bytes(answer.body)))
    assert (type(back), back.message, back.hint) == (kind, "one sentence", "a hint")


def test_a_problem_document_has_the_standards_fields() -> None:
    said = document_of(Conflict("it changed"))
    assert {"type", "title", "status", "detail"} <= said.keys()
    assert (said["title"], said["status"], said["detail"]) == ("Conflict", 409, "it changed")


def test_all_that_is_wrong_goes_along() -> None:
    wrong = Invalid("two things", (Problem("spec.a", "no", 3, 4), Problem("spec.b", "nor this")))
    back = by_code(msgspec.json.decode(bytes(problem(wrong).body)))
    assert isinstance(back, Invalid)
    assert [str(p) for p in back.problems] == ["line 3, column 4: spec.a: no", "spec.b: nor this"]


def test_a_quantity_that_is_none_is_bad_input() -> None:
    assert document_of(QuantityError("'x' is not a size"))["code"] == "Invalid"


def test_who_is_not_known_is_told_how_to_say_it() -> None:
    assert problem(errors.Unauthenticated("who?")).headers["www-authenticate"] == "Bearer"
