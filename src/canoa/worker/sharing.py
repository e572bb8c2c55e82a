"""Where the global limits of an app's actions are kept: in this process, or in the store that its workers share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from canoa.errors import SettingError

if TYPE_CHECKING:
    from canoa.action import Action
    from canoa.app import Canoa
    from canoa.store.port import Store
    from canoa.worker.limiter import Limiter


class SharedLimits:
    def __init__(self, app: Canoa) -> None:
        self._app = app
        self._store: Store | None = None

    async def open(self) -> Limiter:
        """Raises `SettingError` where an action has a global limit and its workers share nothing to keep it in."""
        limited = [action for action in self._app.actions.values() if _is_global(action)]
        if self._app.settings.is_memory or not limited:
            return self._app.limiter
        url = self._app.settings.store
        if not url:
            raise SettingError(
                f"action {limited[0].name!r} has a limit over all workers, and there is no store to count it in; "
                f"set CANOA_STORE, or give the limit scope='worker'"
            )
        from canoa.store.opening import new_store  # only here: a worker without such limits needs no driver

        self._store = new_store(url)
        await self._store.open()
        return self._store

    async def aclose(self) -> None:
        if self._store is not None:
            await self._store.aclose()


def _is_global(action: Action[..., Any, Any]) -> bool:
    given = (action.policy.rate, action.policy.concurrency)
    return any(limit is not None and limit.scope == "global" for limit in given)
