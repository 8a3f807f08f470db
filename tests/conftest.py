"""One profile for property tests, a place of their own for ledgers' witnesses, and a shell."""

import os
import sys
import tempfile

import pytest
from hypothesis import settings

from bagwise import cli

# No deadlines, for machines are shared.
settings.register_profile("bagwise", deadline=None)
settings.load_profile("bagwise")
for folder in ("XDG_STATE_HOME", "XDG_DATA_HOME"):
    os.environ[folder] = tempfile.mkdtemp()


@pytest.fixture
def command(monkeypatch, capsys):
    """Exit code, output and errors of a command as a shell would see them."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["bagwise", *words])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return stop.value.code, printed.out, printed.err

    return run
