"""The process that unpacks an upload and estimates its signal and noise, within hard limits.

    python -m bagwise.app.estimate FOLDER

FOLDER holds release.zip. Prints one JSON object: what was found, or {"error": one sentence}.
"""

from __future__ import annotations

import json
import re
import stat
import sys
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile, ZipInfo

from scipy.stats import norm

from bagwise.released import Release
from bagwise.snr import SnrEstimate, estimate_snr

MEMORY, PROCESSOR, UNPACKED, FILES = 1536 * 2**20, 45, 256 * 2**20, 1000
PIECE = 2**16
# The chance that an interval misses.
MISSED = 0.05
# Folders that desktop systems put beside what they zip.
LITTER = re.compile(r"(^|/)(__MACOSX/|\.DS_Store$)")
NAMED = re.compile(
    r"(release\.json|bags\.parquet|rows\.parquet|bag_features\.parquet|statistics\.npz"
    r"|rows\.parquet/part-\d{5}\.parquet)"
)


def main(folder: Path) -> None:
    """Print what is found, or why nothing is."""
    _limit()
    try:
        unpack(folder / "release.zip", folder / "released")
        found = estimate(folder / "released")
    except (ValueError, OSError, MemoryError, RuntimeError) as error:
        said = str(error) if isinstance(error, ValueError) else ""
        said = (
            said
            or "the upload must be a zipped Release; got one that cannot be read. Zip it again."
        )
        found = {"error": said.replace(repr(str(folder / "released")), "the upload")}
    print(json.dumps(found))


def unpack(archive: Path, folder: Path) -> None:
    """The files of a Release out of a zip file: by name, once each, and no more than may be."""
    try:
        with ZipFile(archive) as zipped:
            entries = [e for e in zipped.infolist() if not LITTER.search(e.filename)]
            chosen = _choose(entries)
            left = UNPACKED
            for name, entry in chosen.items():
                place = folder / name
                place.parent.mkdir(parents=True, exist_ok=True)
                left = _copy(zipped, entry, place, left)
    except (BadZipFile, NotImplementedError, EOFError, RecursionError) as error:
        _refuse(
            "a zip file of a Release folder", str(error)[:100] or "a broken one", "Zip it again"
        )


def _choose(entries: list[ZipInfo]) -> dict[str, ZipInfo]:
    """Entries by name in the Release, which may lie in one folder; others are refused."""
    files = [entry for entry in entries if not entry.is_dir()]
    if len(entries) > FILES:
        _refuse(f"a zip file of at most {FILES} files", f"{len(entries)}", "Zip the folder alone")
    tops = {entry.filename.partition("release.json")[0] for entry in files if _ends(entry)}
    top = tops.pop() if len(tops) == 1 else ""
    chosen: dict[str, ZipInfo] = {}
    for entry in files:
        name = entry.filename.removeprefix(top)
        kind = stat.S_IFMT(entry.external_attr >> 16)
        plain = kind in (0, stat.S_IFREG) and not entry.flag_bits & 1
        inside = entry.filename.startswith(top) and re.fullmatch(r"([\w .()-]+/)?", top)
        if not (plain and inside and ".." not in top and NAMED.fullmatch(name)) or name in chosen:
            got = f"{entry.filename[:60]!r}"
            _refuse("a zip file of one Release folder and no more", got, "Zip the folder alone")
        chosen[name] = entry
    if "release.json" not in chosen:
        _refuse("a zip file of a Release folder", "none of release.json", "Zip the whole folder")
    if sum(entry.file_size for entry in chosen.values()) > UNPACKED:
        _too_large()
    return chosen


def _ends(entry: ZipInfo) -> bool:
    return entry.filename == "release.json" or entry.filename.endswith("/release.json")


def _copy(zipped: ZipFile, entry: ZipInfo, place: Path, left: int) -> int:
    """What is left after an entry was unpacked; what it says of its size is not believed."""
    with zipped.open(entry) as source, place.open("xb") as file:
        while piece := source.read(PIECE):
            left -= len(piece)
            if left < 0:
                _too_large()
            file.write(piece)
    return left


def estimate(folder: Path) -> dict[str, Any]:
    """Signal, noise and what the statement says, of a Release folder."""
    released = Release.load(folder)
    said = released.statement
    if said.features == "none":
        got = "a Release without features"
        _refuse("a Release with features", got, "Ask for rows or statistics")
    statistics = released.statistics()
    # Noise of scale b on the sum of a bag weighs as 2b²/k on each of its k rows.
    added = float((2 * (said.scale * said.step) ** 2 / released.sizes).mean())
    found = estimate_snr(statistics, 1 - MISSED / (2 if added else 1))
    spare = max(said.n_bags - 1 - statistics.n_features, 4)
    ratios = without(found, added, spare)
    if ratios[0] is None or ratios[0] <= 0:
        _refuse(
            "a Release that tells signal from noise",
            f"means in which noise drowns the rest (SNR {found.snr:.2g} with all noise counted)",
            "Ask for larger bags or more epsilon",
        )
    return {
        "rows": said.n_rows,
        "features": statistics.n_features,
        "bags": said.n_bags,
        "bag_size": max(1, round(said.n_rows / said.n_bags)),
        "epsilon": said.epsilon,
        "lo": said.low,
        "hi": said.high,
        "snr": ratios[0],
        "snr_low": ratios[1],
        "snr_high": ratios[2],
        "noise": max(found.noise**2 - added, 0.0) ** 0.5,
        "snr_of_means": found.snr,
        "method": found.method,
    }


def without(found: SnrEstimate, added: float, spare: int) -> tuple[float | None, ...]:
    """Ratio and interval without the noise that was added on purpose; None where none is left.

    With q the noise that is seen, its own error has half of the chance to miss and that of the
    ratio the other half. Laplace noise has a fourth cumulant of 3 added².
    """
    seen = found.noise**2
    if added == 0:
        return found.snr, found.low, found.high
    error = float(norm.ppf(1 - MISSED / 4)) * ((2 * seen**2 + 3 * added**2) / spare) ** 0.5
    pairs = (found.snr, seen), (found.low, seen + error), (found.high, seen - error)
    return tuple(ratio * q / (q - added) if q > added else None for ratio, q in pairs)


def _too_large() -> None:
    rule = f"at most {UNPACKED // 2**20} MiB when unpacked"
    _refuse(rule, "more", "Release features='statistics', or use bagwise.estimate_snr")


def _refuse(rule: str, got: str, remedy: str) -> None:
    raise ValueError(f"the upload must be {rule}; got {got}. {remedy}.")


def _limit() -> None:
    """Little memory, processor time and disk, where the system can be told so."""
    try:
        import resource
    except ImportError:
        return
    for what, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, PROCESSOR),
        (resource.RLIMIT_FSIZE, UNPACKED),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (least, least))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
