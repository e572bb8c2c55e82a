"""`python -m benchmarks.manager`: runs the plan, prints the table, keeps the rows."""

from __future__ import annotations

import argparse
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks import bare, environment, rows, services
from benchmarks.keep.stores import Stores
from benchmarks.manager import contestants, crowd, deciding, limits, plan, scaling, talking
from benchmarks.record import Record, chosen
from benchmarks.rows import LIMIT, OURS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.manager.plan import Sizes
    from benchmarks.processes import Player

CELERY = "celery"
PREFORK = "celery prefork"
RIVALS = [CELERY, LIMIT]
ONE = "one manager"
OF_CELERY = {
    plan.CALL: {CELERY: contestants.CELERY_RPC, PREFORK: contestants.CELERY_PREFORK},
    plan.GATHER: {CELERY: contestants.CELERY_RPC},
    plan.CHAIN: {CELERY: contestants.CELERY_REDIS},
    plan.FANOUT: {CELERY: contestants.CELERY_REDIS},
}
"""By role: who of it plays, by the name that it has in the table."""


class Seat(NamedTuple):
    """One who takes part, and the metrics that its figures count for."""

    name: str
    module: str
    store: str
    metrics: tuple[str, ...]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.manager", description="How fast managers route.")
    parser.add_argument("--only", help=f"metrics, by comma: {','.join(plan.METRICS)}")
    parser.add_argument("--rivals", help=f"peers, by comma: {','.join(RIVALS)}")
    parser.add_argument("--without-ours", action="store_true", help="measure the peers alone")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: tries the harness")
    parser.add_argument("--out", type=Path, default=Path("build/bench/manager.json"), help="default: %(default)s")
    return parser.parse_args()


class OnBroker:
    """What needs a RabbitMQ, and the databases beside it. Each round has a virtual host and a store of its own."""

    def __init__(self, stack: ExitStack, record: Record, sizes: Sizes) -> None:
        self._node = stack.enter_context(services.rabbitmq_node())
        self._redis_url = stack.enter_context(services.redis())
        self._stores = Stores(stack.enter_context(services.postgres()))
        self._record = record
        self._sizes = sizes

    @contextmanager
    def _env(self, store: str) -> Iterator[dict[str, str]]:
        with services.virtual_host(self._node) as broker_url, self._stores.empty(store) as store_url:
            yield {
                environment.BROKER: broker_url,
                environment.REDIS: self._redis_url,
                environment.STORE: store_url,
                environment.RESULTS: "1",
            }

    def conditions(self, modules: dict[str, str]) -> list[str]:
        assert self._stores.server is not None
        postgres = self._stores.server.sql("SHOW server_version")
        version = bare.Link(self._node.url()).server_version
        with self._env(plan.SQLITE) as env:
            described = {name: talking.described(module, env) for name, module in modules.items()}
        return [
            f"broker       RabbitMQ {version}, {services.RABBITMQ}; durable classic queues, persistent messages",
            f"database     PostgreSQL {postgres}, private, as packaged but for 64 MB of shared buffers",
            f"limited      to {scaling.SHARE} of a core, by {limits.way()}",
            *rows.described(described),
        ]

    # --- Beside others ------------------------------------------------------------------------------------------

    def measure_talks(self, rivals: list[str], *, has_ours: bool) -> None:
        for role in plan.ROLES:
            seats = self._seats(role, rivals, has_ours=has_ours)
            if seats:
                self._play(role, seats)

    def _seats(self, role: str, rivals: list[str], *, has_ours: bool) -> list[Seat]:
        stores = {
            metric: store
            for metric, (played, store) in plan.TALKS.items()
            if played == role and metric in self._record.wanted
        }
        seats = []
        if stores and CELERY in rivals:  # our stores are nothing to it: one figure stands beside both
            seats += [Seat(name, module, plan.SQLITE, (*stores,)) for name, module in OF_CELERY[role].items()]
        on_sqlite = tuple(metric for metric, store in stores.items() if store == plan.SQLITE)
        if on_sqlite and LIMIT in rivals:
            seats.append(Seat(LIMIT, contestants.LIMIT, plan.SQLITE, on_sqlite))
        if has_ours:
            seats += [Seat(OURS, contestants.OURS, store, (metric,)) for metric, store in stores.items()]
        return seats

    def _play(self, role: str, seats: list[Seat]) -> None:
        """Who begins changes from turn to turn."""
        size = self._sizes.of(role)
        with ExitStack() as stack:
            # Calls take turns while all are up. Whoever has just had thousands of results would disturb the others.
            players = {seat: stack.enter_context(self._player(role, seat)) for seat in seats if role == plan.CALL}
            for turn in range(size.turns):
                for seat in seats[:: -1 if turn % 2 else 1]:
                    with nullcontext(players[seat]) if seat in players else self._player(role, seat) as player:
                        self._record.take(seat.name, partial(_played, seat, player, role, size.count))

    @contextmanager
    def _player(self, role: str, seat: Seat) -> Iterator[Player]:
        with self._env(seat.store) as env, talking.player(seat.module, role, env) as player:
            yield player

    # --- Managers among themselves --------------------------------------------------------------------------------

    def measure_scaling(self) -> None:
        for metric, is_limited in {plan.LIMITED: True, plan.UNLIMITED: False}.items():
            if metric in self._record.wanted:
                self._scale_in_turns(metric, is_limited=is_limited)

    def _scale_in_turns(self, metric: str, *, is_limited: bool) -> None:
        size = self._sizes.scaled
        with ExitStack() as stack:
            one, two = (
                stack.enter_context(
                    scaling.site(stack.enter_context(self._env(plan.POSTGRES)), of=of, is_limited=is_limited)
                )
                for of in (1, 2)
            )
            sites = [(ONE, one), (OURS, two)]
            for turn in range(size.turns):
                for name, site in sites[:: -1 if turn % 2 else 1]:
                    self._record.take(name, lambda site=site: {metric: site.per_s(size.count)})
            self._record.take(OURS, lambda: {plan.CONFLICTS: two.conflicts_percent()})

    def measure_crowds(self) -> None:
        for metric, program in {plan.CROWD: crowd.SWARM, plan.PROVEN: crowd.CHOIR}.items():
            if metric in self._record.wanted:
                self._record.take(OURS, partial(self._crowd, metric, program))

    def _crowd(self, metric: str, program: str) -> dict[str, float]:
        sizes = self._sizes
        with self._env(plan.SQLITE) as env:
            return {metric: crowd.cpu_percent(env, program=program, nodes=sizes.nodes, seconds=sizes.crowd_s)}


