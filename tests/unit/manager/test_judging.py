"""A node is gone when nobody listens on its queue for long enough, and only if somebody ever did."""

from __future__ import annotations

from canoa.manager.probing import Looks, judge


def verdicts(*looks: tuple[int | None, float], known: Looks | None = None) -> list[str | None]:
    told = []
    known = known or Looks()
    for consumers, now_s in looks:
        known, why = judge(known, consumers, now_s)
        told.append(why)
    return told


def test_a_queue_that_vanished_is_a_node_that_is_gone() -> None:
    assert verdicts((1, 0), (None, 2)) == [None, "its queue does not exist"]


def test_a_queue_that_nobody_ever_listened_on_says_nothing() -> None:
    assert verdicts((None, 0), (0, 2), (0, 20), (None, 40)) == [None] * 4


def test_a_deserted_queue_has_time_for_a_reconnect() -> None:
    assert verdicts((1, 0), (0, 2), (0, 4), (0, 6)) == [None, None, None, "nobody listens on its queue"]


def test_whoever_comes_back_in_between_is_not_gone() -> None:
    assert verdicts((1, 0), (0, 2), (1, 4), (0, 6), (0, 8)) == [None] * 5


def test_a_worker_of_ours_has_its_queue_from_the_start() -> None:
    assert verdicts((None, 0), known=Looks(was_heard=True)) == ["its queue does not exist"]
