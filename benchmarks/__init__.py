"""Measurements that the project's speed claims rest on. `README.md` says how to run them and how to read them."""
