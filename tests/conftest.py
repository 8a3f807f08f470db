"""What tests share: a profile of properties, a place for ledgers' witnesses, a shell, a browser."""

import os
import shutil
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


@pytest.fixture(scope="module")
def browser():
    """Debian's chromium. Without it tests are skipped, but not where CI says that all must run."""
    chromium = shutil.which("chromium")
    if os.environ.get("CI") != "true":
        pytest.importorskip("playwright")
        if chromium is None:
            pytest.skip("chromium is not installed: apt-get install chromium")
    from playwright.sync_api import expect, sync_playwright

    # As long as Playwright waits for an action: machines are shared.
    expect.set_options(timeout=30_000)
    assert chromium, "CI must have chromium"
    quiet = ("gpu", "quic", "background-networking", "component-update", "sync")
    arguments = ["--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in quiet)]
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=arguments) as found,
    ):
        yield found
