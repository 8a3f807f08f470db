"""Time from a change on the planner's page to its answer, over HTTP, at random settings.

python benchmarks/app.py [--changes 300]

A real server, in a process of its own, gets the requests that the page sends when a field changes,
one after another on one connection, and as many questions to the JSON API.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import subprocess
import sys
import time
from urllib.parse import urlencode

import numpy as np

START = "from bagwise_command import main; main()"


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--changes", type=int, default=300)
    options = parser.parse_args()
    words = [sys.executable, "-c", START, "app", "--port", "0", "--no-open"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        port = int(re.search(r":(\d+)/", process.stdout.readline())[1])
        connection = http.client.HTTPConnection("127.0.0.1", port)
        rng = np.random.default_rng(0)
        states = [draw(rng) for _ in range(options.changes)]
        form = shape(connection)
        for name, send in (
            ("change of the page", lambda state: change(connection, form, state)),
            ("question to /api/plan", lambda state: question(connection, state)),
        ):
            report(name, send, states)
    finally:
        process.terminate()
        process.wait(30)


def draw(rng):
    """A setting anywhere the sliders reach."""
    rows = int(10 ** rng.uniform(3, 8))
    state = {
        "rows": rows,
        "features": int(10 ** rng.uniform(0, np.log10(rows / 2))),
        "snr": float(f"{10 ** rng.uniform(-2, 2):.3g}"),
        "noise": 1,
        "lo": -5,
        "hi": float(f"{rng.uniform(1, 50):.3g}"),
        "bag_size": int(10 ** rng.uniform(0, min(3, np.log10(rows / 2)))),
        "rho": float(f"{10 ** rng.uniform(-6, 0):.3g}"),
    }
    for name in ("bag_size", "rho"):
        if rng.random() < 0.5:
            del state[name]
    return state | (
        {"epsilon": float(f"{10 ** rng.uniform(-2, 1):.3g}")} if rng.random() < 0.8 else {}
    )


def shape(connection):
    """What the page sends when a field changes, as the server describes it."""
    known = json.loads(ask(connection, "GET", "/_dash-dependencies"))
    wired = next(one for one in known if not one["clientside_function"])
    names = wired["output"].strip(".").split("...")
    return {
        "output": wired["output"],
        "outputs": [dict(zip(("id", "property"), n.rsplit(".", 1), strict=True)) for n in names],
        "inputs": [{"id": w["id"], "property": w["property"]} for w in wired["inputs"]],
        "changedPropIds": ["rows.value"],
    }


def change(connection, form, state):
    """The answer to a change of fields."""
    values = {name: str(value) for name, value in state.items()}
    values["private"] = ["yes"] if "epsilon" in state else []
    inputs = [wire | {"value": values.get(wire["id"], "")} for wire in form["inputs"]]
    found = ask(
        connection, "POST", "/_dash-update-component", json.dumps(form | {"inputs": inputs})
    )
    assert b"heatmap" in found, "a refusal is no answer"
    return found


def question(connection, state):
    """The answer of the API."""
    return ask(connection, "GET", "/api/plan?" + urlencode(state))


def ask(connection, method, path, body=None):
    """The body of an answer that is in order."""
    connection.request(method, path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    found = answer.read()
    assert answer.status == 200, found[:300]
    return found


def report(name, send, states):
    """Times and sizes of one kind of request, after a few that warm up."""
    for state in states[:10]:
        send(state)
    times, sizes = [], []
    for state in states:
        start = time.perf_counter()
        sizes.append(len(send(state)))
        times.append(1000 * (time.perf_counter() - start))
    middle, high = np.percentile(times, [50, 95])
    print(
        f"{name}: {len(states)} at random, median {middle:.0f} ms, 95th percentile {high:.0f} ms, "
        f"longest {max(times):.0f} ms; answers of {np.median(sizes) / 1000:.0f} kB"
    )


if __name__ == "__main__":
    main()
