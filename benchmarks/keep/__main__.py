"""`python -m benchmarks.keep`: runs the plan, prints the table, keeps the rows."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from functools import partial
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
        kinds = {kind for metric, kind in (plan.GATHER | plan.RECORDER).items() if metric in wanted}
        self.stores = Stores(stack.enter_context(services.postgres()) if plan.POSTGRES in kinds else None)
        self.stages = self._stages(stack, rivals) if wanted & plan.GATHER.keys() else []

    def _stages(self, stack: ExitStack, rivals: list[str]) -> list[Stage]:
        env = {environment.BROKER: self.broker_url, environment.REDIS: stack.enter_context(services.redis())}
        return gathering.stages(env, [OURS, *rivals])

    def conditions(self) -> list[str]:
        broker = f"RabbitMQ {bare.Link(self.broker_url).server_version}, {services.RABBITMQ}"
        database = "" if self.stores.server is None else self.stores.server.sql("SHOW server_version")
        return [
            f"broker       {broker}; durable classic queues, persistent messages",
            *(
                [f"database     PostgreSQL {database}, private, as packaged but for 64 MB of shared buffers"]
                if database
                else []
            ),
            *rows.described({stage.name: stage.description for stage in self.stages}),
        ]

    def measure(self, record: Record, sizes: Sizes) -> None:
        """Rounds are interleaved (everyone once, then again), so that a slow minute of the machine hits all alike."""
        for _ in range(sizes.rounds):
            for metric in plan.GATHER:
                for stage in self.stages if metric in record.wanted else []:
                    record.take(stage.name, partial(self._gathered, metric, stage, sizes.gathered))
        for _ in range(sizes.rounds):
            for metric in plan.RECORDER:
                if metric in record.wanted:
                    record.take(OURS, partial(self._recorded, metric, sizes.recorded))
            if plan.VISIBLE in record.wanted:
                record.take(OURS, partial(self._visible, sizes))

    def _gathered(self, metric: str, stage: Stage, count: int) -> dict[str, float]:
        with self.stores.empty(plan.GATHER[metric]) as store_url:
            return {metric: stage.gather(store_url, count)}

    def _recorded(self, metric: str, count: int) -> dict[str, float]:
        with self.stores.empty(plan.RECORDER[metric]) as store_url:
            return {metric: recording.rate(self.broker_url, store_url, count)}

    def _visible(self, sizes: Sizes) -> dict[str, float]:
        with self.stores.empty(plan.SQLITE) as store_url:
            took_ms = recording.visible_p99_ms(self.broker_url, store_url, per_s=sizes.pace_per_s, seconds=sizes.pace_s)
        return {plan.VISIBLE: took_ms}


# --- In one process --------------------------------------------------------------------------------------------


def measure_up(record: Record, sizes: Sizes) -> None:
    for _ in range(sizes.rounds):
        if plan.EMBEDDED in record.wanted:
            record.take(OURS, partial(_embedded, sizes.embedded))
        if plan.HTTP in record.wanted:
            record.take(OURS, partial(_http, sizes.http_calls))
    if plan.LISTING in record.wanted:
        record.take(OURS, partial(_listing, sizes.listed))


def _embedded(count: int) -> dict[str, float]:
    seconds: float = processes.run("benchmarks.keep.embedded", count, env={})
    return {plan.EMBEDDED: count / seconds}


def _http(count: int) -> dict[str, float]:
    with up() as served:
        seconds: float = processes.run("benchmarks.keep.http_calls", served.port, served.token, count, env={})
    return {plan.HTTP: count / seconds}


def _listing(count: int) -> dict[str, float]:
    return {plan.LISTING: listing.slowest_page_ms(count)}


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
