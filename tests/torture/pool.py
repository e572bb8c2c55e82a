"""Kills workers that hold deliveries, again and again, and checks that no result is missing at the caller.

    python -m tests.torture.pool --minutes 20 --kills 1000

Starts a private RabbitMQ and its workers by itself. With `--broker-kills` the broker is killed, too. Exit code 1 and a
list when a promise was broken; the workers' logs are kept then.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from tests.torture.actions import app
from tests.torture.caller import Caller, Ledger
from tests.torture.fleet import Fleet
from tests.torture.queues import watched

from canoa.client.metrics import METRICS
from canoa.testing import RabbitNode

FIRST_WORKER_WITHIN_S = 30.0
SILENCE_S = 30.0
EMPTY_WITHIN_S = 15.0
SHOWN = 50


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    minutes: float
    kills: int
    broker_kills: int
    workers: int
    rate: float

    @property
    def seconds(self) -> float:
        return self.minutes * 60


class Progress(msgspec.Struct):
    kills: int = 0
    broker_kills: int = 0
    seconds: float = 0.0


async def torture(plan: Plan, node: RabbitNode, folder: Path) -> list[str]:
    """The promises that were broken."""
    caller, progress = Caller(plan.rate), Progress()
    async with watched(app) as queues:
        with Fleet(folder, node.url(), plan.workers) as fleet:
            await queues.wait_offered(FIRST_WORKER_WITHIN_S)
            await break_things(plan, node, fleet, caller, progress)
            await caller.wait_all(SILENCE_S)
            # Twice: what a worker held in its hands shows up in the queues only once the workers are gone.
            broken = await queues.left(EMPTY_WITHIN_S)
            broken += await asyncio.to_thread(fleet.drain)
            broken += await queues.left(0) + fleet.died_by_themselves
    await app.aclose()
    broken += await asyncio.to_thread(reply_queues_left, node)
    report(progress, caller.ledger)
    if progress.kills < plan.kills:
        broken.append(f"only {progress.kills} of {plan.kills} kills met a worker that held a delivery")
    return broken + caller.ledger.broken()


async def break_things(plan: Plan, node: RabbitNode, fleet: Fleet, caller: Caller, progress: Progress) -> None:
    async with asyncio.TaskGroup() as group:
        submitting = group.create_task(caller.submit_for_ever(), name="submits")
        broker_kills = group.create_task(kill_broker(plan, node, progress), name="broker-kills")
        await kill_workers(plan, fleet, progress)
        await broker_kills
        submitting.cancel()


async def kill_workers(plan: Plan, fleet: Fleet, progress: Progress) -> None:
    """Evenly over the time. Where victims that hold something are rare it takes longer, up to half as long again."""
    began_s = time.monotonic()
    while progress.seconds < plan.seconds or (progress.kills < plan.kills and progress.seconds < plan.seconds * 1.5):
        is_due = progress.kills < min(1.0, progress.seconds / plan.seconds) * plan.kills
        if is_due and await asyncio.to_thread(fleet.kill_one_that_holds):
            progress.kills += 1
        fleet.replenish()
        await asyncio.sleep(0.02)
        progress.seconds = time.monotonic() - began_s


async def kill_broker(plan: Plan, node: RabbitNode, progress: Progress) -> None:
    """SIGKILL, as a power cut would, then start it again on the same data."""
    for _ in range(plan.broker_kills):
        await asyncio.sleep(plan.seconds / (plan.broker_kills + 1))
        await asyncio.to_thread(node.kill)
        await asyncio.to_thread(node.start)
        progress.broker_kills += 1


def reply_queues_left(node: RabbitNode) -> list[str]:
    names = node.ctl("list_queues", "name").split()
    return [f"queue {name} outlived its caller" for name in names if name.startswith("canoa.reply.")]


def report(progress: Progress, ledger: Ledger) -> None:
    print(f"{progress.kills} kills of workers and {progress.broker_kills} of the broker in {progress.seconds:.0f} s")
    print(f"{ledger.accepted} tasks accepted, {ledger.answered} answered, {ledger.refused} refused")
    print(f"{METRICS.duplicates} duplicates, slowest result after {ledger.slowest_s:.2f} s ({ledger.slowest})")


def main() -> int:
    plan = parse(sys.argv[1:])
    folder = Path(tempfile.mkdtemp(prefix="canoa-torture-"))
    with RabbitNode(folder / "rabbitmq") as node:
        app.use_broker(node.url())
        broken = asyncio.run(torture(plan, node, folder))
    if broken:
        print(f"{len(broken)} promises broken; logs are in {folder}", *broken[:SHOWN], sep="\n  ")
        return 1
    shutil.rmtree(folder)
    return 0


def parse(arguments: list[str]) -> Plan:
    summary = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tests.torture.pool", description=summary)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--kills", type=int, default=1000, help="of workers that hold a delivery")
    parser.add_argument("--broker-kills", type=int, default=0)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rate", type=float, default=80, help="submits per second")
    return Plan(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    sys.exit(main())
