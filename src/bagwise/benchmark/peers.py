"""Methods of the package llp-learn, which lives in an environment of its own.

Its pins are of 2023, so nothing here imports it: `make` builds an environment for it, and a `Peer`
runs one fit there as a process, on one thread and for a limited time.

    MixBag          network; mixtures of two bags, with an interval for their share
    LLP-VAT         network; bag-level log loss, and smoothness to adversarial noise
    DLLP            network; so called, but see below
    LLPFC           network; which bag of a group a row is from, forward corrected
    EM              logistic regression and labels that meet the shares, by turns
    alter-SVM       proportion-SVM by turns, linear; alter-SVM-RBF with a Gaussian kernel

What its "DLLP" minimises. Deep LLP holds the *mean probability* of a bag against its share γ. The
package takes the mean of `log_softmax` and then the Kullback-Leibler distance, for two classes

    ½ [γ log γ + (1−γ) log(1−γ) − γ (1/k) Σ_i log p_i − (1−γ) (1/k) Σ_i log(1−p_i)]

which is half of (instance-level log loss − entropy of the share), and the entropy is constant: an
instance-level loss, rho = 1, that draws every row to the share of its bag. LLP-VAT and MixBag
average probabilities, as their papers say.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise import _check
from bagwise.benchmark import peer_script

PEERS: tuple[str, ...] = tuple(peer_script.METHODS)

VERSION = "1.6.0"
# A plain torch may come with gigabytes for a GPU; pip's own settings say where a CPU build lies.
NEEDS = ("torch==2.13.0", "numpy", "scipy", "scikit-learn", "tqdm")


ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}


def make(folder: str | Path) -> None:
    """Build the peers' environment in ``folder``; what is there already is kept.

    llp-learn comes last, and without what it asks for, so that its presence says that all is there.
    """
    if available(folder):
        return
    python = _python(folder)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [*pip, *NEEDS],
        [*pip, "--no-deps", f"llp-learn=={VERSION}"],
    ):
        done = subprocess.run(command, check=False)
        if done.returncode:
            raise OSError(
                f"The peers' environment could not be made in {str(folder)!r}: "
                f"{' '.join(command[1:])!r} failed. See what it printed, and try again."
            )


def available(folder: str | Path) -> bool:
    """Whether ``folder`` has an environment that `make` has finished."""
    made = Path(folder).glob(f"lib/python*/site-packages/llp_learn-{VERSION}.dist-info/RECORD")
    return _python(folder).exists() and any(made)


class PeerFailed(RuntimeError):
    """A peer's fit ended with an error, of which the name is known.

    Attributes
    ----------
    kind : str
        Name of the peer's error, or of the signal that ended it.
    """

    def __init__(self, peer: str, kind: str) -> None:
        super().__init__(f"{peer} failed: {kind}.")
        self.kind = kind


@dataclass(frozen=True)
class Peer:
    """A method of llp-learn with its environment.

    Parameters
    ----------
    name : str
        One of `PEERS`.
    folder : path
        Where `make` has built the environment.

    Notes
    -----
    Guarantees: the same seed gives the same scores on one machine; no process outlives a call.
    Limits: two classes; features must be numbers of one scale.
    """

    name: str
    folder: str | Path

    def __post_init__(self) -> None:
        _check.choice("name", self.name, PEERS)

    def fit_predict(
        self,
        X_train: NDArray[Any],
        shares: NDArray[Any],
        codes: NDArray[Any],
        X_test: NDArray[Any],
        seed: int,
        limit: float,
    ) -> NDArray[np.float64]:
        """Scores of the rows of ``X_test``, larger for class 1 and above 0 where it is predicted.

        They are log odds of networks and EM, margins of support vector machines.

        Parameters
        ----------
        X_train, X_test : ndarrays of shapes (n, d) and (n_test, d)
        shares : ndarray of shape (n_bags,)
            Share of class 1, in [0, 1].
        codes : ndarray of shape (n,)
            Bag of each row, a whole number from 0 to n_bags − 1.
        seed : int
        limit : float
            Seconds, above 0.

        Raises
        ------
        FileNotFoundError
            Where `make` has built nothing.
        TimeoutError
            When time is over; the process is gone by then.
        PeerFailed
            With the name of the peer's error, and no more: a message may quote data.
        """
        _check.number("limit", limit, low=0, above=True, remedy="It is in seconds")
        if not available(self.folder):
            raise FileNotFoundError(
                f"folder must have the peers' environment; got folder={str(self.folder)!r}. "
                "Make it once with bagwise.benchmark.peers.make(folder)."
            )
        with tempfile.TemporaryDirectory() as room:
            asked, answer = Path(room, "asked.npz"), Path(room, "answer.npy")
            np.savez(asked, X=X_train, shares=shares, codes=codes, X_test=X_test)
            self._run([self.name, str(seed), str(asked), str(answer)], limit)
            return np.asarray(np.load(answer), dtype=np.float64)

    def _run(self, arguments: list[str], limit: float) -> None:
        # -I: neither this package's folder nor PYTHONPATH reaches the peer.
        command = [str(_python(self.folder)), "-I", peer_script.__file__, *arguments]
        # The script ends when the last who could write there is gone, however this process ends.
        watched, held = os.pipe()
        try:
            done = subprocess.run(
                command,
                env=os.environ | ONE_THREAD,
                stdin=watched,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.name} was stopped after {limit:g} seconds.") from None
        finally:
            os.close(watched)
            os.close(held)
        if done.returncode < 0:
            raise PeerFailed(self.name, signal.Signals(-done.returncode).name)
        if done.returncode:
            last = done.stderr.split()[-1:] or [f"exit code {done.returncode}"]
            raise PeerFailed(self.name, last[0])


def _python(folder: str | Path) -> Path:
    return Path(folder).absolute() / "bin" / "python"
