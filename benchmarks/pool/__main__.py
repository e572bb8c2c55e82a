"""`python -m benchmarks.pool`: runs the plan, prints the table, keeps the rows."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchmarks.pool import bare, environment, footprint, plan, processes, report, services
from benchmarks.pool.contestants import LIMIT, OURS, RIVALS
from benchmarks.pool.processes import ContestantFailed
from benchmarks.pool.sessions import Description, Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.pool.report import Figures

ROUNDS = 3


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pool", description="The pool's speed, beside others.")
    parser.add_argument("--only", help=f"metrics, by comma: {','.join(plan.ALL_METRICS)}")
    parser.add_argument("--rivals", help=f"peers, by comma: {','.join((*RIVALS, LIMIT))}")
    parser.add_argument("--without-ours", action="store_true", help="measure the peers alone")
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages, one round: tries the harness")
    parser.add_argument("--broker", help="AMQP URL of a RabbitMQ to use instead of a private one")
    parser.add_argument("--out", type=Path, default=Path("build/bench/pool.json"), help="default: %(default)s")
    return parser.parse_args()


def chosen(text: str | None, allowed: list[str]) -> list[str]:
    names = allowed if text is None else [name for name in text.split(",") if name]
    for name in names:
        if name not in allowed:
            raise SystemExit(f"unknown name {name!r}; choose from {', '.join(allowed)}")
    return names


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def stages(names: list[str], *, broker_url: str, redis_url: str) -> list[Stage]:
    env = {environment.BROKER: broker_url, environment.REDIS: redis_url}
    return [
        Stage(
            name=name,
            broker_url=broker_url,
            env=env,
            description=msgspec.convert(processes.ask(name, "describe", env=env), Description),
        )
        for name in names
    ]


class Record:
    """Figures and failures as they come. One failure does not cost the rest of a long run."""

    def __init__(self, wanted: set[str]) -> None:
        self.wanted = wanted
        self.figures: Figures = {}
        self.failures: list[str] = []

    def take(self, contestant: str, measure: Callable[[], dict[str, float]]) -> None:
        try:
            measured = measure()
        except ContestantFailed as failure:
            say(f"{contestant} failed: {failure}")
            self.failures.append(contestant)
            return
        for metric, value in measured.items():
            if metric in self.wanted:
                say(f"{metric:<24} {contestant:<11} {value:>10,.2f}")
                self.figures.setdefault(metric, {}).setdefault(contestant, []).append(value)


def compete(record: Record, contestants: list[Stage], *, is_quick: bool) -> None:
    """Rounds are interleaved (everyone once, then again), so that a slow minute of the machine hits all alike."""
    for session in plan.sessions(record.wanted, is_quick=is_quick):
        for _ in range(1 if is_quick else ROUNDS):
            for stage in contestants:
                if stage.plays(session):
                    record.take(stage.name, partial(stage.run, session, record.wanted))


def weigh(record: Record, ours: Stage, *, is_quick: bool) -> None:
    if "import_time" in record.wanted:
        record.take(ours.name, footprint.import_time)
    if record.wanted & {"idle_rss", "idle_cpu"}:
        record.take(ours.name, partial(footprint.idle, ours))
    if "memory_1M" in record.wanted:
        actions = footprint.ACTIONS // (plan.QUICK if is_quick else 1)
        record.take(ours.name, partial(footprint.growth, ours, actions=actions))


def main() -> None:
    args = arguments()
    record = Record(set(chosen(args.only, plan.ALL_METRICS)))
    peers = chosen(args.rivals, [*RIVALS, LIMIT])
    names = peers if args.without_ours else [OURS, *peers]
    with ExitStack() as stack:
        broker_url = args.broker or stack.enter_context(services.rabbitmq())
        contestants = stages(names, broker_url=broker_url, redis_url=stack.enter_context(services.redis()))
        conditions = report.conditions(
            {stage.name: stage.description for stage in contestants},
            server_version=bare.Link(broker_url).server_version,
            rounds=1 if args.quick else ROUNDS,
            is_quick=args.quick,
        )
        print(conditions, end="\n\n", flush=True)
        compete(record, contestants, is_quick=args.quick)
        if not args.without_ours:
            weigh(record, contestants[0], is_quick=args.quick)
    rows = report.rows(record.figures)
    report.keep(rows, conditions=conditions, path=args.out)
    print(report.table(rows))
    if record.failures:
        raise SystemExit(f"not everything was measured: {', '.join(sorted(set(record.failures)))} failed, see above")


if __name__ == "__main__":
    main()
