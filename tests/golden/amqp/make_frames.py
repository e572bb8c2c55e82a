"""Writes `sent.hex` and `received.hex` with pika's encoder, and has pamqp read every frame back.

Two implementations that are not ours agree on these bytes. Run it where both are installed (pika 1.4, pamqp 4):
`.venv-bench/bin/python -m tests.golden.amqp.make_frames`. It only adds frames: those that are there never change.
"""

# mypy: ignore-errors
# (pika and pamqp are not among the packages that the linters see)

from __future__ import annotations

from pathlib import Path

import pamqp.frame
from pika import frame, spec
from pika.compat import long

HERE = Path(__file__).parent
FRAME_MAX = 4096

CLIENT = {
    "product": "Canoa",
    "version": "0.1.0",
    "platform": "Python 3.11",
    "connection_name": "canoa (1) publish",
    "capabilities": {
        "publisher_confirms": True,
        "basic.nack": True,
        "consumer_cancel_notify": True,
        "connection.blocked": True,
        "authentication_failure_close": True,
    },
}
SERVER = {
    "capabilities": {"publisher_confirms": True, "per_consumer_qos": True, "direct_reply_to": True},
    "cluster_name": "rabbit@localhost",
    "version": "3.10.8",
}
ARGUMENTS = {
    "x-expires": long(60_000),
    "x-dead-letter-exchange": "",
    "x-single-active-consumer": True,
    "x-queue-type": "quorum",
}
EVERY_VALUE = {
    "text": "açaí 🛶",
    "yes": True,
    "no": False,
    "negative": long(-(2**63)),
    "large": long(2**63 - 1),
    "raw": b"\x00\xff\xce",
    "nothing": None,
    "list": ["a", long(1), [b"", {}], None],
    "table": {"": "", "deeper": {"deepest": {}}},
}
FULL = {
    "content_type": "application/json",
    "content_encoding": "zstd",
    "headers": EVERY_VALUE,
    "delivery_mode": 2,
    "priority": 255,
    "correlation_id": "c-1",
    "reply_to": "canoa.reply.1",
    "expiration": "1500",
    "message_id": "m-1",
    "timestamp": 2**40,
    "type": "shop.resize",
    "app_id": "shop",
}
USUAL = {
    "content_type": "application/json",
    "headers": {"canoa-attempt": long(1), "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
    "delivery_mode": 2,
    "reply_to": "canoa.reply.1",
    "message_id": "0192f1f0c0de7000800000000000abcd",
    "type": "shop.resize",
}


def method(channel, spec_method):
    return frame.Method(channel, spec_method).marshal()


def content(channel, spec_method, body, properties):
    room = FRAME_MAX - 8
    frames = [frame.Method(channel, spec_method)]
    frames.append(frame.Header(channel, len(body), spec.BasicProperties(**properties)))
    frames += [frame.Body(channel, body[at : at + room]) for at in range(0, len(body), room)]
    return b"".join(each.marshal() for each in frames)


def publish(body, properties, exchange="", key="canoa.action.shop.resize", mandatory=True):
    return content(3, spec.Basic.Publish(0, exchange, key, mandatory, False), body, properties)


def deliver(body, properties, tag=1, redelivered=False, exchange="", key="canoa.action.shop.resize"):
    return content(3, spec.Basic.Deliver("resize#1", tag, redelivered, exchange, key), body, properties)


CONNECTION, CHANNEL, QUEUE, BASIC = spec.Connection, spec.Channel, spec.Queue, spec.Basic

SENT = {
    "protocol-header": frame.ProtocolHeader().marshal(),
    "heartbeat": frame.Heartbeat().marshal(),
    "connection.start-ok": method(0, CONNECTION.StartOk(CLIENT, "PLAIN", "\0guest\0sécret", "en_US")),
    "connection.tune-ok": method(0, CONNECTION.TuneOk(2047, 131072, 10)),
    "connection.open": method(0, CONNECTION.Open("/plant", "", False)),
    "connection.close": method(0, CONNECTION.Close(200, "goodbye", 0, 0)),
    "connection.close-ok": method(0, CONNECTION.CloseOk()),
    "channel.open": method(2047, CHANNEL.Open("")),
    "channel.flow-ok": method(3, CHANNEL.FlowOk(True)),
    "channel.close": method(3, CHANNEL.Close(200, "", 0, 0)),
    "channel.close-ok": method(3, CHANNEL.CloseOk()),
    "exchange.declare": method(
        3, spec.Exchange.Declare(0, "ex", "topic", False, True, False, False, False, {"alternate-exchange": "lost"})
    ),
    "exchange.bind": method(3, spec.Exchange.Bind(0, "ends", "amq.topic", "task.#", False, {})),
    "queue.declare": method(3, QUEUE.Declare(0, "q", False, True, False, False, False, ARGUMENTS)),
    "queue.declare.exclusive": method(3, QUEUE.Declare(0, "q", False, False, True, False, False, {})),
    "queue.declare.passive": method(3, QUEUE.Declare(0, "q", True, False, False, False, False, {})),
    "queue.bind": method(3, QUEUE.Bind(0, "q", "ex", "a.*.#", False, {"nodeId": "n-1", "x-match": "all"})),
    "queue.purge": method(3, QUEUE.Purge(0, "q", False)),
    "queue.delete": method(3, QUEUE.Delete(0, "q", False, False, False)),
    "basic.qos": method(3, BASIC.Qos(0, 65535, False)),
    "basic.consume": method(3, BASIC.Consume(0, "q", "q#1", False, False, False, False, {})),
    "basic.cancel": method(3, BASIC.Cancel("q#1", False)),
    "basic.cancel-ok": method(3, BASIC.CancelOk("q#1")),
    "basic.ack": method(3, BASIC.Ack(2**64 - 1, False)),
    "basic.ack.multiple": method(3, BASIC.Ack(7, True)),
    "basic.nack.requeue": method(3, BASIC.Nack(7, False, True)),
    "basic.nack.reject": method(3, BASIC.Nack(7, True, False)),
    "confirm.select": method(3, spec.Confirm.Select(False)),
    "publish.usual": publish(b'{"path":"a.png"}', USUAL),
    "publish.full": publish(b"body", FULL, exchange="ex", key="k" * 255, mandatory=False),
    "publish.empty": publish(b"", {"delivery_mode": 1}),
    "publish.one-frame": publish(b"x" * (FRAME_MAX - 8), {"delivery_mode": 1}),
    "publish.three-frames": publish(b"x" * (2 * (FRAME_MAX - 8) + 1), {"delivery_mode": 1}),
}

RECEIVED = {
    "connection.start": method(0, CONNECTION.Start(0, 9, SERVER, "PLAIN AMQPLAIN", "en_US")),
    "connection.tune": method(0, CONNECTION.Tune(2047, 131072, 60)),
    "connection.open-ok": method(0, CONNECTION.OpenOk("")),
    "connection.close": method(0, CONNECTION.Close(320, "CONNECTION_FORCED - shutdown", 0, 0)),
    "connection.close-ok": method(0, CONNECTION.CloseOk()),
    "connection.blocked": method(0, CONNECTION.Blocked("low on memory")),
    "connection.unblocked": method(0, CONNECTION.Unblocked()),
    "channel.open-ok": method(3, CHANNEL.OpenOk("")),
    "channel.flow": method(3, CHANNEL.Flow(True)),
    "channel.close": method(3, CHANNEL.Close(404, "NOT_FOUND - no queue 'q'", 50, 10)),
    "channel.close-ok": method(3, CHANNEL.CloseOk()),
    "exchange.declare-ok": method(3, spec.Exchange.DeclareOk()),
    "exchange.bind-ok": method(3, spec.Exchange.BindOk()),
    "queue.declare-ok": method(3, QUEUE.DeclareOk("q", 2**32 - 1, 2)),
    "queue.bind-ok": method(3, QUEUE.BindOk()),
    "queue.purge-ok": method(3, QUEUE.PurgeOk(5)),
    "queue.delete-ok": method(3, QUEUE.DeleteOk(6)),
    "basic.qos-ok": method(3, BASIC.QosOk()),
    "basic.consume-ok": method(3, BASIC.ConsumeOk("q#1")),
    "basic.cancel": method(3, BASIC.Cancel("q#1", True)),
    "basic.cancel-ok": method(3, BASIC.CancelOk("q#1")),
    "basic.ack": method(3, BASIC.Ack(2**64 - 1, True)),
    "basic.nack": method(3, BASIC.Nack(8, False, True)),
    "confirm.select-ok": method(3, spec.Confirm.SelectOk()),
    "deliver.usual": deliver(b'{"path":"a.png"}', USUAL),
    "deliver.full": deliver(b"body", FULL | {"user_id": "guest", "cluster_id": "c"}, 2**64 - 1, True, "ex", "k" * 255),
    "deliver.bare": deliver(b"", {}),
    "deliver.three-frames": deliver(b"x" * (2 * (FRAME_MAX - 8) + 1), {}),
    "return": content(3, BASIC.Return(312, "NO_ROUTE", "", "gone"), b"body", {"message_id": "m-1"}),
}


def check_with_pamqp(name, data):
    while data:
        size, _, _ = pamqp.frame.unmarshal(data)
        assert size > 0, name
        data = data[size:]


def write(path, frames):
    known = dict(line.split() for line in path.read_text().splitlines()) if path.exists() else {}
    for name, data in frames.items():
        check_with_pamqp(name, data)
        assert known.setdefault(name, data.hex()) == data.hex(), f"{name} is no longer the same"
    path.write_text("".join(f"{name} {data}\n" for name, data in known.items()))


if __name__ == "__main__":
    write(HERE / "sent.hex", SENT)
    write(HERE / "received.hex", RECEIVED)
