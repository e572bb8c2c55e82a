"""Topic and headers matching against slow, obvious references."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.broker.port import Binding, Exchange, ExchangeKind, HeaderValue
from canoa.broker.routing import CACHED_KEYS, Router, headers_match, topic_matches

words = st.sampled_from(["a", "b", ""])
keys = st.lists(words, max_size=6).map(".".join)
patterns = st.lists(st.one_of(words, st.sampled_from(["*", "#"])), max_size=6).map(".".join)


def matches_by_definition(pattern: list[str], key: list[str]) -> bool:
    match pattern:
        case []:
            return not key
        case ["#", *rest]:
            return any(matches_by_definition(rest, key[taken:]) for taken in range(len(key) + 1))
        case [word, *rest]:
            return bool(key) and word in ("*", key[0]) and matches_by_definition(rest, key[1:])
    raise AssertionError(pattern)


@given(patterns, keys)
def test_topics_match_as_defined(pattern: str, key: str) -> None:
    expected = matches_by_definition(
        pattern.split(".") if pattern else [],
        key.split(".") if key else [],
    )

    assert topic_matches(pattern, key) is expected


def test_a_hostile_pattern_is_decided_quickly() -> None:
    assert not topic_matches(".".join(["#", "a"] * 60), ".".join(["a"] * 120 + ["b"]))


names = st.sampled_from(["a", "b", "c", "x-a"])
values: st.SearchStrategy[HeaderValue] = st.sampled_from([1, 2, "1", "2", True, False])
headers = st.dictionaries(names, values, max_size=4)


@given(headers, headers, st.booleans())
def test_headers_match_as_defined(wanted: dict[str, HeaderValue], sent: dict[str, HeaderValue], any_: bool) -> None:
    relevant = {name: value for name, value in wanted.items() if not name.startswith("x-")}
    hits = [name for name, value in relevant.items() if name in sent and repr(sent[name]) == repr(value)]
    expected = bool(hits) if any_ else len(hits) == len(relevant)

    assert headers_match(wanted, sent, match_any=any_) is expected


@given(headers)
def test_a_wanted_none_asks_for_presence(sent: dict[str, HeaderValue]) -> None:
    assert headers_match({"a": None}, sent, match_any=False) is ("a" in sent)


@given(st.lists(patterns, max_size=5), st.lists(keys, max_size=5))
def test_remembered_routes_are_those_of_the_first_time(bound: list[str], sent: list[str]) -> None:
    router = Router()
    for number, pattern in enumerate(bound):
        router.bind(Binding(exchange="amq.topic", queue=f"q{number}", key=pattern))

    first = [router.route("amq.topic", key, {}) for key in sent]

    assert [router.route("amq.topic", key, {}) for key in sent] == first
    assert first == [tuple(f"q{n}" for n, p in enumerate(bound) if topic_matches(p, key)) for key in sent]


def test_routes_stay_right_when_more_keys_come_than_are_remembered() -> None:
    router = Router()
    router.bind(Binding(exchange="amq.topic", queue="q", key="*.even"))

    for number in range(CACHED_KEYS + 10):
        assert router.route("amq.topic", f"{number}.even", {}) == ("q",)
        assert router.route("amq.topic", f"{number}.odd", {}) == ()


@pytest.mark.parametrize("kind", list(ExchangeKind))
def test_a_removed_queue_is_routed_to_no_more(kind: ExchangeKind) -> None:
    router = Router()
    router.declare(Exchange(name="e", kind=kind))
    for queue in ("gone", "stays"):
        router.bind(Binding(exchange="e", queue=queue, key="k"))
    assert router.route("e", "k", {}) == ("gone", "stays")

    router.remove_queue("gone")

    assert router.route("e", "k", {}) == ("stays",)
