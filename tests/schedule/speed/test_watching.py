"""Curves from looks at jobs while they run."""

from __future__ import annotations

import pytest

from shoal.schedule.speed.watching import Look, Watching


def looks(watching: Watching, job: str, *seen: tuple[float, int, int], application: str = "") -> None:
    """Each: when, with how many tasks, at which step."""
    for at, tasks, step in seen:
        watching.saw(job, Look(at=at, tasks=tasks, step=step), application)


def test_nobody_knows_what_was_never_seen() -> None:
    watching = Watching()
    assert watching.curve("a", 8) == ()
    looks(watching, "a", (0, 2, 0))
    assert watching.curve("a", 8) == ()


def test_between_two_looks_at_one_size_steps_took_what_has_passed() -> None:
    """Ten steps in five seconds with two tasks, then ten in four with four."""
    watching = Watching()
    looks(watching, "a", (0, 2, 0), (5, 2, 10))
    assert watching.curve("a", 8) == pytest.approx((1, 2, 3, 4))
    looks(watching, "a", (6, 4, 12), (10, 4, 22))
    curve = watching.curve("a", 8)
    assert (curve[1], curve[3]) == pytest.approx((2, 2.5))
    assert len(curve) == 8


def test_what_lies_across_a_change_or_a_disturbance_is_not_measured() -> None:
    watching = Watching()
    looks(watching, "a", (0, 2, 0), (100, 4, 10), (200, 0, 20), (300, 0, 30))
    watching.saw("a", Look(at=400, tasks=4, step=40, turn=1))
    watching.saw("a", Look(at=500, tasks=4, step=50, turn=2))
    assert watching.curve("a", 8) == ()
    watching.saw("a", Look(at=505, tasks=4, step=60, turn=2))
    assert watching.curve("a", 4)[3] == pytest.approx(2)


def test_few_steps_wait_for_more() -> None:
    """Three, and then seven more: ten in five seconds."""
    watching = Watching()
    looks(watching, "a", (0, 1, 0), (3, 1, 3))
    assert watching.curve("a", 1) == ()
    looks(watching, "a", (5, 1, 10))
    assert watching.curve("a", 1) == pytest.approx((2,))


def test_noise_changes_no_curve_and_a_change_does_in_the_end() -> None:
    watching = Watching()
    looks(watching, "a", (0, 1, 0), (10, 1, 10))
    before = watching.curve("a", 4)
    looks(watching, "a", (20.5, 1, 20), (30, 1, 30), (40.8, 1, 40))
    assert watching.curve("a", 4) == before
    looks(watching, "a", (60.8, 1, 50), (80.8, 1, 60), (100.8, 1, 70), (120.8, 1, 80))
    assert watching.curve("a", 4)[0] == pytest.approx(0.5, rel=0.15)


def test_applications_share_what_their_jobs_have_seen() -> None:
    """A new job knows the whole curve at once; another application's knows nothing."""
    watching = Watching()
    looks(watching, "a", (0, 1, 0), (10, 1, 10), (11, 4, 12), (16, 4, 22), application="bert")
    watching.forget("a")
    assert watching.curve("a", 8) == ()
    found = watching.curve("b", 8, "bert")
    assert (found[0], found[3]) == pytest.approx((1, 2))
    assert watching.curve("b", 8, "other") == ()


def test_a_job_that_is_twice_as_slow_as_others_of_its_application_is_so_at_every_size() -> None:
    watching = Watching()
    looks(watching, "a", (0, 1, 0), (10, 1, 10), (11, 4, 12), (16, 4, 22), application="bert")
    looks(watching, "b", (0, 1, 0), (20, 1, 10))
    assert watching.curve("b", 4, "bert") == pytest.approx(
        [0.5 * each for each in watching.curve("a", 4)]
    )


def test_applications_that_nobody_hears_of_are_forgotten() -> None:
    watching = Watching()
    for number in range(1001):
        looks(watching, f"j{number}", (0, 1, 0), (10, 1, 10), application=f"app{number}")
    assert watching.curve("new", 2, "app0") == ()
    assert watching.curve("new", 2, "app1") != ()


def test_that_more_tasks_are_of_no_use_is_believed_after_a_minute() -> None:
    """Twice as slow with four tasks as with two, for some seconds: it may have been disturbed."""
    watching = Watching()
    looks(watching, "a", (0, 2, 0), (5, 2, 10), (6, 4, 12), (26, 4, 32))
    curve = watching.curve("a", 4)
    assert curve[1] == pytest.approx(2)
    assert list(curve) == sorted(set(curve)), "each task gains something"
    assert curve[3] < 1.1 * curve[1], "and no more than that"
    looks(watching, "a", (66, 4, 72))
    assert watching.curve("a", 4)[3] == pytest.approx(1)


def test_what_was_seen_long_ago_is_doubted_again() -> None:
    """A hundred seconds with four tasks are believed for two thousand, whatever happens with two; then
    four may be tried, and whether they are of use is seen at once."""
    watching = Watching()
    looks(watching, "a", (0, 2, 0), (5, 2, 10), (6, 4, 12), (106, 4, 112), (107, 2, 114))
    looks(watching, "a", (2000, 2, 3900))
    assert watching.curve("a", 4)[3] == pytest.approx(1)
    looks(watching, "a", (2200, 2, 4300))
    curve = watching.curve("a", 4)
    assert curve[1] < curve[2] < curve[3] < 1.1 * curve[1]
    looks(watching, "a", (2201, 4, 4302), (2211, 4, 4312))
    assert watching.curve("a", 4)[3] == pytest.approx(1)


def test_sizes_that_nobody_saw_are_hoped_to_gain_something() -> None:
    """With two tasks as fast as with one: by the formula four would be slower still."""
    watching = Watching()
    looks(watching, "a", (0, 1, 0), (100, 1, 100), (101, 2, 101), (201, 2, 196))
    curve = watching.curve("a", 4)
    assert curve[1] < curve[0]
    assert curve[1] < curve[2] < curve[3]
