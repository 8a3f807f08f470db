"""The wheel in an empty environment: the core alone, on each Python that is here."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from bagwise.release import release

ROOT = Path(__file__).parent.parent
FIT = """
import numpy as np, sys
from bagwise import AggregateLinearRegression, Bags, plan
rng = np.random.default_rng(0)
X = rng.normal(size=(1000, 3))
y = X @ [1.0, 2.0, 3.0] + 4.0
bags = Bags.random(1000, 10, random_state=0)
model = AggregateLinearRegression().fit(X, bags.expand(bags.mean(y)), bags)
assert np.allclose(model.coef_, [1, 2, 3]), model.coef_
absent = {"torch", "lightgbm", "pandas", "matplotlib", "opendp", "duckdb", "ibis", "dash"}
assert not absent & set(sys.modules)
"""


def python_of(number):
    """A Python of this version on this machine, or None."""
    if f"{sys.version_info.major}.{sys.version_info.minor}" == number:
        return sys.executable
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [shutil.which(f"python{number}"), *kept.glob(f"{number}.*/bin/python")]
    for place in places:
        code = "import venv, sys; print('%d.%d' % sys.version_info[:2])"
        found = place and subprocess.run([place, "-c", code], capture_output=True, text=True)
        if found and found.stdout.strip() == number:
            return str(place)
    return None


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the source archive of this checkout."""
    out = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(words, capture_output=True, check=True)
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


def test_the_wheel_holds_the_package_and_nothing_else(built):
    names = zipfile.ZipFile(built[0]).namelist()
    kept = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name != ".DS_Store"
    }
    assert {name for name in names if ".dist-info/" not in name} == kept


def test_the_archive_can_test_itself(built):
    with tarfile.open(built[1]) as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    needed = {"Makefile", "constraints.txt", "requirements-dev.txt", "requirements-tables.txt"}
    assert needed | {"CITATION.cff", "mkdocs.yml", "tests/test_package.py", "README.md"} <= names


@pytest.mark.slow
@pytest.mark.parametrize("number", ["3.11", "3.12"])
def test_a_bare_wheel_has_help_plan_and_linear_fits(built, number, tmp_path):
    python = python_of(number)
    if python is None:
        pytest.skip(f"Python {number} is not here")

    def run(*words):
        # Nothing of this checkout or of its environment.
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PIP_TARGET"))}
        found = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=clean)
        assert found.returncode == 0, found.stderr[-2000:]
        return found.stdout

    run(python, "-m", "venv", "env")
    place = tmp_path / "env" / "bin"
    limits = ROOT / "constraints.txt"
    run(place / "python", "-m", "pip", "install", "--quiet", "--constraint", limits, built[0])
    assert "Plan" in run(place / "bagwise", "--help")
    words = ["plan", "--rows", "1e6", "--features", "50", "--snr", "2", "--epsilon", "1"]
    chosen = json.loads(run(place / "bagwise", *words, "--bounds", "-5", "5", "--json"))
    assert chosen["bag_size"] >= 1
    run(place / "python", "-c", FIT)
    said = json.loads(run(place / "bagwise", "doctor", "--json"))
    assert all(extra["missing"] for extra in said["extras"] if extra["name"] != "plot")
    # A learner with the core alone takes what a curator gave away, from a shell too.
    rows = {"age": np.arange(400) % 7, "visits": np.arange(400) % 5}
    release(
        rows | {"y": rows["age"] + 2.0 * rows["visits"]},
        response="y", bag_size=4, epsilon=np.inf, bounds=(0, 14), ledger=None,
        out=tmp_path / "released",
    )  # fmt: skip
    run(place / "bagwise", "fit", "released", "--out", "model")
    run(place / "bagwise", "predict", "model", "released/rows.parquet", "--out", "found.csv")
    assert (tmp_path / "found.csv").read_text().count("\n") == 401
