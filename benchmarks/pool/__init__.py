"""How fast the pool is, beside other task systems, in the same run on the same broker.

`plan.py` says what is measured, `contestants/` who takes part, `sessions.py` how one figure comes about, `footprint.py`
what a worker weighs, `benchmarks/rows.py` what is printed and kept. `python -m benchmarks.pool` runs it.
"""
