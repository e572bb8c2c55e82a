"""The broker port, its two adapters, and the names of everything on the broker."""
