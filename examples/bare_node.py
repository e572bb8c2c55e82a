"""A node by the published wire alone, on pika: no Canoa in it. `python bare_node.py amqp://… NODE_ID`"""

import json
import sys
import time
from typing import Any

import pika  # type: ignore[import-untyped]

BROKER, NODE_ID = sys.argv[1:]
DOUBLE = "urn:sapparchi:Action:bare.double"
QUEUE = f"sapparchi.node.unicast.{NODE_ID}"


def register(channel: Any, *, force: bool) -> None:
    body = {"nodeId": NODE_ID, "layer": "FOG", "type": "bare", "actions": [DOUBLE], "forceRegister": force}
    channel.basic_publish("amq.topic", "sapparchi.nodes.register", json.dumps({**body, "endpoint": NODE_ID}))


def on_heartbeat(channel: Any, method: Any, properties: Any, body: bytes) -> None:
    if json.loads(body)["forceRegister"]:
        register(channel, force=True)


def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
    message = json.loads(body)
    number = json.loads(message["messageData"])["number"]
    answer = {**message, "messageData": json.dumps({"doubled": 2 * number})}
    channel.basic_publish("amq.topic", "sapparchi.task.handler.saida", json.dumps(answer))
    channel.basic_ack(method.delivery_tag)


def work_until_the_link_breaks() -> None:
    channel = pika.BlockingConnection(pika.URLParameters(BROKER)).channel()
    channel.confirm_delivery()
    channel.exchange_declare("sapparchi.node.unicast", "headers", durable=True)
    channel.queue_declare(QUEUE, durable=True)
    channel.queue_bind(QUEUE, "sapparchi.node.unicast", arguments={"x-match": "all", "nodeId": NODE_ID})
    channel.exchange_declare("sapparchi.manager.available", "fanout", durable=True)
    heard = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(heard, "sapparchi.manager.available")
    channel.basic_consume(heard, on_heartbeat, auto_ack=True)
    channel.basic_consume(QUEUE, on_message)
    register(channel, force=False)
    channel.start_consuming()


while True:
    try:
        work_until_the_link_breaks()
    except (pika.exceptions.AMQPError, OSError) as error:
        print(f"no link: {error!r}; trying again", file=sys.stderr, flush=True)
        time.sleep(1)
