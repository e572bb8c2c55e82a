"""`python -m benchmarks.manager`: runs the plan, prints the table, keeps the rows."""

from __future__ import annotations

import argparse
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import bare, environment, rows, services
from benchmarks.keep.stores import Stores
from benchmarks.manager import contestants, crowd, deciding, limits, plan, scaling, talking
from benchmarks.record import Record, chosen
from benchmarks.rows import LIMIT, OURS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.manager.plan import Sizes
    from benchmarks.manager.scaling import Scaled
    from benchmarks.processes import Player

CELERY = "celery"
PREFORK = "celery prefork"
RIVALS = [CELERY, LIMIT]
ONE = "one manager"
OF_CELERY = {contestants.CELERY_RPC: (plan.GATHER,), contestants.CELERY_REDIS: (plan.CHAIN, plan.FANOUT)}
"""By module: what it plays."""
CALLERS = {
    CELERY: {CELERY: contestants.CELERY_RPC, PREFORK: contestants.CELERY_PREFORK},
    LIMIT: {LIMIT: contestants.LIMIT},
}
"""By rival: who of it makes calls, one after the other, by the name it has in the table."""


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

    def measure_celery(self) -> None:
        for module, roles in OF_CELERY.items():
            wanted = [role for role in roles if self._metrics_of(role)]
            if wanted:
                self._record.take(CELERY, partial(self._celery, module, wanted))

    def _celery(self, module: str, roles: list[str]) -> dict[str, float]:
        """Our stores are nothing to Celery: one figure stands beside both."""
        with self._env(plan.SQLITE) as env:
            figures = talking.figures(module, roles, env, self._sizes)
        return {metric: figures[role] for role in roles for metric in self._metrics_of(role)}

    def _metrics_of(self, role: str) -> list[str]:
        return [
            metric for metric, (played, _) in plan.TALKS.items() if played == role and metric in self._record.wanted
        ]

    def measure_ours(self) -> None:
        for store in plan.STORES:
            self._measure(OURS, contestants.OURS, store)

    def measure_limit(self) -> None:
        self._measure(LIMIT, contestants.LIMIT, plan.SQLITE)

    def _measure(self, name: str, module: str, store: str) -> None:
        wanted = {
            metric: role
            for metric, (role, of_store) in plan.TALKS.items()
            if of_store == store and metric in self._record.wanted
        }
        if wanted:
            self._record.take(name, partial(self._talked, module, store, wanted))

    def _talked(self, module: str, store: str, wanted: dict[str, str]) -> dict[str, float]:
        with self._env(store) as env:
            figures = talking.figures(module, wanted.values(), env, self._sizes)
        return {metric: figures[role] for metric, role in wanted.items()}

    # --- One call after another -----------------------------------------------------------------------------------

    def measure_calls(self, rivals: list[str], *, has_ours: bool) -> None:
        modules = {name: module for rival in rivals for name, module in CALLERS[rival].items()}
        if has_ours:
            modules[OURS] = contestants.OURS
        for metric, store in plan.CALLS.items():
            if metric in self._record.wanted:
                self._call_in_turns(metric, store, modules)

    def _call_in_turns(self, metric: str, store: str, modules: dict[str, str]) -> None:
        """All of them are up, one of them calls; who begins changes from turn to turn."""
        with ExitStack() as stack:
            callers = {
                name: stack.enter_context(talking.caller(module, stack.enter_context(self._env(store))))
                for name, module in modules.items()
            }
            for turn in range(self._sizes.turns):
                for name in sorted(callers, reverse=bool(turn % 2)):
                    self._record.take(name, partial(self._called, metric, callers[name]))

    def _called(self, metric: str, caller: Player) -> dict[str, float]:
        return {metric: talking.call_ms(caller, self._sizes.calls)}

    # --- Managers among themselves --------------------------------------------------------------------------------

    def measure_scaling(self) -> None:
        for metric, is_limited in {plan.LIMITED: True, plan.UNLIMITED: False}.items():
            if metric in self._record.wanted:
                self._record.take(ONE, lambda m=metric, x=is_limited: {m: self._scaled(1, is_limited=x).per_s})
                self._record.take(OURS, partial(self._two, metric, is_limited=is_limited))

    def _two(self, metric: str, *, is_limited: bool) -> dict[str, float]:
        two = self._scaled(2, is_limited=is_limited)
        return {metric: two.per_s, plan.CONFLICTS: two.conflicts_percent}

    def _scaled(self, of: int, *, is_limited: bool) -> Scaled:
        with self._env(plan.POSTGRES) as env:
            return scaling.gathered(env, count=self._sizes.scaled, of=of, is_limited=is_limited)

    def measure_crowds(self) -> None:
        for metric, program in {plan.CROWD: crowd.SWARM, plan.PROVEN: crowd.CHOIR}.items():
            if metric in self._record.wanted:
                self._record.take(OURS, partial(self._crowd, metric, program))

    def _crowd(self, metric: str, program: str) -> dict[str, float]:
        sizes = self._sizes
        with self._env(plan.SQLITE) as env:
            return {metric: crowd.cpu_percent(env, program=program, nodes=sizes.nodes, seconds=sizes.crowd_s)}


def compete(on_broker: OnBroker, record: Record, sizes: Sizes, *, rivals: list[str], has_ours: bool) -> None:
    """Rounds are interleaved (everyone once, then again), so that a slow minute of the machine hits all alike."""
    on_broker.measure_calls(rivals, has_ours=has_ours)
    for _ in range(sizes.rounds):
        if CELERY in rivals:
            on_broker.measure_celery()
        if LIMIT in rivals:
            on_broker.measure_limit()
        if has_ours:
            on_broker.measure_ours()
    for _ in range(sizes.rounds if has_ours else 0):
        on_broker.measure_scaling()
    if has_ours:
        on_broker.measure_crowds()


def main() -> None:
    args = arguments()
    record = Record(set(chosen(args.only, list(plan.METRICS))))
    rivals = chosen(args.rivals, RIVALS)
    sizes = plan.QUICK if args.quick else plan.FULL
    calls = f"calls        medians of {sizes.turns} turns of {sizes.calls} calls, everybody in turns"
    lines = [rows.machine(), rows.rounds_line(sizes.rounds, is_quick=args.quick), calls]
    modules = ({} if args.without_ours else {OURS: contestants.OURS}) | _modules_of(rivals)
    with ExitStack() as stack:
        if record.wanted & plan.ON_BROKER:
            on_broker = OnBroker(stack, record, sizes)
            lines += on_broker.conditions(modules)
            print("\n".join(lines), end="\n\n", flush=True)
            compete(on_broker, record, sizes, rivals=rivals, has_ours=not args.without_ours)
    if plan.DECISION in record.wanted and not args.without_ours:
        record.take(OURS, lambda: {plan.DECISION: deciding.median_us(nodes=sizes.nodes, decisions=sizes.decisions)})
    found = rows.rows(record.figures, plan.METRICS)
    rows.keep(found, conditions="\n".join(lines), path=args.out)
    print(rows.table(found))
    record.end()


def _modules_of(rivals: list[str]) -> dict[str, str]:
    celery = {
        CELERY: contestants.CELERY_RPC,
        PREFORK: contestants.CELERY_PREFORK,
        "celery plans": contestants.CELERY_REDIS,
    }
    return (celery if CELERY in rivals else {}) | ({LIMIT: contestants.LIMIT} if LIMIT in rivals else {})


if __name__ == "__main__":
    main()
