"""Ways between a worker and its managers besides the worker's own broker: HTTP, and MQTT."""