def _played(seat: Seat, player: Player, role: str, count: int) -> dict[str, float]:
    return dict.fromkeys(seat.metrics, talking.figure(player, role, count))


def compete(on_broker: OnBroker, *, rivals: list[str], has_ours: bool) -> None:
    on_broker.measure_talks(rivals, has_ours=has_ours)
    if has_ours:
        on_broker.measure_scaling()
        on_broker.measure_crowds()


def main() -> None:
    args = arguments()
    record = Record(set(chosen(args.only, list(plan.METRICS))))
    rivals = chosen(args.rivals, RIVALS)
    sizes = plan.QUICK if args.quick else plan.FULL
    lines = [rows.machine(), _turns_line(sizes, is_quick=args.quick)]
    modules = ({} if args.without_ours else {OURS: contestants.OURS}) | _modules_of(rivals)
    with ExitStack() as stack:
        if record.wanted & plan.ON_BROKER:
            on_broker = OnBroker(stack, record, sizes)
            lines += on_broker.conditions(modules)
            print("\n".join(lines), end="\n\n", flush=True)
            compete(on_broker, rivals=rivals, has_ours=not args.without_ours)
    if plan.DECISION in record.wanted and not args.without_ours:
        record.take(OURS, lambda: {plan.DECISION: deciding.median_us(nodes=sizes.nodes, decisions=sizes.decisions)})
    found = rows.rows(record.figures, plan.METRICS)
    rows.keep(found, conditions="\n".join(lines), path=args.out)
    print(rows.table(found))
    record.end()


def _turns_line(sizes: Sizes, *, is_quick: bool) -> str:
    each = [f"{role} {sizes.of(role).turns} x {sizes.of(role).count:,}" for role in plan.ROLES]
    quick = "; --quick: sizes cut, no figures to quote" if is_quick else ""
    return f"turns        medians of {', '.join(each)}, everybody in turns{quick}"


def _modules_of(rivals: list[str]) -> dict[str, str]:
    celery = {
        CELERY: contestants.CELERY_RPC,
        PREFORK: contestants.CELERY_PREFORK,
        "celery plans": contestants.CELERY_REDIS,
    }
    return (celery if CELERY in rivals else {}) | ({LIMIT: contestants.LIMIT} if LIMIT in rivals else {})


if __name__ == "__main__":
    main()
