"""The planner as JSON, and signal and noise of a zipped Release; errors are one sentence."""

from __future__ import annotations

from flask import Blueprint, Response, jsonify, request

from bagwise.app import uploads
from bagwise.app.curves import answer, points
from bagwise.app.state import State

routes = Blueprint("api", __name__)


@routes.get("/healthz")
def healthz() -> Response:
    """Says that the server answers."""
    return jsonify(status="ok")


@routes.get("/api/plan")
def plan() -> Response:
    """The plan and the point that was asked for."""
    return jsonify(answer(_asked()))


@routes.get("/api/commands")
def commands() -> Response:
    """The commands that plan, release and fit, a line each."""
    state = _asked()
    _, here, _ = points(state)
    lines = state.commands(here)
    return Response("\n".join((*lines, "")), mimetype="text/plain")


@routes.post("/api/snr")
def snr() -> tuple[Response, int] | Response:
    """Signal and noise of a Release that is sent as a zip file."""
    try:
        return jsonify(uploads.estimate(request.stream, request.content_length))
    except uploads.Busy as error:
        return jsonify(error=str(error)), 503
    except uploads.TooLarge as error:
        return jsonify(error=str(error)), 413


def _asked() -> State:
    """The state in the request; a parameter that is given twice is refused."""
    for name, values in request.args.lists():
        if len(values) > 1:
            raise ValueError(f"{name[:40]} must be given once; got {len(values)}. Leave one out.")
    return State.parse(request.args.to_dict())
