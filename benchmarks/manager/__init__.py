"""How fast managers route, beside Celery's rpc, chains and chords, in the same run on the same broker.

`plan.py` says what is measured, `contestants/` who takes part, `talking.py`, `scaling.py`, `crowd.py` and `deciding.py`
how a figure comes about. `python -m benchmarks.manager` runs it.
"""
