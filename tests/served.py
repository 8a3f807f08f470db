"""The planner as a process of its own on a free port, for tests that speak to it."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import bagwise

SOURCE = str(Path(bagwise.__file__).parent.parent)
START = "from bagwise_command import main; main()"


@contextlib.contextmanager
def served(*options):
    """Its address and its process; what it says of errors goes into ``process.said``, a file."""
    environment = os.environ | {"PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-P", "-c", START, "app", "--port", "0", "--no-open", *options]
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment | {"TMPDIR": place},
        )
        try:
            line = process.stdout.readline()
            found = re.search(r"http://[\d.]+:\d+/", line)
            errors.seek(0)
            assert found, line + errors.read()
            process.said, process.place = errors, Path(place)
            yield found[0], process
        finally:
            process.terminate()
            process.wait(30)
            process.stdout.close()
