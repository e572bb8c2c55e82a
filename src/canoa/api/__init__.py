"""The HTTP API over the desk. Needs `canoa[server]`.

`server.py` serves it, `app.py` puts it together, `guard.py` decides who may come in, `routes_*.py` answer.
"""
