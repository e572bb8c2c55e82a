"""A recorder with its desk and its system actions, as one thing that runs: for `canoa up` and `canoa recorder`."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from canoa.client.asking import SYSTEM, ask
from canoa.recorder import system
from canoa.recorder.desk import Desk
from canoa.recorder.holding import holding
from canoa.recorder.routed_desk import RoutedDesk
from canoa.recorder.service import Recorder, recording
from canoa.recorder.token_desk import TokenDesk
from canoa.settings import without_password
from canoa.store.opening import new_store
from canoa.store.port import Retention

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from canoa.app import Canoa
    from canoa.store.routed_port import FullStore


class Hosted(NamedTuple):
    recorder: Recorder
    desk: Desk
    store: FullStore


@asynccontextmanager
async def hosting(app: Canoa, store_url: str, *, is_for_any_app: bool = False) -> AsyncIterator[Hosted]:
    """Records on the app's broker inside the block. On the memory broker, what the app submits is stored first; call
    `recorder.acceptor.publish_unfinished` there once the app's worker runs, as `canoa up` does.

    Raises `StoreTaken` where the store belongs to another memory broker, or to recorders on another kind of broker."""
    settings = app.settings
    retention = Retention(
        task_s=settings.keep_results_s, payload_s=settings.keep_payloads_s, letter_s=settings.keep_letters_s
    )
    async with AsyncExitStack() as stack:
        store = new_store(store_url)
        await store.open()
        stack.push_async_callback(store.aclose)
        broker = app.new_broker("recorder")
        await broker.open()
        stack.push_async_callback(broker.aclose)
        hold = await stack.enter_async_context(
            holding(store, is_memory=settings.is_memory, place=without_password(store_url))
        )
        recorder = await stack.enter_async_context(
            recording(
                broker,
                store,
                is_memory=settings.is_memory,
                retention=retention,
                publish_timeout_s=settings.submit_timeout_s,
            )
        )
        recorder.watch(hold.renew(), "hold")
        asking = app.twin(SYSTEM)
        stack.push_async_callback(asking.aclose)
        desk = Desk(
            recorder,
            None if is_for_any_app else app,
            max_payload_bytes=settings.max_payload_bytes,
            layer=settings.layer,
            compression=settings.compression(),
            routed=RoutedDesk(
                max_payload_bytes=settings.max_payload_bytes,
                store=store,
                actions=None if is_for_any_app else app.actions,
                forward=lambda task_id: ask(
                    asking, "cancel_routed", msgspec.json.encode({"task_id": task_id}), is_routed=True
                ),
            ),
            tokens=TokenDesk(store),
        )
        await stack.enter_async_context(system.answering(app, desk))
        if settings.is_memory:
            app.acceptor = recorder.acceptor
        try:
            yield Hosted(recorder, desk, store)
        finally:
            app.acceptor = None
