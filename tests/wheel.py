"""Build the sdist, from it the wheel, and run the README's examples in environments that hold nothing else.

Run by ``make wheel-test``; needs the package index.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("python3.11", "python3.12", "python3.13")
PROGRAM = """
import doctest, sys
found = doctest.testfile(sys.argv[1], module_relative=False, raise_on_error=False,
                         optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
import optfair
assert "site-packages" in optfair.__file__, optfair.__file__
sys.exit(f"{found.failed} of {found.attempted} examples fail" if found.failed or not found.attempted else 0)
"""


def run(*command: str | Path, cwd: Path | None = None) -> None:
    subprocess.run([str(part) for part in command], check=True, cwd=cwd)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(sys.executable, "-m", "build", "--outdir", folder, ROOT)  # the wheel from the sdist
        (wheel,) = folder.glob("*.whl")
        shutil.copy(ROOT / "README.md", folder)
        for python in filter(shutil.which, PYTHONS):
            home = folder / python
            run(python, "-m", "venv", home)
            run(home / "bin" / "python", "-m", "pip", "install", "--quiet", f"{wheel}[plot,tables]")
            run(home / "bin" / "python", "-c", PROGRAM, folder / "README.md", cwd=folder)
            run(home / "bin" / "optfair", "list", cwd=folder)


if __name__ == "__main__":
    main()
