"""`canoa token`: who may use the API, and for what."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Final

import typer

from canoa.cli import output
from canoa.cli.opening import open_tokens
from canoa.cli.tasks import AsJson
from canoa.cli.times import shown_time
from canoa.errors import SettingError
from canoa.vocabulary import Role

if TYPE_CHECKING:
    from datetime import datetime

    from canoa.recorder.token_views import TokenView

token_app = typer.Typer(no_args_is_help=True, help="Tokens for the HTTP API: make, list and revoke them.")

TokenName = Annotated[
    str, typer.Argument(help="Of the program or person that it is for.", metavar="NAME", show_default=False)
]
TokenStoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="Straight in this store, without the API: sqlite:///folder/file.db or postgresql://…",
        show_default=False,
    ),
]

COLUMNS: Final = ["token", "role", "state", "created", "expires", "used"]
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


@token_app.command()
def create(
    name: TokenName,
    role: Annotated[Role, typer.Option(help="What whoever shows it may do.")] = Role.VIEWER,
    expires: Annotated[
        str, typer.Option(metavar="TIME", help="After how long it opens nothing, such as 30d or 12h. Otherwise: never.")
    ] = "",
    store: TokenStoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Make a token and print its secret. It is shown this once, and kept nowhere."""
    with output.errors_explained(as_json=as_json):
        expires_s = _seconds(expires) if expires else None
        with closing(open_tokens(store)) as door:
            made = door.create_token(name, role, expires_s=expires_s)
        if as_json:
            output.data(made)
            return
        output.line(made.secret)
        until = f", until {shown_time(made.token.expires_at)}" if made.token.expires_at else ""
        output.say(f"this is the secret of {name} ({role}{until}); it is not shown again")
        variable = "CANOA_NODE_TOKEN" if role is Role.NODE else "CANOA_API_TOKEN"
        output.say(f"use it as {variable}, or in the header `Authorization: Bearer …`")


@token_app.command("list")
def list_(store: TokenStoreUrl = None, as_json: AsJson = False) -> None:
    """Every token: its role, whether it is live, when it was used last."""
    with output.errors_explained(as_json=as_json):
        with closing(open_tokens(store)) as door:
            found = door.tokens()
        if as_json:
            output.data(found)
        elif found:
            output.table(COLUMNS, [_row(each) for each in found])
        else:
            output.say("there are no tokens but the one of the settings; `canoa token create NAME` makes one")


@token_app.command()
def revoke(name: TokenName, store: TokenStoreUrl = None, as_json: AsJson = False) -> None:
    """Revoke a token: within seconds it opens nothing any more."""
    with output.errors_explained(as_json=as_json):
        with closing(open_tokens(store)) as door:
            revoked = door.revoke_token(name)
        if as_json:
            output.data(revoked)
        else:
            output.say(f"revoked {name}; processes that serve the API know it within seconds")


def _row(token: TokenView) -> list[str]:
    return [
        token.name,
        token.role,
        token.state,
        shown_time(token.created_at),
        _shown_or(token.expires_at, "never"),
        _shown_or(token.used_at, "-"),
    ]


def _shown_or(at: datetime | None, otherwise: str) -> str:
    return otherwise if at is None else shown_time(at)


def _seconds(text: str) -> float:
    """From `30d`, `12h`, `45m` or `90s`."""
    found = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if found is None:
        raise SettingError(
            f"--expires {text!r:.40} is no time; write a number and its unit, such as 30d, 12h, 45m, 90s"
        )
    return float(found[1]) * _UNITS_S[found[2]]
