"""How the cost of a release and of a fit grows with rows, features and bags.

    python benchmarks/growth.py [--out docs/images/scale.png]

Prints core-seconds of each run, with a slope in logarithms for each sweep (1 is linear, 0 is free),
and draws them. A machine that others use makes single points noisy; slopes are steadier.
"""

from __future__ import annotations

import argparse
import math
import shutil
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullFormatter
from scale import run_release, write_rows

from bagwise import AggregateLinearRegression

SWEEPS = {
    "rows": [(n, 20, 20) for n in (500_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000)],
    "features": [(1_000_000, d, 20) for d in (5, 10, 20, 40, 80, 160)],
    "bags": [(2_000_000, 20, k) for k in (500, 100, 20, 5, 2)],
}


def core_seconds(task):
    """Time that the cores of this machine spend on one call, all threads together."""
    start = time.process_time()
    task()
    return time.process_time() - start


def cost(rows, features, bag_size, folder):
    """Core-seconds of a release with rows, before noise, and of a fit with its path."""
    path, out = folder / "in.parquet", folder / "out"
    write_rows(path, rows, features, bag_size)
    columns = [f"x{i}" for i in range(features)]
    release = run_release(path, out, "rows", columns, bag_size, named=False)
    released = min(core_seconds(release) for _ in range(2))
    fit = lambda: AggregateLinearRegression(rho="gcv").fit(out)  # noqa: E731
    fitted = min(core_seconds(fit) for _ in range(2))
    shutil.rmtree(out)
    return released, fitted


def main():
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/images/scale.png"))
    options = parser.parse_args()
    figure, panels = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True, layout="constrained")
    with tempfile.TemporaryDirectory() as name:
        for panel, (sweep, settings) in zip(panels, SWEEPS.items(), strict=True):
            at = [s[0] / s[2] if sweep == "bags" else s[sweep == "features"] for s in settings]
            found = np.array([cost(*setting, Path(name)) for setting in settings])
            for label, times in zip(("release with rows", "fit, 101 rhos"), found.T, strict=True):
                slope = np.polyfit(np.log(at[-3:]), np.log(times[-3:]), 1)[0]
                panel.loglog(at, times, "o-", label=f"{label}: slope {slope:.2f}")
                print(f"{sweep}, {label}: slope {slope:.2f}")
                for x, seconds_found in zip(at, times, strict=True):
                    print(f"  {x:.3g}: {seconds_found:.2f} core-seconds")
            n, d, k = settings[len(settings) // 2]
            rest = {"rows": f"{d} features, bags of {k}", "features": f"{n:,} rows, bags of {k}"}
            panel.set_xlabel(f"{sweep}\n({rest.get(sweep, f'{n:,} rows, {d} features')})")
            panel.legend(fontsize=8, loc="upper left")
            panel.xaxis.set_minor_formatter(NullFormatter())
            panel.set_ylim(0.05, 30)
            panel.grid(alpha=0.3)
    panels[0].set_ylabel("core-seconds")
    figure.savefig(options.out, dpi=150)
    assert math.isfinite(found.sum())


if __name__ == "__main__":
    main()
