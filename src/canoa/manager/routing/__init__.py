"""How one of several nodes that can run an action is chosen."""
