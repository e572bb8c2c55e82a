"""Managers know the nodes and choose one for every step. They own nothing: another manager could go on at any time."""
