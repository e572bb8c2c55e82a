"""Who takes part: us, Celery, and a bare manager as the limit. Celery's single results come over rpc, as in the pool;
those of chains and chords are kept in Redis, without which it has no chords."""

from __future__ import annotations

OURS = f"{__name__}.canoa"
CELERY_RPC = "benchmarks.pool.contestants.celery"
CELERY_PREFORK = f"{__name__}.celery_prefork"
CELERY_REDIS = f"{__name__}.celery"
LIMIT = f"{__name__}.limit"
