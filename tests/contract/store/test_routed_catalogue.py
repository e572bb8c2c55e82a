"""Plans by name, nodes with the catalogue's versions, and their circuit breakers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.contract.store.routed_words import CHAIN, FETCH, SINGLE
from tests.contract.store.words import NOW_MS

from canoa.execution.health import BreakerSettings, Sign
from canoa.execution.plan import FromInput, Given, Plan, Step
from canoa.store.routed_port import BreakerRow, HealthNote, NodeRow
from canoa.vocabulary import Layer, NodeId
from canoa.wire.sapparchi import ActionLimits

if TYPE_CHECKING:
    from tests.contract.store.conftest import OpenStore

    from canoa.store.routed_port import FullStore

GW7, GW8 = NodeId("gw-7"), NodeId("gw-8")


def node(node_id: str, **fields: Any) -> NodeRow:
    return NodeRow(**{"node_id": NodeId(node_id), "layer": Layer.FOG, "seen_ms": NOW_MS, **fields})


def note(sign: Sign, *, node_id: NodeId = GW7, after_ms: int = 0, is_about_node: bool = False) -> HealthNote:
    return HealthNote(node_id=node_id, action=FETCH, sign=sign, is_about_node=is_about_node, now_ms=NOW_MS + after_ms)


# --- Plans ------------------------------------------------------------------------------------------------


async def test_a_plan_is_found_by_its_name(store: FullStore) -> None:
    values: dict[str, Any] = {"b": [1, None], "a": {"x": 1.5}}
    plan = Plan(
        name="full",
        steps=(
            Step(name="one", action=FETCH, arguments={"z": Given(values), "a": FromInput()}, retries=0, timeout_s=0.5),
        ),
        output="one",
    )

    assert await store.put_plan(plan, now_ms=NOW_MS)

    assert await store.plan("full") == plan
    assert await store.plan("other") is None


async def test_registering_the_same_plan_again_says_so(store: FullStore) -> None:
    await store.put_plan(CHAIN, now_ms=NOW_MS)

    assert not await store.put_plan(CHAIN, now_ms=NOW_MS + 1)


async def test_a_name_may_get_another_plan(store: FullStore) -> None:
    other = Plan(name="chain", steps=CHAIN.steps[:1])
    await store.put_plan(CHAIN, now_ms=NOW_MS)

    assert await store.put_plan(other, now_ms=NOW_MS)

    assert await store.plan("chain") == other
    assert await store.put_plan(CHAIN, now_ms=NOW_MS)


async def test_plans_are_listed_by_name(store: FullStore) -> None:
    for plan in (SINGLE, CHAIN):
        await store.put_plan(plan, now_ms=NOW_MS)

    assert await store.plans() == [CHAIN, SINGLE]
    assert await store.plan_names(limit=5) == [CHAIN.name, SINGLE.name]
    assert await store.plan_names(limit=1) == [CHAIN.name]


# --- Nodes ------------------------------------------------------------------------------------------------


async def test_a_node_is_kept_as_it_is(store: FullStore) -> None:
    full = node(
        "gw-7",
        actions=(FETCH,),
        site="natal",
        endpoint="10.0.0.7",
        instance="i",
        token="t",
        limits={FETCH: ActionLimits(timeout=1000, retry=1)},
        load=0.5,
        registered_ms=NOW_MS,
    )

    assert (await store.put_nodes([full])).version == 1

    (kept,) = await store.nodes()
    assert (kept.version, kept.limits, kept.site, kept.token) == (1, full.limits, "natal", "t")


async def test_the_token_that_one_start_of_a_node_was_given_first_stays_and_another_start_has_its_own(
    open_store: OpenStore,
) -> None:
    stores = [await open_store() for _ in range(2)]

    async def put(store: FullStore, instance: str, token: str) -> str:
        await store.put_nodes([node("gw-7", instance=instance, token=token)])
        [kept] = await store.nodes()
        return kept.token

    given = [await put(each, "i1", token) for each, token in zip(stores, ("first", "second"), strict=True)]

    assert given == ["first", "first"]
    assert await put(stores[0], "i2", "third") == "third"


async def test_every_change_has_the_next_version(store: FullStore) -> None:
    assert (await store.put_nodes([node("gw-7"), node("gw-8")])).version == 2
    assert (await store.put_nodes([node("gw-7", site="natal")])).version == 3

    assert [(each.node_id, each.version) for each in await store.nodes(since=1)] == [("gw-8", 2), ("gw-7", 3)]
    assert await store.nodes(since=3) == []
    assert (await store.put_nodes([])).version == 3


async def test_a_version_is_never_used_twice(store: FullStore) -> None:
    await store.put_nodes([node("gw-7")])
    await store.forget_nodes(seen_before_ms=NOW_MS + 1)

    assert (await store.put_nodes([node("gw-8")])).version == 2


async def test_a_node_twice_in_one_group_is_kept_as_it_was_last(store: FullStore) -> None:
    await store.put_nodes([node("gw-7", site="old"), node("gw-7", site="new")])

    assert [(each.site, each.version) for each in await store.nodes()] == [("new", 2)]


async def test_versions_of_several_managers_never_meet(open_store: OpenStore) -> None:
    stores = [await open_store() for _ in range(4)]

    async def put(number: int) -> list[int]:
        return [(await stores[number].put_nodes([node(f"n-{number}-{at}")])).version for at in range(10)]

    found = await asyncio.gather(*map(put, range(4)))

    assert sorted(version for versions in found for version in versions) == list(range(1, 41))


async def test_of_managers_that_write_the_same_node_at_once_one_finds_it_new(open_store: OpenStore) -> None:
    stores = [await open_store() for _ in range(4)]

    found = await asyncio.gather(*(store.put_nodes([node("gw-7", site="natal")]) for store in stores))

    assert sorted(len(put.before) for put in found) == [0, 1, 1, 1]
    assert {each.site for put in found for each in put.before.values()} == {"natal"}


async def test_what_another_manager_has_just_written_of_a_node_is_found_and_not_written_again(store: FullStore) -> None:
    first = node("gw-7", actions=(FETCH,), token="theirs", registered_ms=NOW_MS)
    written = await store.put_nodes([first])
    [stands] = await store.nodes()

    same = await store.put_nodes([node("gw-7", actions=(FETCH,), token="ours", registered_ms=NOW_MS + 1)])

    assert (same.version, list(same.found)) == (written.version, [stands])
    assert await store.nodes() == [stands]


async def test_what_a_manager_knows_is_written_is_written_when_it_says_so_again(store: FullStore) -> None:
    await store.put_nodes([node("gw-7", actions=(FETCH,))])
    [stands] = await store.nodes()

    again = await store.put_nodes([stands])

    assert (again.version, list(again.found)) == (stands.version + 1, [])


async def test_another_word_about_a_node_is_written_whoever_wrote_before(store: FullStore) -> None:
    await store.put_nodes([node("gw-7", actions=(FETCH,))])

    other = await store.put_nodes([node("gw-8", actions=(FETCH,)), node("gw-7", actions=())])

    assert list(other.found) == []
    assert {row.node_id: row.actions for row in await store.nodes()} == {GW7: (), GW8: (FETCH,)}


async def test_a_sign_of_life_is_no_change(store: FullStore) -> None:
    await store.put_nodes([node("gw-7"), node("gw-8")])

    await store.touch_nodes({GW7: NOW_MS + 50, NodeId("nobody"): NOW_MS})

    assert [(each.node_id, each.seen_ms, each.version) for each in await store.nodes()] == [
        ("gw-7", NOW_MS + 50, 1),
        ("gw-8", NOW_MS, 2),
    ]


async def test_nodes_are_dropped_with_their_health_unless_they_changed(store: FullStore) -> None:
    await store.put_nodes([node("gw-7"), node("gw-8")])
    await store.note_health([note(Sign.FAILED), note(Sign.FAILED, node_id=GW8)])
    await store.put_nodes([node("gw-8", site="natal")])

    assert await store.drop_nodes({GW7: 2, GW8: 2, NodeId("nobody"): 2}) == ["gw-7"]

    assert [each.node_id for each in await store.nodes()] == ["gw-8"]
    assert [each.node_id for each in await store.breakers()] == ["gw-8"]


async def test_nodes_that_nobody_has_seen_are_forgotten_with_their_health(store: FullStore) -> None:
    await store.put_nodes([node("gw-7"), node("gw-8", seen_ms=NOW_MS + 100)])
    await store.note_health([note(Sign.FAILED), note(Sign.FAILED, node_id=GW8)])

    assert await store.forget_nodes(seen_before_ms=NOW_MS + 50) == ["gw-7"]

    assert [each.node_id for each in await store.nodes()] == ["gw-8"]
    assert [each.node_id for each in await store.breakers()] == ["gw-8"]


# --- Health -----------------------------------------------------------------------------------------------


async def test_failures_in_a_row_open_a_circuit_that_all_managers_see(open_store: OpenStore) -> None:
    first, second = await open_store(), await open_store()

    await first.note_health([note(Sign.FAILED)])
    await second.note_health([note(Sign.FAILED, after_ms=1)])
    (row,) = (await first.note_health([note(Sign.FAILED, after_ms=2)])).rows

    assert (row.failures, row.down_until_ms) == (3, NOW_MS + 2 + 60_000)
    assert await second.breakers() == [row]


async def test_who_notes_a_failure_hears_how_many_there_were_in_that_moment(open_store: OpenStore) -> None:
    stores = [await open_store() for _ in range(4)]

    found = await asyncio.gather(*(store.note_health([note(Sign.FAILED)]) for store in stores))

    before = [done.before.get((GW7, FETCH)) for done in found]
    assert sorted(0 if row is None else row.failures for row in before) == [0, 1, 2, 3]


async def test_an_answer_closes_the_circuit(store: FullStore) -> None:
    await store.note_health([note(Sign.FAILED)] * 3)

    (row,) = (await store.note_health([note(Sign.OK, after_ms=5)])).rows

    assert row == BreakerRow(node_id=GW7, action=FETCH, changed_ms=NOW_MS + 5)
    assert await store.breakers() == []


async def test_what_changes_nothing_is_not_written(store: FullStore) -> None:
    assert (await store.note_health([note(Sign.OK)])).rows == []
    assert (await store.note_health([])).rows == []
    assert await store.breakers() == []


async def test_a_node_and_its_actions_have_circuits_of_their_own(store: FullStore) -> None:
    await store.note_health([note(Sign.FAILED), note(Sign.FAILED, is_about_node=True)])

    assert [(row.node_id, row.action) for row in await store.breakers()] == [("gw-7", ""), ("gw-7", FETCH)]


async def test_the_numbers_are_settings(store: FullStore) -> None:
    (row,) = (await store.note_health([note(Sign.FAILED)], settings=BreakerSettings(max_failures=1, down_ms=5))).rows

    assert row.down_until_ms == NOW_MS + 5


async def test_signs_noted_at_once_are_all_counted(open_store: OpenStore) -> None:
    stores = [await open_store() for _ in range(4)]

    await asyncio.gather(*(store.note_health([note(Sign.FAILED)]) for store in stores for _ in range(5)))

    (row,) = await stores[0].breakers()
    assert row.failures == 20


# --- Which store it is ------------------------------------------------------------------------------------


async def test_all_who_share_a_store_know_it_by_the_same_number(store: FullStore, open_store: OpenStore) -> None:
    other = await open_store()

    assert await store.identity() == await other.identity() == await store.identity()
