"""`python -m benchmarks.routing`: every strategy over the same nodes and calls; prints the table, keeps the rows."""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks import bare, environment, processes, rows, services
from benchmarks.manager.managers import COMMAND, managers
from benchmarks.record import Record
from benchmarks.rows import BOUND, OURS, Metric, Unit
from canoa.vocabulary import Routing

if TYPE_CHECKING:
    from benchmarks.rows import Figures
    from canoa.testing import RabbitNode


class Node(NamedTuple):
    pace_s: str
    places: int


NODES: Final = (Node("0.010", 2), Node("0.020", 4), Node("0.080", 4), Node("0.160", 8))
SLOWED: Final = NODES[0].pace_s
PER_S: Final = 120.0
"""Calls; the nodes together could do 500 a second, and 325 once the quickest is slowed."""

METRICS: Final = {"mean": Metric(Unit.MILLISECONDS), "p95": Metric(Unit.MILLISECONDS)}
FAST_ENOUGH: Final = {Routing.ROUND_ROBIN: 0.7, Routing.POWER_OF_TWO: 1.05}
"""Of what these take, learned may take at most so much: the bound is whatever is less."""

PEERS: Final = {each: OURS if each is Routing.LEARNED else each.value for each in Routing}


def measured(node: RabbitNode, strategy: Routing, *, seconds: float, seed: int) -> dict[str, float]:
    with ExitStack() as stack:
        broker_url = stack.enter_context(services.virtual_host(node))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        env = {environment.BROKER: broker_url, environment.SLOW: str(folder / "slow")}
        stack.enter_context(managers(bare.Link(broker_url), broker_url, f"sqlite:///{folder}/store.db"))
        for number, each in enumerate(NODES):
            command = [COMMAND, "worker", "benchmarks.routing.offering:app", "--broker", broker_url]
            command += ["--node-id", f"node-{number}", "--concurrency", str(each.places), "--log-level", "error"]
            stack.enter_context(processes.workers(command, 1, env={**env, environment.PACE: each.pace_s}))
        words = (strategy.value, len(NODES), PER_S, seconds, SLOWED, seed)
        took_ms: list[float] = sorted(processes.run("benchmarks.routing.offering", *words, env=env))
    return {"mean": sum(took_ms) / len(took_ms), "p95": took_ms[int(0.95 * len(took_ms))]}


def bound(figures: Figures) -> None:
    """By what the others took in the same rounds."""
    for of_metric in figures.values():
        if of_metric.keys() >= FAST_ENOUGH.keys():
            of_metric[BOUND] = [min(share * median(of_metric[peer]) for peer, share in FAST_ENOUGH.items())]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.routing", description="How nodes are chosen.")
    parser.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=10.0, help="of calls in each; default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("build/bench/routing.json"), help="default: %(default)s")
    args = parser.parse_args()
    nodes = ", ".join(f"{each.places} at once in {1000 * float(each.pace_s):.0f} ms" for each in NODES)
    lines = [
        rows.machine(),
        rows.rounds_line(args.rounds, is_quick=False),
        f"nodes        {nodes}; the first is slowed halfway",
        f"calls        {PER_S:g} a second by chance, {args.seconds:g} s; one manager, SQLite",
    ]
    print("\n".join(lines), end="\n\n", flush=True)
    record = Record(set(METRICS))
    with services.rabbitmq_node() as node:
        for seed in range(args.rounds):
            for strategy, name in PEERS.items():
                record.take(name, partial(measured, node, strategy, seconds=args.seconds, seed=seed))
    bound(record.figures)
    found = rows.rows(record.figures, METRICS)
    rows.keep(found, conditions="\n".join(lines), path=args.out)
    print(rows.table(found))
    record.end()


if __name__ == "__main__":
    main()
