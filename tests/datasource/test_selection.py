"""What a read is of: topics by name, by pattern, or single partitions."""

from __future__ import annotations

import pytest

from dledger.config import AUDIT_TOPIC
from dledger.datasource.options.patterns import java_pattern, matches
from dledger.datasource.options.selection import Selection, parse_selection
from dledger.errors import ConfigError, OffsetOutOfRange


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        ("orders-.*", ["orders-", "orders-eu"], ["orders", "my-orders-eu"]),
        ("orders|payments", ["orders", "payments"], ["orders-eu"]),
        (r"\Qa.b\E.*", ["a.b", "a.bc"], ["axb"]),
        (r"\Qa.b", ["a.b"], ["axb"]),
        (r"\p{Alpha}+\p{IsDigit}?".replace("Is", ""), ["a", "abc7"], ["7"]),
        (r"[\p{Lower}_]+", ["a_b"], ["A"]),
        (r"\P{Digit}+", ["abc"], ["a1"]),
        (r"(?<env>dev|prod)-\k<env>", ["dev-dev"], ["dev-prod"]),
        ("(?i)ORDERS", ["orders", "Orders"], ["order"]),
        ("(?!test-).*", ["orders"], ["test-orders"]),
        ("a++b", ["aab"], ["b"]),
        (r"t[0-9&&]".replace("&&", "&"), ["t7", "t&"], ["t"]),
        (r"[]a]x", ["]x", "ax"], ["x"]),
        (r"\w+\z", ["abc"], ["a-c"]),
    ],
)
def test_a_pattern_fits_whole_names_as_in_java(
    pattern: str, fitting: list[str], others: list[str]
) -> None:
    translated = java_pattern("subscribePattern", pattern)
    assert [name for name in fitting + others if matches(translated, name)] == fitting


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("*", "nothing to repeat.*'orders-"),
        ("(a", "unterminated subpattern"),
        ("[a-z&&[^b]]", "an intersection && at position 4"),
        ("[a[bc]]", "a class within a class at position 2"),
        (r"\p{Greek}", "no class .p{Greek}; known: Lower"),
        (r"[\P{Digit}]", "within a class"),
    ],
)
def test_a_pattern_that_python_cannot_match_is_refused_with_an_example(
    pattern: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        java_pattern("subscribePattern", pattern)


def test_a_selection_is_by_name_by_pattern_or_of_partitions() -> None:
    assert parse_selection({"subscribe": "a, b,a"}, "") == Selection(("a", "b"))
    assert parse_selection({}, "t") == Selection(("t",))
    assert parse_selection({"assign": '{"a": [0, 2], "b": [1]}'}, "") == Selection(
        ("a", "b"), assigned={"a": frozenset({0, 2}), "b": frozenset({1})}
    )
    by_pattern = parse_selection({"subscribePattern": "a.*"}, "")
    assert (by_pattern.fits("ab"), by_pattern.fits("b")) == (True, False)
    assert not parse_selection({"subscribePattern": ".*"}, "").fits(AUDIT_TOPIC)
    assert parse_selection({"subscribe": AUDIT_TOPIC}, "").fits(AUDIT_TOPIC)
    assert not parse_selection({}, "").given


def test_assigned_partitions_are_picked_from_those_there_are() -> None:
    selection = parse_selection({"assign": '{"a": [0, 2]}'}, "")
    assert selection.part("a", {0: 5, 1: 6, 2: 7}) == {0: 5, 2: 7}
    with pytest.raises(
        OffsetOutOfRange, match="names partition 2 of topic 'a', which has partitions 0 to 1"
    ):
        selection.part("a", {0: 5, 1: 6})


@pytest.mark.parametrize(
    ("given", "topic", "message"),
    [
        (
            {"subscribe": "a", "assign": '{"a": [0]}'},
            "",
            "'subscribe' and 'assign' both.*give one of",
        ),
        (
            {"subscribe": "a", "subscribePattern": "a"},
            "",
            "'subscribe' and 'subscribePattern' both",
        ),
        ({"subscribePattern": "a"}, "t", "leave 'topic' away"),
        ({"subscribe": "a"}, "b", "needs only one"),
        ({"subscribe": "a b"}, "", "topic 'a b'"),
        ({"assign": "a"}, "", "as in"),
        ({"assign": '{"a": [-1]}'}, "", "as in"),
        ({"assign": '{"a": [true]}'}, "", "as in"),
        ({"assign": '{"a": []}'}, "", "as in"),
        ({"assign": '{"a": 1}'}, "", "as in"),
        ({"assign": "{}"}, "", "as in"),
        ({"assign": '{"a b": [1]}'}, "", "topic 'a b'"),
    ],
)
def test_a_selection_that_contradicts_itself_or_says_nothing_is_refused(
    given: dict[str, str], topic: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_selection(given, topic)
