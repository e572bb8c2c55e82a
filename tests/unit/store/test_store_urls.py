"""From a URL to a store."""

from __future__ import annotations

import sys

import pytest

from canoa.errors import SettingError
from canoa.store.opening import new_store


@pytest.mark.parametrize(("url", "path"), [("sqlite:///a/b.db", "a/b.db"), ("sqlite:////a/b.db", "/a/b.db")])
def test_a_sqlite_url_names_a_file(url: str, path: str) -> None:
    assert repr(new_store(url)) == f"SqliteStore({path!r})"


@pytest.mark.parametrize("url", ["", "mysql://host/db", "sqlite://", "sqlite:///", "sqlite:a.db", "canoa.db"])
def test_a_url_that_names_no_store_is_refused_with_the_forms_there_are(url: str) -> None:
    with pytest.raises(SettingError, match=r"sqlite:///relative/path.*postgresql://"):
        new_store(url)


def test_an_unusable_url_does_not_show_its_password() -> None:
    with pytest.raises(SettingError) as caught:
        new_store("mysql://me:secret@host/db")

    assert "secret" not in str(caught.value)


def test_a_missing_driver_is_named_with_the_way_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("canoa.store.") and name != "canoa.store.opening"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)

    with pytest.raises(SettingError, match=r"needs sqlalchemy.*pip install 'canoa\[server\]'"):
        new_store("sqlite:///a.db")
