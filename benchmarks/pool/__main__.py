"""`python -m benchmarks.pool`: runs the plan, prints the table, keeps the rows."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec

from benchmarks import bare, environment, processes, rows, services
from benchmarks.contestant import Description
from benchmarks.pool import contestants, footprint, plan
from benchmarks.pool.contestants import LIMIT, OURS, RIVALS
from benchmarks.pool.sessions import Stage
from benchmarks.record import Record, chosen

ROUNDS = 5


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pool", description="The pool's speed, beside others.")
    parser.add_argument("--only", help=f"metrics, by comma: {','.join(plan.METRICS)}")
    parser.add_argument("--rivals", help=f"peers, by comma: {','.join((*RIVALS, LIMIT))}")
    parser.add_argument("--without-ours", action="store_true", help="measure the peers alone")
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages, one round: tries the harness")
    parser.add_argument("--broker", help="AMQP URL of a RabbitMQ to use instead of a private one")
    parser.add_argument("--out", type=Path, default=Path("build/bench/pool.json"), help="default: %(default)s")
    return parser.parse_args()


def stages(names: list[str], *, broker_url: str, redis_url: str) -> list[Stage]:
    env = {environment.BROKER: broker_url, environment.REDIS: redis_url}
    return [
        Stage(
            name=name,
            broker_url=broker_url,
            env=env,
            description=msgspec.convert(processes.ask(contestants.module(name), "describe", env=env), Description),
        )
        for name in names
    ]


def compete(record: Record, taking_part: list[Stage], *, is_quick: bool) -> None:
    """Rounds are interleaved (everyone once, then again), so that a slow minute of the machine hits all alike."""
    for session in plan.sessions(record.wanted, is_quick=is_quick):
        for _ in range(1 if is_quick else ROUNDS):
            for stage in taking_part:
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
    record = Record(set(chosen(args.only, list(plan.METRICS))))
    peers = chosen(args.rivals, [*RIVALS, LIMIT])
    names = peers if args.without_ours else [OURS, *peers]
    with ExitStack() as stack:
        broker_url = args.broker or stack.enter_context(services.rabbitmq())
        taking_part = stages(names, broker_url=broker_url, redis_url=stack.enter_context(services.redis()))
        conditions = _conditions(taking_part, bare.Link(broker_url).server_version, is_quick=args.quick)
        print(conditions, end="\n\n", flush=True)
        compete(record, taking_part, is_quick=args.quick)
        if not args.without_ours:
            weigh(record, taking_part[0], is_quick=args.quick)
    found = rows.rows(record.figures, plan.METRICS)
    rows.keep(found, conditions=conditions, path=args.out)
    print(rows.table(found))
    record.end()


def _conditions(taking_part: list[Stage], server_version: str, *, is_quick: bool) -> str:
    broker = f"RabbitMQ {server_version}, {services.RABBITMQ}; durable classic queues, persistent messages"
    lines = [rows.machine(), f"broker       {broker}", rows.rounds_line(1 if is_quick else ROUNDS, is_quick=is_quick)]
    return "\n".join([*lines, *rows.described({stage.name: stage.description for stage in taking_part})])


if __name__ == "__main__":
    main()
