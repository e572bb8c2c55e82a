"""How fast results are kept, beside other task systems, in the same run on the same broker and the same database.

`plan.py` says what is measured, `contestants/` who takes part, `gathering.py`, `recording.py`, `upped.py` and
`listing.py` how a figure comes about. `python -m benchmarks.keep` runs it.
"""
