"""Managers: they know the nodes, choose one for every step, and own nothing that another one could not go on with."""
