"""Finds what in a request a server will not take, so that everything else arrives once.

A refused request is taken apart into leaves, and halves are tried until the refused leaves stand alone. Where that
takes too many requests, a group of leaves (a series; records or spans of one name) is judged by a sample of it, since
such are mostly refused together. A group that was refused as a whole is kept apart from the rest the next time: a
server that refuses everything costs a few requests, not one for each point.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from otel_train.export.leaves import Leaf, put_together, take_apart
from otel_train.export.transport import Answer, Verdict, shortened

# So many requests isolate exactly; what is left then is judged by samples.
EXACT_REQUESTS = 200
# So many of a group refused for one reason, its first and last among them, stand for all of it. Where 60 % are bad in
# no order at all, that misses the good ones once in 3,500 times.
SAMPLE = 16
SAMPLE_OF_KNOWN = 8
# A group is kept apart the next time, once so many of it were refused and none accepted.
LEAST_OF_KNOWN = 8
# After so many groups without one accepted item, what is left of the request is judged as one group.
HOPELESS_GROUPS = 4
# More requests than this for one are never made; what is then not decided is refused.
MAX_REQUESTS = 1000
_MAX_MEMORY = 1000
_LEAST_BYTES = 16_384
_VARIES = re.compile(r"\"[^\"]*\"|'[^']*'|[0-9a-fA-F]{8,}|[-+]?\d[\d.:eE+-]*")


def kind_of_reason(text: str) -> str:
    """Return a server's words without what differs from point to point: numbers, ids, quoted values."""
    return _VARIES.sub("#", text)


@dataclass(slots=True)
class Experience:
    """What earlier requests taught about a destination."""

    max_bytes: int
    largest_accepted_bytes: int = 0
    # Groups that were refused as a whole.
    refused_groups: set[str] = field(default_factory=set)
    # The first words for each kind of reason: a reason with a time in it would be a new one for every point.
    words: dict[str, str] = field(default_factory=dict)

    def reason(self, text: str) -> str:
        """Return the words under which a refusal is counted."""
        kind = kind_of_reason(text)
        if kind not in self.words and len(self.words) >= _MAX_MEMORY:
            return kind
        return self.words.setdefault(kind, text)

    def remember(self, group: str) -> None:
        """Keep a group apart from now on."""
        if len(self.refused_groups) >= _MAX_MEMORY:
            self.refused_groups.clear()
        self.refused_groups.add(group)


