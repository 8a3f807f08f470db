"""The command that serves the planner to a browser."""

from __future__ import annotations

import ipaddress
import webbrowser
from typing import Annotated

import typer

from bagwise._extras import need
from bagwise.cli.shared import app, errors


@app.command("app", epilog="Example: [bold]bagwise app --port 8050 --no-open[/bold]")
def app_command(
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8050,
    open_page: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser.")
    ] = True,
) -> None:
    """Plan a release in the browser, with a JSON API beside it."""
    for module in ("dash", "waitress"):
        need(module, "app")
    from bagwise.app.server import make_app, make_server

    planner = make_app()
    try:
        server = make_server(planner, host, port)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"port must be free at the host; got host={host!r}, port={port} "
            f"({getattr(error, 'strerror', None) or error}). Choose another with --port."
        ) from None
    if not _is_loopback(host):
        sentence = f"Anyone who can reach {host} can use this page, without password or encryption."
        errors.print(sentence, style="yellow", markup=False, soft_wrap=True)
    address = f"http://{host}:{server.effective_port}/"
    print(f"The planner is at {address} until Ctrl-C.", flush=True)
    if open_page:
        webbrowser.open(address)
    server.run()


def _is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
