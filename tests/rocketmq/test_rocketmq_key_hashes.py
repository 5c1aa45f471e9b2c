"""The hash of a key is Java's, whichever keys were hashed before it."""

from __future__ import annotations

import pytest

from dledger.rocketmq.format.index_file import TAIL, key_hash
from dledger.rocketmq.format.properties import java_hash
from verification.sim.rng import Rng

LETTERS = ("0", "9", "A", "f", " ", "~", "\x7f", "ß", "日", "😀")


@pytest.mark.parametrize("seed", range(4))
def test_the_hash_of_a_key_is_the_same_whatever_was_hashed_before(seed: int) -> None:
    dice = Rng(seed)
    begins = ["", "7F00000100002A139A5518B4", "größe-", "x" * 70]
    for _ in range(2000):
        letters = LETTERS if dice.below(4) == 0 else LETTERS[:7]
        key = dice.pick(begins) + "".join(dice.pick(letters) for _ in range(dice.below(2 * TAIL)))
        topic = dice.pick(("t", "größe", "%RETRY%group"))
        assert key_hash(topic, key) == abs(java_hash(f"{topic}#{key}")), (topic, key)


def test_the_hash_that_has_no_positive_number_is_0() -> None:
    """Java's abs() leaves the lowest number negative."""
    assert java_hash("t#03L?C4I3") == -(1 << 31)
    assert key_hash("t", "03L?C4I3") == 0
    assert key_hash("t", "") == abs(java_hash("t#"))
