"""`python -m benchmarks.keep`: runs the plan, prints the table, keeps the rows."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import bare, environment, processes, rows, services
from benchmarks.keep import gathering, listing, plan, recording
from benchmarks.keep.contestants import MODULES
from benchmarks.keep.stores import Stores
from benchmarks.keep.upped import up
from benchmarks.record import Record, chosen
from benchmarks.rows import OURS

if TYPE_CHECKING:
    from benchmarks.keep.gathering import Stage
    from benchmarks.keep.plan import Sizes

RIVALS = [name for name in MODULES if name != OURS]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.keep", description="How fast results are kept.")
    parser.add_argument("--only", help=f"metrics, by comma: {','.join(plan.METRICS)}")
    parser.add_argument("--rivals", help=f"peers, by comma: {','.join(RIVALS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: tries the harness")
    parser.add_argument("--out", type=Path, default=Path("build/bench/keep.json"), help="default: %(default)s")
    return parser.parse_args()


# --- On a broker -----------------------------------------------------------------------------------------------


class OnBroker:
    """What needs a RabbitMQ, and the databases beside it. Redis and PostgreSQL run only where somebody wants them."""

    def __init__(self, stack: ExitStack, wanted: set[str], rivals: list[str]) -> None:
        self.broker_url = stack.enter_context(services.rabbitmq())
        is_server_wanted = not wanted.isdisjoint(f"{name}_{plan.POSTGRES}" for name in ("keep_gather_2000", "recorder"))
        self.stores = Stores(stack.enter_context(services.postgres()) if is_server_wanted else None)
        self.stages = self._stages(stack, rivals) if wanted & plan.GATHER.keys() else []

    def _stages(self, stack: ExitStack, rivals: list[str]) -> list[Stage]:
        env = {environment.BROKER: self.broker_url, environment.REDIS: stack.enter_context(services.redis())}
        return gathering.stages(env, [OURS, *rivals])

    def conditions(self) -> list[str]:
        broker = f"RabbitMQ {bare.Link(self.broker_url).server_version}, private, as packaged"
        database = "" if self.stores.server is None else self.stores.server.sql("SHOW server_version")
        return [
            f"broker       {broker}; durable classic queues, persistent messages",
            *([f"database     PostgreSQL {database}, private, as packaged"] if database else []),
            *rows.described({stage.name: stage.description for stage in self.stages}),
        ]

    def measure(self, record: Record, sizes: Sizes) -> None:
        """Rounds are interleaved (everyone once, then again), so that a slow minute of the machine hits all alike."""
        for _ in range(sizes.rounds):
            for metric, kind in plan.GATHER.items():
                for stage in self.stages if metric in record.wanted else []:
                    record.take(stage.name, lambda: {metric: self._gathered(stage, kind, sizes)})  # noqa: B023 - at once
        for _ in range(sizes.rounds):
            for metric, kind in plan.RECORDER.items():
                if metric in record.wanted:
                    record.take(OURS, lambda: {metric: self._recorded(kind, sizes)})  # noqa: B023 - at once
            if plan.VISIBLE in record.wanted:
                record.take(OURS, lambda: {plan.VISIBLE: self._visible_ms(sizes)})

    def _gathered(self, stage: Stage, kind: str, sizes: Sizes) -> float:
        with self.stores.empty(kind) as store_url:
            return stage.gather(store_url, sizes.gathered)

    def _recorded(self, kind: str, sizes: Sizes) -> float:
        with self.stores.empty(kind) as store_url:
            return recording.rate(self.broker_url, store_url, sizes.recorded)

    def _visible_ms(self, sizes: Sizes) -> float:
        with self.stores.empty(plan.SQLITE) as store_url:
            return recording.visible_p99_ms(self.broker_url, store_url, per_s=sizes.pace_per_s, seconds=sizes.pace_s)


# --- In one process --------------------------------------------------------------------------------------------


def measure_up(record: Record, sizes: Sizes) -> None:
    for _ in range(sizes.rounds):
        if plan.EMBEDDED in record.wanted:
            record.take(OURS, lambda: {plan.EMBEDDED: _embedded(sizes.embedded)})
        if plan.HTTP in record.wanted:
            record.take(OURS, lambda: {plan.HTTP: _http(sizes.http_calls)})
    if plan.LISTING in record.wanted:
        record.take(OURS, lambda: {plan.LISTING: listing.slowest_page_ms(sizes.listed)})


def _embedded(count: int) -> float:
    seconds: float = processes.run("benchmarks.keep.embedded", count, env={})
    return count / seconds


def _http(count: int) -> float:
    with up() as served:
        seconds: float = processes.run("benchmarks.keep.http_calls", served.port, served.token, count, env={})
    return count / seconds


def main() -> None:
    args = arguments()
    record = Record(set(chosen(args.only, list(plan.METRICS))))
    rivals = chosen(args.rivals, RIVALS)
    sizes = plan.QUICK if args.quick else plan.FULL
    lines = [rows.machine(), rows.rounds_line(sizes.rounds, is_quick=args.quick)]
    with ExitStack() as stack:
        on_broker = OnBroker(stack, record.wanted, rivals) if record.wanted & plan.ON_BROKER else None
        conditions = "\n".join([*lines, *(on_broker.conditions() if on_broker else [])])
        print(conditions, end="\n\n", flush=True)
        if on_broker:
            on_broker.measure(record, sizes)
    measure_up(record, sizes)
    found = rows.rows(record.figures, plan.METRICS)
    rows.keep(found, conditions=conditions, path=args.out)
    print(rows.table(found))
    record.end()


if __name__ == "__main__":
    main()
