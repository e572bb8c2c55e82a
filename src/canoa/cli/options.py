"""Options and arguments that several commands have, each written once."""

from __future__ import annotations

from typing import Annotated

import typer

from canoa.vocabulary import Layer

Target = Annotated[
    str, typer.Argument(help="The app, as module:app.", metavar="MODULE:APP", envvar="CANOA_APP", show_default=False)
]
BrokerUrl = Annotated[
    str | None,
    typer.Option("--broker", help="amqp://user:password@host:5672/vhost. Otherwise CANOA_BROKER.", show_default=False),
]
LayerName = Annotated[
    Layer | None,
    typer.Option("--layer", case_sensitive=False, help="Where it stands. Otherwise CANOA_LAYER, or CLOUD."),
]
Site = Annotated[
    str | None, typer.Option("--site", help="The place it stands in, such as a city. Otherwise CANOA_SITE.")
]
NodeName = Annotated[
    str, typer.Option("--node-id", help="This worker's name among the nodes; otherwise host name and process id.")
]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="sqlite:///folder/file.db or postgresql://user:password@host/database. Otherwise CANOA_STORE.",
        show_default=False,
    ),
]
ApiHost = Annotated[str, typer.Option(help="Address of the API.")]
AllowedHosts = Annotated[
    list[str] | None, typer.Option(help="Another name to answer to (Host header); give it once per name.")
]
