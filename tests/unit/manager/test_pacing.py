"""A flood of wishes is one at once, then one per pause, and one after the last."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from canoa.manager.pacing import Pacer


def test_the_first_is_done_at_once_and_the_rest_as_one_after_the_pause() -> None:
    pacer = Pacer[str](1.0)

    assert [pacer.want("a", 0.001 * n) for n in range(1000)] == [True] + [False] * 999
    assert pacer.due(0.9999) == []
    assert pacer.due(1.0) == ["a"]
    assert pacer.due(2.0) == []


def test_what_nobody_wants_again_is_forgotten() -> None:
    pacer = Pacer[str](1.0)
    pacer.want("a", 0.0)

    assert pacer.next_s() == 1.0
    assert pacer.due(1.0) == []
    assert pacer.next_s() is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 0.5)), max_size=60))
def test_each_key_is_done_after_its_last_wish_and_never_twice_within_the_pause(wishes: list[tuple[str, float]]) -> None:
    pacer, now_s = Pacer[str](1.0), 0.0
    done: dict[str, list[float]] = {key: [] for key in "abc"}
    wished: dict[str, float] = {}
    for key, pause_s in wishes:
        now_s += pause_s
        for due in pacer.due(now_s):
            done[due].append(now_s)
        wished[key] = now_s
        if pacer.want(key, now_s):
            done[key].append(now_s)
    while (next_s := pacer.next_s()) is not None:
        for due in pacer.due(next_s):
            done[due].append(next_s)

    for key, at_s in wished.items():
        assert done[key][-1] >= at_s
    for times_s in done.values():
        assert all(later - earlier >= 0.999 for earlier, later in pairwise(times_s))
