"""Where settings are looked for, from the strongest to the weakest. Values are found here and checked in `settings.py`.

Files belong to the current folder and need not be there. A key in them that names no setting is a problem, since a
typing error would otherwise leave a default in force that nobody wanted; in the environment, which others share, it is
none. `CANOA_<NAME>_FILE` names a file that holds a secret.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from canoa.env_file import parse

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

PREFIX: Final = "CANOA_"
IN_FILE: Final = "_FILE"
OTHER_VARIABLES: Final = frozenset({"CANOA_APP"})
"""Read elsewhere: by the command line."""


class Source(enum.StrEnum):
    ARGUMENT = "argument"
    ENVIRONMENT = "environment"
    ENV_FILE = ".env"
    CANOA_TOML = "canoa.toml"
    PYPROJECT = "pyproject.toml"


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """A value as it was found."""

    value: Any
    source: Source
    key: str  # what it is called there
    is_text: bool = False  # "10" may mean 10
    is_path: bool = False  # of the file that holds the value

    def __repr__(self) -> str:
        return f"Given({self.place})"  # the value may be a secret

    @property
    def place(self) -> str:
        is_plain = self.source in (Source.ARGUMENT, Source.ENVIRONMENT)
        return self.key if is_plain else f"{self.key} in {self.source}"


def look_up(
    names: Collection[str],
    *,
    secrets: Collection[str],
    arguments: Mapping[str, Any],
    environment: Mapping[str, str],
    folder: Path | None = None,
) -> tuple[dict[str, Given], list[str]]:
    """The strongest value of each name that has one, and what is wrong with the sources."""
    search = _Search(names, secrets, folder or Path())
    found: dict[str, Given] = {}
    for source in (  # a later one is stronger
        search.in_pyproject(),
        search.in_canoa_toml(),
        search.in_env_file(),
        search.in_variables(environment, Source.ENVIRONMENT),
        search.in_arguments(arguments),
    ):
        found |= source
    return search.with_files_read(found), search.problems


class _Search:
    """One look at every source. What is wrong with them gathers in `problems`."""

    def __init__(self, names: Collection[str], secrets: Collection[str], folder: Path) -> None:
        self.problems: list[str] = []
        self._names = names
        self._folder = folder
        self._variables = {f"{PREFIX}{name.upper()}": name for name in names}
        self._file_variables = {f"{PREFIX}{name.upper()}{IN_FILE}": name for name in secrets}

    # --- The sources ------------------------------------------------------------------------------

    def in_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Given]:
        given = {name: value for name, value in arguments.items() if value is not None}
        return self._named(given, Source.ARGUMENT, prefix="")

    def in_variables(self, variables: Mapping[str, str], source: Source) -> dict[str, Given]:
        """Empty ones count as not given, since some shells and compose files cannot unset."""
        found: dict[str, Given] = {}
        for variable, name in self._file_variables.items():
            if variables.get(variable):
                found[name] = Given(value=variables[variable], source=source, key=variable, is_text=True, is_path=True)
        for variable, name in self._variables.items():
            if not variables.get(variable):
                continue
            if name in found:
                self.problems.append(f"{variable} and {found[name].place} are both set; remove one of them")
            found[name] = Given(value=variables[variable], source=source, key=variable, is_text=True)
        return found

    def in_env_file(self) -> dict[str, Given]:
        variables, unread_lines = parse(self._text(Source.ENV_FILE) or "")
        for number in unread_lines:
            self.problems.append(f".env line {number} cannot be read; write CANOA_NAME=value, and close its quotes")
        known = {*self._variables, *self._file_variables, *OTHER_VARIABLES}
        for variable in sorted(variables.keys() - known):
            self._unknown(variable, known, where=".env", prefix=PREFIX)
        return self.in_variables(variables, Source.ENV_FILE)

    def in_canoa_toml(self) -> dict[str, Given]:
        text = self._text(Source.CANOA_TOML)
        return self._named(self._toml(text, Source.CANOA_TOML), Source.CANOA_TOML, prefix="") if text else {}

    def in_pyproject(self) -> dict[str, Given]:
        """Most have nothing for us; those are not parsed, which keeps the start quick."""
        text = self._text(Source.PYPROJECT)
        if text is None or "canoa" not in text:
            return {}
        tools = self._toml(text, Source.PYPROJECT).get("tool")
        table = tools.get("canoa", {}) if isinstance(tools, dict) else {}
        if not isinstance(table, dict):
            self.problems.append("tool.canoa in pyproject.toml is no table; write [tool.canoa], and settings below it")
            return {}
        return self._named(table, Source.PYPROJECT, prefix="tool.canoa.")

    # --- Files ------------------------------------------------------------------------------------

    def with_files_read(self, found: Mapping[str, Given]) -> dict[str, Given]:
        """Only of those that were chosen: a file that a stronger source makes needless may be missing."""
        read = {name: self._content(given) if given.is_path else given for name, given in found.items()}
        return {name: given for name, given in read.items() if given is not None}

    def _content(self, given: Given) -> Given | None:
        try:
            text = (self._folder / given.value).read_text("utf-8-sig").strip()
        except (OSError, ValueError) as exc:
            self.problems.append(f"{given.place} names {given.value!r:.200}, which cannot be read: {_reason(exc)}")
            return None
        if not text:
            self.problems.append(f"{given.place} names {given.value!r:.200}, which is empty; write the value into it")
            return None
        return Given(value=text, source=given.source, key=given.key, is_text=True)

    def _text(self, source: Source) -> str | None:
        """None where there is no such file."""
        try:
            return (self._folder / source).read_text("utf-8-sig")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as exc:
            self.problems.append(f"{source} cannot be read: {_reason(exc)}; mend it, or start in another folder")
            return None

    def _toml(self, text: str, source: Source) -> dict[str, Any]:
        import tomllib

        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as exc:
            self.problems.append(f"{source} is not TOML: {exc}")
            return {}

    # --- Names ------------------------------------------------------------------------------------

    def _named(self, table: Mapping[str, Any], source: Source, *, prefix: str) -> dict[str, Given]:
        for key in table:
            if key not in self._names:
                self._unknown(
                    f"{prefix}{key}", [f"{prefix}{name}" for name in self._names], where=source, prefix=prefix
                )
        return {
            key: Given(value=value, source=source, key=f"{prefix}{key}")
            for key, value in table.items()
            if key in self._names
        }

    def _unknown(self, key: str, known: Collection[str], *, where: str, prefix: str) -> None:
        import difflib

        names = [name.removeprefix(prefix) for name in known]  # what all share would make everything close
        close = difflib.get_close_matches(key.removeprefix(prefix), names, n=1)
        remedy = f"did you mean {prefix}{close[0]}?" if close else "`canoa config view` lists those there are"
        self.problems.append(f"{where} sets {key!r:.80}, which is no setting; {remedy}")


def _reason(error: OSError | ValueError) -> str:
    """Of a decoding error only the kind: its text is part of what may be a secret."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else "not UTF-8 text"
