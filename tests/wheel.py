"""Build the sdist, from it the wheel, and use it in environments that hold nothing else.

Run by ``make wheel-test``; needs the package index. In each Python that is here: what `optfair` alone
brings solves, fits and lists, then the examples of the README run with what they draw and read with.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("python3.11", "python3.12", "python3.13")
ALONE = """
import sys
import numpy as np, optfair as of
assert "site-packages" in of.__file__, of.__file__
assert of.FairKMeans(2, random_state=0).fit(np.arange(8.0)[:, None], groups=list("abababab")).balance_ > 0.4
assert of.library.load("textbook/diet").problem().solve().is_optimal()
assert not {"matplotlib", "pandas"} & set(sys.modules)
"""
README = """
import doctest, sys
found = doctest.testfile(sys.argv[1], module_relative=False, raise_on_error=False,
                         optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
sys.exit(f"{found.failed} of {found.attempted} examples fail" if found.failed or not found.attempted else 0)
"""


# no package of elsewhere, no folders of somebody's own
PLAIN = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "OPTFAIR"))}


def run(*command: str | Path, cwd: Path | None = None) -> None:
    subprocess.run([str(part) for part in command], check=True, cwd=cwd, env=PLAIN)


def works(python: str) -> bool:
    """Return whether a command is there and starts; some are there and do not."""
    here = shutil.which(python) and subprocess.run([python, "-c", ""], check=False).returncode == 0
    sys.stdout.write(f"{python}: {'is tried' if here else 'is not here'}\n")
    return bool(here)


def environment(folder: Path, python: str, *packages: str | Path) -> Path:
    """Return the Python of a new environment with these packages."""
    run(python, "-m", "venv", folder)
    own = folder / "bin" / "python"
    run(own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return own


def main() -> None:
    chosen = [python for python in PYTHONS if works(python)]
    if not chosen:
        sys.exit("none of the Pythons is here")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        builder = environment(folder / "builder", sys.executable, "build")
        run(builder, "-m", "build", "--outdir", folder, ROOT)  # the wheel from the sdist
        (wheel,) = folder.glob("*.whl")
        shutil.copy(ROOT / "README.md", folder)
        for python in chosen:
            own = environment(folder / python, python, wheel)
            run(own, "-W", "error", "-c", ALONE, cwd=folder)
            run(own.with_name("optfair"), "list", cwd=folder)
            run(own, "-m", "pip", "install", "--quiet", f"{wheel}[plot,tables]")
            run(own, "-c", README, folder / "README.md", cwd=folder)
            sys.stdout.write(f"{python}: passes\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
