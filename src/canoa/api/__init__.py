"""The HTTP API. Needs `canoa[server]`."""