class Isolation:
    """The way of one request. `ask` sends parts until they are accepted, refused or too large; it may raise."""

    def __init__(
        self,
        signal: str,
        items: int,
        ask: Callable[[Sequence[bytes]], Answer],
        experience: Experience,
        draw: Callable[[], float],
    ) -> None:
        self.refused = 0
        self.reasons: dict[str, int] = {}
        self.note = ""
        self._signal = signal
        self._items = items
        self._ask_server = ask
        self._experience = experience
        self._draw = draw
        self._asked = 0
        self._any_accepted = False
        self._accepted_groups: set[str] = set()
        self._refused_of_group: dict[str, int] = {}
        self._groups_refused = 0

    def send(self, parts: Sequence[bytes]) -> None:
        """Send parts, in as many requests as it takes, and learn from what was refused."""
        self._send_parts(parts)
        for group, count in self._refused_of_group.items():
            if group in self._accepted_groups:
                self._experience.refused_groups.discard(group)
            elif count >= LEAST_OF_KNOWN:
                self._experience.remember(group)

    def _send_parts(self, parts: Sequence[bytes]) -> None:
        for held in self._chunks(parts):
            if _size(held) > self._experience.max_bytes:
                self._send_leaves(take_apart(self._signal, held))
                continue
            answer = self._ask(held, self._items)
            if answer.verdict is Verdict.REFUSED:
                self._isolate(take_apart(self._signal, held), answer.text)
            elif answer.verdict is Verdict.TOO_LARGE:
                if len(held) > 1:
                    self._send_parts(held[: len(held) // 2])
                    self._send_parts(held[len(held) // 2 :])
                else:
                    self._send_halves(take_apart(self._signal, held), answer.text)

    def _send_leaves(self, leaves: Sequence[Leaf]) -> None:
        if not leaves:
            return
        parts = put_together(self._signal, leaves)
        size = _size(parts)
        if size > self._experience.max_bytes and len(leaves) > 1:
            self._send_halves(leaves, "")
            return
        if size > self._experience.max_bytes:
            self._refuse(leaves, f"too large: more than {self._experience.max_bytes} bytes in one item")
            return
        answer = self._ask(parts, sum(leaf.items for leaf in leaves))
        if answer.verdict is Verdict.REFUSED:
            self._isolate(leaves, answer.text)
        elif answer.verdict is Verdict.TOO_LARGE:
            self._send_halves(leaves, answer.text)
        else:
            self._accepted_groups.update(leaf.group for leaf in leaves)

    def _send_halves(self, leaves: Sequence[Leaf], why: str) -> None:
        if len(leaves) == 1:
            self._refuse(leaves, f"too large: {why}")
            return
        middle = len(leaves) // 2
        self._send_leaves(leaves[:middle])
        self._send_leaves(leaves[middle:])

    def _isolate(self, leaves: Sequence[Leaf], why: str) -> None:
        """Divide leaves that were refused together."""
        if len(leaves) == 1:
            self._refuse(leaves, why)
            return
        if self._asked >= MAX_REQUESTS:
            self._refuse(leaves, shortened(f"too much is refused to find each item of it: {why}"))
            return
        known = [leaf for leaf in leaves if leaf.group in self._experience.refused_groups]
        if known:
            self._send_leaves([leaf for leaf in leaves if leaf.group not in self._experience.refused_groups])
            self._send_leaves(self._judge(known, SAMPLE_OF_KNOWN))
            return
        middle = _middle(leaves)
        if middle and (self._any_accepted or self._groups_refused < HOPELESS_GROUPS):
            self._send_leaves(leaves[:middle])
            self._send_leaves(leaves[middle:])
            return
        rest = leaves if self._asked < EXACT_REQUESTS else self._judge(leaves, SAMPLE)
        self._send_leaves(rest[: len(rest) // 2])
        self._send_leaves(rest[len(rest) // 2 :])

    def _judge(self, leaves: Sequence[Leaf], sample: int) -> list[Leaf]:
        """Try some by themselves. Where all are refused for one reason, so is the rest; else return the rest."""
        taken: set[int] = set()
        kinds: set[str] = set()
        groups = {leaf.group for leaf in leaves}
        answer = Answer(Verdict.ACCEPTED)
        for place in self._spread(len(leaves), sample):
            taken.add(place)
            leaf = leaves[place]
            answer = self._ask(put_together(self._signal, [leaf]), leaf.items)
            if answer.verdict is Verdict.ACCEPTED:
                self._accepted_groups.add(leaf.group)
            else:
                self._refuse([leaf], answer.text)
                kinds.add(kind_of_reason(answer.text))
            if answer.verdict is Verdict.ACCEPTED or len(kinds) > 1:
                self._experience.refused_groups -= groups
                return [leaf for place, leaf in enumerate(leaves) if place not in taken]
        self._groups_refused += 1
        self._refuse([leaf for place, leaf in enumerate(leaves) if place not in taken], answer.text)
        return []

    def _spread(self, count: int, sample: int) -> list[int]:
        """Return places from all over: the last, the first, and one by chance of each stretch between them."""
        if count <= sample:
            return list(range(count))
        stretch = (count - 2) / (sample - 2)
        between = [1 + int((index + self._draw()) * stretch) for index in range(sample - 2)]
        # Two neighbours may fall on one place; one asked twice would be counted twice.
        return list(dict.fromkeys([count - 1, 0, *between]))

    def _ask(self, parts: Sequence[bytes], items: int) -> Answer:
        self._asked += 1
        answer = self._ask_server(parts)
        size = _size(parts)
        learnt = self._experience
        if answer.verdict is Verdict.ACCEPTED:
            self._any_accepted = True
            learnt.largest_accepted_bytes = max(size, learnt.largest_accepted_bytes)
            rejected = min(answer.rejected, items, self._items - self.refused)
            if rejected > 0:
                self._count(rejected, answer.text or "rejected without a reason")
            elif answer.text:
                self.note = answer.text
        elif answer.verdict is Verdict.TOO_LARGE and size > learnt.largest_accepted_bytes:
            learnt.max_bytes = min(learnt.max_bytes, max(size // 2, learnt.largest_accepted_bytes, _LEAST_BYTES))
        return answer

    def _refuse(self, leaves: Sequence[Leaf], why: str) -> None:
        for leaf in leaves:
            self._refused_of_group[leaf.group] = self._refused_of_group.get(leaf.group, 0) + 1
        self._count(min(sum(leaf.items for leaf in leaves), self._items - self.refused), why)

    def _count(self, items: int, why: str) -> None:
        if items > 0:
            reason = self._experience.reason(why)
            self.refused += items
            self.reasons[reason] = self.reasons.get(reason, 0) + items

    def _chunks(self, parts: Sequence[bytes]) -> list[Sequence[bytes]]:
        """Return the parts in groups that fit into a request; a part that does not fit stands alone."""
        if _size(parts) <= self._experience.max_bytes:
            return [parts] if parts else []
        chunks: list[Sequence[bytes]] = []
        held: list[bytes] = []
        size = 0
        for part in parts:
            alone = _size([part])
            if held and size + alone > self._experience.max_bytes:
                chunks.append(held)
                held, size = [], 0
            held.append(part)
            size += alone
        chunks.append(held)
        return chunks


def _size(parts: Sequence[bytes]) -> int:
    """Return the bytes of a JSON body, about; protobuf is never larger."""
    return sum(map(len, parts)) + len(parts) + 32


def _middle(leaves: Sequence[Leaf]) -> int:
    """Return the place between two groups that is nearest to the middle; 0 where there is one group only."""
    half = len(leaves) / 2
    places = [place for place in range(1, len(leaves)) if leaves[place].group != leaves[place - 1].group]
    return min(places, key=lambda place: abs(place - half), default=0)
