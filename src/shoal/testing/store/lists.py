"""Listing: order, pages, namespaces and selectors."""

from __future__ import annotations

import pytest

from shoal.objects.errors import Expired, Invalid
from shoal.objects.kinds import JOB, NODE, QUEUE
from shoal.store.backend import Window
from shoal.store.base import SYSTEM, Store
from shoal.testing.store.harness import Rules, StoreHarness, collect, job, names, needs, opened

__all__ = ["ListRules"]


class ListRules(Rules):
    """Rules of `list`."""

    def test_an_empty_list_has_a_version_to_watch_from(self, store: Store) -> None:
        page = store.list(JOB, actor=SYSTEM)
        assert (page.records, page.cursor, page.remaining) == ((), "", 0)
        watch = store.watch(JOB, actor=SYSTEM, version=page.version)
        store.create(job("a"), actor=SYSTEM)
        collect(watch, 1)
        watch.close()

    def test_objects_come_by_namespace_and_name(self, store: Store) -> None:
        for namespace, name in (
            ("b", "a"),
            ("a", "z"),
            ("a-b", "m"),
            ("a", "b"),
            ("a", "b-1"),
            ("a", "b1"),
        ):
            store.create(job(name, namespace), actor=SYSTEM)
        keys = [record.object.key for record in store.list(JOB, actor=SYSTEM).records]
        assert keys == sorted(keys)
        assert len(keys) == 6
        assert names(store.list(JOB, actor=SYSTEM, namespace="a")) == ["b", "b-1", "b1", "z"]
        assert store.list(JOB, actor=SYSTEM, namespace="none").records == ()
        assert store.list(QUEUE, actor=SYSTEM).records == ()

    def test_pages_cover_everything_once(self, store: Store) -> None:
        for number in range(25):
            store.create(job(f"j{number:02}", f"n{number % 3}"), actor=SYSTEM)
        whole = [record.object.key for record in store.list(JOB, actor=SYSTEM).records]
        for limit in (1, 7, 24, 25, 26):
            found: list[tuple[str, str]] = []
            cursor = ""
            while True:
                page = store.list(JOB, actor=SYSTEM, limit=limit, cursor=cursor)
                found += [record.object.key for record in page.records]
                assert page.remaining == 25 - len(found)
                cursor = page.cursor
                if not cursor:
                    break
                assert len(page.records) == limit
            assert found == whole

    def test_pages_of_one_namespace(self, store: Store) -> None:
        for number in range(6):
            store.create(job(f"j{number}", "a"), actor=SYSTEM)
            store.create(job(f"j{number}", "b"), actor=SYSTEM)
        first = store.list(JOB, actor=SYSTEM, namespace="a", limit=4)
        assert first.remaining == 2
        second = store.list(JOB, actor=SYSTEM, namespace="a", limit=4, cursor=first.cursor)
        assert names(second) == ["j4", "j5"]
        assert second.cursor == ""

    def test_pages_carry_the_first_ones_version(self, store: Store) -> None:
        """A watch from there delivers all changes made while the pages were read."""
        for number in range(4):
            store.create(job(f"j{number}"), actor=SYSTEM)
        first = store.list(JOB, actor=SYSTEM, limit=2)
        store.delete(JOB, "default", "j0", actor=SYSTEM)
        store.create(job("j0a"), actor=SYSTEM)
        second = store.list(JOB, actor=SYSTEM, limit=2, cursor=first.cursor)
        assert names(second) == ["j2", "j3"]
        assert second.version == first.version
        watch = store.watch(JOB, actor=SYSTEM, version=second.version)
        assert [event.type for event in collect(watch, 2)] == ["Deleted", "Added"]
        watch.close()

    def test_selectors(self, store: Store) -> None:
        store.create(job("a", labels={"team": "x", "app.example/tier": "front"}), actor=SYSTEM)
        store.create(job("b", labels={"team": "y"}), actor=SYSTEM)
        store.create(job("c", labels={"team": "", "other": "1"}), actor=SYSTEM)
        store.create(job("d"), actor=SYSTEM)
        for selector, wanted in (
            ("", "abcd"),
            ("team=x", "a"),
            ("team!=x", "bcd"),
            ("team", "abc"),
            ("!team", "d"),
            ("team=", "c"),
            ("team in (x,y)", "ab"),
            ("team notin (x,y)", "cd"),
            ("app.example/tier=front", "a"),
            ("team,other=1", "c"),
            ("team=x,team=y", ""),
        ):
            found = names(store.list(JOB, actor=SYSTEM, selector=selector))
            assert found == list(wanted), selector

    def test_pages_of_a_selection(self, store: Store) -> None:
        for number in range(20):
            store.create(job(f"j{number:02}", labels={"odd": str(number % 2)}), actor=SYSTEM)
        page = store.list(JOB, actor=SYSTEM, selector="odd=1", limit=4)
        assert names(page) == ["j01", "j03", "j05", "j07"]
        assert page.remaining == 6
        page = store.list(JOB, actor=SYSTEM, selector="odd=1", limit=6, cursor=page.cursor)
        assert names(page) == ["j09", "j11", "j13", "j15", "j17", "j19"]
        assert (page.cursor, page.remaining) == ("", 0)

    def test_a_changed_label_is_selected_by(self, store: Store) -> None:
        from shoal.testing.store.writes import edited

        made = store.create(job("a", labels={"team": "x"}), actor=SYSTEM)
        store.update(edited(made, labels={"team": "y"}), actor=SYSTEM)
        assert names(store.list(JOB, actor=SYSTEM, selector="team=x")) == []
        assert names(store.list(JOB, actor=SYSTEM, selector="team=y")) == ["a"]

    def test_what_cannot_be_read_is_refused(self, store: Store) -> None:
        for selector in ("a=b=c", "in (", "a in b", ",,"):
            with pytest.raises(Invalid):
                store.list(JOB, actor=SYSTEM, selector=selector)
        for cursor in ("nonsense", "x", "e30", "WzEsMiwzXQ"):
            with pytest.raises(Invalid):
                store.list(JOB, actor=SYSTEM, cursor=cursor)
        with pytest.raises(Invalid):
            store.list(NODE, actor=SYSTEM, limit=-1)

    @needs("window")
    def test_a_cursor_expires_with_its_version(self, harness: StoreHarness) -> None:
        with opened(harness, window=Window(count=8)) as store:
            store.create(job("a"), actor=SYSTEM)
            store.create(job("b"), actor=SYSTEM)
            page = store.list(JOB, actor=SYSTEM, limit=1)
            for number in range(30):
                store.create(job(f"j{number}"), actor=SYSTEM)
            with pytest.raises(Expired):
                store.list(JOB, actor=SYSTEM, limit=1, cursor=page.cursor)
