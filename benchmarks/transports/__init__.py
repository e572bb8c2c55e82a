"""How fast managers reach nodes over AMQP, MQTT and HTTP, each beside a bare client of the same protocol.

`plan.py` says what is measured, `contestants/` who is beside us, `talking.py`, `crowd.py` and `learning.py` how a
figure comes about. `python -m benchmarks.transports` runs it.
"""
