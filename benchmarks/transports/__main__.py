"""`python -m benchmarks.transports`: runs the plan, prints the table, keeps the rows."""

from __future__ import annotations

import argparse
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from benchmarks import bare, environment, rows, services
from benchmarks.keep.plan import SQLITE
from benchmarks.keep.stores import Stores
from benchmarks.manager.talking import described
from benchmarks.record import Record, chosen
from benchmarks.rows import BOUND, OURS
from benchmarks.transports import crowd, learning, plan, talking
from benchmarks.transports.contestants import BARE, MEASURE
from canoa.testing.ports import LOOPBACK, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.transports.plan import Sizes

PLUGIN = "rabbitmq_mqtt"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transports", description="How fast nodes are reached.")
    parser.add_argument("--only", help=f"metrics, by comma: {','.join(plan.METRICS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: tries the harness")
    parser.add_argument("--out", type=Path, default=Path("build/bench/transports.json"), help="default: %(default)s")
    return parser.parse_args()


class OnBrokers:
    """What needs brokers. Each round has a virtual host, a Mosquitto and a store of its own."""

    def __init__(self, stack: ExitStack, record: Record, sizes: Sizes) -> None:
        self._node = stack.enter_context(services.rabbitmq_node([PLUGIN]))
        self._stores = Stores(None)
        self._record = record
        self._sizes = sizes

    @contextmanager
    def _env(self) -> Iterator[dict[str, str]]:
        with (
            services.virtual_host(self._node) as broker_url,
            services.mosquitto() as mosquitto,
            self._stores.empty(SQLITE) as store_url,
        ):
            yield {
                environment.BROKER: broker_url,
                environment.MQTT: mosquitto.url,
                environment.HTTP: f"http://{LOOPBACK}:{free_port()}",
                environment.STORE: store_url,
            }

    def conditions(self) -> list[str]:
        version = bare.Link(self._node.url()).server_version
        with self._env() as env:
            of_bare = {name: described(module, env) for name, (_, module) in BARE.items()}
        return [
            f"broker       RabbitMQ {version}, {services.RABBITMQ}; Mosquitto, private, for MQTT",
            f"canoa        one manager on SQLite, one worker --concurrency {talking.IN_FLIGHT}; callers on RabbitMQ",
            *rows.described(of_bare),
        ]

    def measure_talks(self) -> None:
        for way in plan.WAYS:
            wanted = {
                metric: role
                for metric, (role, of_way) in plan.TALKS.items()
                if of_way == way and metric in self._record.wanted
            }
            if wanted:
                for name in [name for name, (of_way, _) in BARE.items() if of_way == way]:
                    self._record.take(name, partial(self._talked, talking.of_bare, name, wanted))
                self._record.take(OURS, partial(self._talked, talking.of_canoa, way, wanted))

    def _talked(self, figures: talking.Figures, name: str, wanted: dict[str, str]) -> dict[str, float]:
        """`name`: of our way, or of a bare client."""
        with self._env() as env:
            found = figures(name, wanted.values(), env, self._sizes)
        return {metric: found[role] for metric, role in wanted.items()}

    def measure_crowds(self) -> None:
        for metric, broker in plan.CROWDS.items():
            if metric in self._record.wanted:
                self._record.take(OURS, partial(self._crowd, metric, broker))

    def _crowd(self, metric: str, broker: str) -> dict[str, float]:
        with self._env() as env:
            told = {"CANOA_MQTT": env[environment.MQTT]} if broker == plan.MOSQUITTO else {}
            url = env[environment.MQTT] if told else self._plugin_url(env[environment.BROKER])
            nodes, seconds = self._sizes.nodes, self._sizes.crowd_s
            return {metric: crowd.cpu_percent(env | {environment.MQTT: url}, told, nodes=nodes, seconds=seconds)}

    def _plugin_url(self, broker_url: str) -> str:
        """The login names the virtual host."""
        vhost = broker_url.rpartition("/")[2]
        return f"mqtt://{quote(f'{vhost}:guest', safe='')}:guest@{LOOPBACK}:{self._node.plugin_port(PLUGIN)}"


def bound(record: Record) -> None:
    """Beside each rate, what it has to reach: a share of the bare one in the same rounds."""
    for metric, way in plan.RATES.items():
        of_metric = record.figures.get(metric, {})
        if MEASURE[way] in of_metric:
            of_metric[BOUND] = [plan.SHARE * each for each in of_metric[MEASURE[way]]]


def main() -> None:
    args = arguments()
    record = Record(set(chosen(args.only, list(plan.METRICS))))
    sizes = plan.QUICK if args.quick else plan.FULL
    crowd.allow_files(sizes.nodes)
    lines = [rows.machine(), rows.rounds_line(sizes.rounds, is_quick=args.quick)]
    with ExitStack() as stack:
        if record.wanted - {plan.LEARNED}:
            on_brokers = OnBrokers(stack, record, sizes)
            lines += on_brokers.conditions()
            print("\n".join(lines), end="\n\n", flush=True)
            for _ in range(sizes.rounds):
                on_brokers.measure_talks()
            on_brokers.measure_crowds()
    if plan.LEARNED in record.wanted:
        learned = partial(learning.added_us, nodes=sizes.candidates, decisions=sizes.decisions)
        record.take(OURS, lambda: {plan.LEARNED: learned()})
    bound(record)
    found = rows.rows(record.figures, plan.METRICS)
    rows.keep(found, conditions="\n".join(lines), path=args.out)
    print(rows.table(found))
    record.end()


if __name__ == "__main__":
    main()
