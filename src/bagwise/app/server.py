"""The application, and the server that bounds threads, connections and sizes."""

from __future__ import annotations

import logging
import socket
import sys
from typing import Any

import dash
import flask
from waitress import create_server
from werkzeug.exceptions import HTTPException, NotFound

from bagwise.app import api, page, uploads

# A change of the page is some kilobytes; only an upload is larger.
LARGEST_CHANGE = 2**16
INDEX = """<!DOCTYPE html>
<html lang="en">
<head>{%metas%}<title>{%title%}</title>{%favicon%}{%css%}</head>
<body>
<noscript>This page needs JavaScript. The same numbers: <code>bagwise plan</code>.</noscript>
{%app_entry%}
<footer>{%config%}{%scripts%}{%renderer%}</footer>
</body>
</html>"""


def make_app() -> flask.Flask:
    """The page and its API as one application, for any server that speaks WSGI."""
    app = dash.Dash(
        "bagwise.app",
        title="bagwise planner",
        update_title="",
        index_string=INDEX,
        serve_locally=True,
        add_log_handler=False,
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
    )
    app.layout = page.layout()
    page.connect(app)
    server: flask.Flask = app.server
    server.register_blueprint(api.routes)
    scripts = " ".join(("'self'", *app.csp_hashes()))
    server.before_request(lambda: _refuse_strange(app))
    server.after_request(lambda response: _guard(response, scripts))
    server.register_error_handler(Exception, _say)
    return server


def make_server(app: flask.Flask, host: str, port: int) -> Any:
    """A server that listens and does not yet answer: ``run()`` it."""
    # A queue is no trouble, and no one reads of it.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return create_server(
        app,
        sockets=[socket.create_server((host, port), family=family)],
        threads=4,
        connection_limit=500,
        backlog=1024,
        channel_timeout=30,
        cleanup_interval=10,
        max_request_body_size=uploads.LARGEST + LARGEST_CHANGE,
        max_request_header_size=2**15,
        asyncore_use_poll=True,
        ident=None,
        clear_untrusted_proxy_headers=True,
    )


def _refuse_strange(app: Any) -> None:
    """Refuse unknown addresses, and changes of another shape than the page sends."""
    asked = flask.request
    if asked.endpoint == "/<path:path>":
        flask.abort(404)
    if asked.path == "/api/snr" or asked.method != "POST":
        return
    if (asked.content_length or 0) > LARGEST_CHANGE:
        flask.abort(413)
    if asked.endpoint == "/_dash-update-component" and not _is_change(app, _body()):
        raise ValueError("the request must be one that this page sends; got another. Reload it.")


def _body() -> Any:
    """The JSON of a request; what is none, or nested too deeply, is None."""
    try:
        return flask.request.get_json(force=True)
    except (HTTPException, RecursionError, ValueError):
        return None


def _is_change(app: Any, body: Any) -> bool:
    """Whether a body names a callback of ours with the fields that it takes."""
    if not isinstance(body, dict) or not isinstance(body.get("output"), str):
        return False
    known = app.callback_map.get(body["output"])
    if known is None:
        return False
    changed, given = body.get("changedPropIds", []), body.get("inputs")
    if body.get("state") or not isinstance(changed, list) or not isinstance(given, list):
        return False
    if not all(isinstance(name, str) for name in changed):
        return False
    wanted = [(wire["id"], wire["property"]) for wire in known["inputs"]]
    ends = body["output"].strip(".").split("...")
    return _wires(given) == wanted and [".".join(w) for w in _wires(body.get("outputs"))] == ends


def _wires(found: Any) -> list[tuple[str, str]]:
    """Ids and properties in a list of them; none when it is something else."""
    lines = found if isinstance(found, list) else []
    if not all(isinstance(line, dict) for line in lines):
        return []
    pairs = [(line.get("id"), line.get("property")) for line in lines]
    return [(i, p) for i, p in pairs if isinstance(i, str) and isinstance(p, str)]


def _guard(response: flask.Response, scripts: str) -> flask.Response:
    """Tell the browser to load nothing from elsewhere, and not to guess."""
    response.headers["Content-Security-Policy"] = (
        f"default-src 'self'; script-src {scripts}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
    )
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    return response


def _say(error: Exception) -> tuple[flask.Response, int]:
    """One sentence for whatever went wrong; what was sent is not logged."""
    if type(error).__name__ == "DependencyException":
        # What Dash raises for files that are none of its components.
        error = NotFound()
    if isinstance(error, HTTPException):
        code = error.code or 500
        text = SENTENCES.get(code, f"{error.name}.")
    elif isinstance(error, ValueError):
        code, text = 400, str(error)
    else:
        code, text = 500, "the server has a fault; the request was not answered. Please report it."
        print(f"bagwise app: {type(error).__name__} in {flask.request.path}", file=sys.stderr)
    return flask.jsonify(error=text), code


SENTENCES = {
    404: "the address must be one of this server; got another. The page is at /.",
    405: "the method must be one that this address takes; got another. See the documentation.",
    413: "the request must be small; got a larger one. Only /api/snr takes files.",
    415: "the request must be JSON; got something else. Set its content type.",
}
