"""From `module:app` on the command line to the app, with an error that helps when it is not there."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import msgspec

from canoa.app import Canoa
from canoa.errors import SettingError
from canoa.settings import MEMORY


def load_app(target: str, broker: str | None = None, *, site: str | None = None) -> Canoa:
    """`shop:app`, `package.module:app`, or just `shop` (its `app`). Modules of the current folder are found. `site`:
    where it stands, and so whatever its actions submit."""
    module_name, _, attribute = target.partition(":")
    attribute = attribute or "app"
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as exc:
        if exc.name != module_name and not module_name.startswith(f"{exc.name}."):
            raise  # the module is there; what it imports is not
        raise SettingError(f"no module {module_name!r} in {Path.cwd()} or the environment; write module:app") from exc
    except ValueError as exc:
        raise SettingError(f"{target!r} is not module:app ({exc})") from exc
    app = getattr(module, attribute, None)
    if not isinstance(app, Canoa):
        names = [name for name, value in vars(module).items() if isinstance(value, Canoa)]
        hint = f"did you mean {module_name}:{names[0]}?" if names else "define one: app = Canoa('shop')"
        raise SettingError(f"{attribute!r} in module {module_name!r} is not a Canoa app; {hint}")
    if broker is not None:
        app.use_broker(broker)
    if site is not None:
        app.settings = msgspec.structs.replace(app.settings, site=site)
    return app


def require_real_broker(url: str, command: str) -> None:
    if url.startswith(MEMORY[:7]):
        raise SettingError(
            f"no broker is named, and the memory broker cannot be reached from another process; give `canoa {command}` "
            f"--broker amqp://user:password@host:5672/vhost, or set CANOA_BROKER (`canoa site start` gives you one)"
        )
