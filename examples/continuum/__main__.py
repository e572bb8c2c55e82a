"""`python -m examples.continuum`: starts what the plan needs, runs it, and tells what happened."""

from __future__ import annotations

import argparse
import asyncio
import os

from examples.continuum import migration, processes, together


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.continuum", description="A plan over three layers.")
    parser.add_argument("--broker", default=os.environ.get("CANOA_BROKER", ""), help="amqp://…; default: none")
    parser.add_argument("--migrate", action="store_true", help="the edge node on MQTT: it stops and comes back")
    return parser.parse_args()


def main() -> None:
    wanted = arguments()
    broker = wanted.broker
    if wanted.migrate:
        migration.main()
        return
    story = processes.story(broker) if broker else asyncio.run(together.story())
    print(story)


if __name__ == "__main__":
    main()
