"""AMQP 0-9-1, as little of it as Canoa speaks.

`values`, `methods` and `content` turn protocol bytes into Python values and back; `engine` is the protocol's state
machine, without a socket; `link` gives it one. `keeper`, `publisher` and `consumer` are what the adapter in
`broker/rabbitmq.py` is made of: a connection that comes back, publishing with confirms, consuming that recovers.
Why not a client library: `docs/adr/0002-own-amqp-engine.md`.
"""
