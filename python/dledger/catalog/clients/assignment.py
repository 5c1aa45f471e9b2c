"""Which member of a consumer group is to read which partition: evenly, and with as few moves as
that takes. A pure function of its arguments, in their order, so that every node comes to the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence


def assign(
    subscriptions: Mapping[str, Collection[int]],
    partitions: Sequence[int],
    former: Mapping[int, str],
) -> dict[int, str]:
    """Partition -> member.

    Args:
        subscriptions: the topic ids that each member reads, in the order in which they joined.
        partitions: topic id << 32 | number, in order; those of no member's topics stay without.
        former: the assignment before.
    """
    readers: dict[int, list[str]] = {}
    for member, topics in subscriptions.items():
        for topic in topics:
            readers.setdefault(topic, []).append(member)
    shares: dict[str, list[int]] = {member: [] for member in subscriptions}
    free: list[int] = []
    for key in partitions:
        member = former.get(key, "")
        if member in readers.get(key >> 32, ()):
            shares[member].append(key)
        else:
            free.append(key)
    for key in free:
        if key >> 32 in readers:
            shares[_least(readers[key >> 32], shares)].append(key)
    while _moved(readers, shares):
        pass
    return {key: member for member, keys in shares.items() for key in keys}


def _least(members: Sequence[str], shares: Mapping[str, Sequence[int]]) -> str:
    return min(members, key=lambda member: len(shares[member]))


def _moved(readers: Mapping[int, Sequence[str]], shares: Mapping[str, list[int]]) -> bool:
    """Move one partition from a member with many to one that has at least two fewer; whether there
    was one."""
    for giver in sorted(shares, key=lambda member: -len(shares[member])):
        keys, seen = shares[giver], set[int]()
        for at in range(len(keys) - 1, -1, -1):
            topic = keys[at] >> 32
            if topic in seen:
                continue
            seen.add(topic)
            taker = _least(readers[topic], shares)
            if len(shares[taker]) + 2 <= len(keys):
                shares[taker].append(keys.pop(at))
                return True
    return False
