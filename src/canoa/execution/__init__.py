"""Attempts, retries, time limits, crash counts, cancellation: pure rules, shared by workers, managers and peers."""
