"""What is still to be passed on: what was sent least goes first, and nothing is sent for ever."""

from __future__ import annotations

from shoal.elastic.detect.swim.messages import Alive, Dead, Suspect, encode

__all__ = ["Gossip", "News"]

News = Alive | Suspect | Dead


class Gossip:
    """At most one piece of news about each member: a later one takes the place of an earlier."""

    def __init__(self) -> None:
        self._queue: dict[str, tuple[int, int, bytes]] = {}
        self._added = 0

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, news: News) -> None:
        """To be spread from now on."""
        self._added += 1
        self._queue[news.name] = (0, -self._added, encode(news))

    def take(self, room_bytes: int, transmits: int) -> list[bytes]:
        """Messages for one packet, each with its comma in the room; counted as sent once more."""
        if not self._queue:
            return []
        taken: list[bytes] = []
        # of those that were sent equally often the newest goes first
        for sent, age, encoded, name in sorted((*entry, name) for name, entry in self._queue.items()):
            if len(encoded) + 1 > room_bytes:
                continue
            room_bytes -= len(encoded) + 1
            taken.append(encoded)
            if sent + 1 >= transmits:
                del self._queue[name]
            else:
                self._queue[name] = (sent + 1, age, encoded)
        return taken
