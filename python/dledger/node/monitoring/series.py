"""Series with names that users choose: so many of them, and the rest summed as `OTHER`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dledger.node.monitoring.families import OTHER


class Named:
    """Which names have series of their own: the first ones that are seen, until they are deleted.
    One that was among the others before stays there, so that no counter of theirs goes back."""

    def __init__(self, most: int) -> None:
        self._most: Final = most
        self._own: set[str] = set()
        self._others: set[str] = set()

    def own(self, names: Mapping[str, object]) -> set[str]:
        """Those of ``names``, which are all that there are, with series of their own."""
        self._own &= names.keys()
        self._others &= names.keys()
        for name in names:
            if name in self._own or name in self._others:
                continue
            if name != OTHER and len(self._own) < self._most:
                self._own.add(name)
            else:
                self._others.add(name)
        return self._own


class Counted:
    """One counter by name. The sum of the others never falls, although some are deleted."""

    def __init__(self, named: Named) -> None:
        self._named = named
        self._last: dict[str, int] = {}
        self._sum = 0

    def series(self, values: Mapping[str, int]) -> dict[str, float]:
        """The series of this scrape; ``values``: all that there are."""
        own = self._named.own(values)
        rest = {name: value for name, value in values.items() if name not in own}
        self._sum += sum(max(0, value - self._last.get(name, 0)) for name, value in rest.items())
        self._last = rest
        found: dict[str, float] = {name: values[name] for name in values if name in own}
        if rest or self._sum:
            found[OTHER] = self._sum
        return found
