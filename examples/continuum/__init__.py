"""A plan over three nodes of three layers: a meter is read at the edge, its power factor is computed in the fog, and a
report is written in the cloud.

    python -m examples.continuum                        # everything in this process, no broker
    python -m examples.continuum --broker amqp://…      # a manager and three workers, each a process
    python -m examples.continuum --migrate              # the edge node on MQTT, which is killed and comes back

The last one works with `--broker` too.

`edge.py`, `fog.py` and `cloud.py` say what each node can do, `plan.py` (or `plan.yaml`) in which order it is done.
"""
