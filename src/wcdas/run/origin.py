"""Which code a run is done with."""

import hashlib
import platform
import subprocess
from functools import cache
from pathlib import Path

import torch

import wcdas


def versions() -> dict[str, str]:
    """Return the versions that a run or a sweep is done with."""
    return {
        "wcdas": wcdas.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def code() -> dict[str, str]:
    """Return the digest of the package, and its commit where it lies in a checkout."""
    return {"source": source()} | ({"commit": commit()} if commit() else {})


@cache
def source() -> str:
    """Return a digest of the package: equal code has the same, wherever it lies."""
    package = Path(wcdas.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(p for p in package.rglob("*") if p.suffix in (".py", ".toml")):
        digest.update(str(path.relative_to(package)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def commit() -> str:
    """Return the commit of the checkout that the package lies in, with a + where its files are
    other ones by now; empty where there is no checkout or no git."""
    package = Path(wcdas.__file__).parent
    root = package.parents[1]
    if not (root / ".git").exists():  # nor in one that happens to hold the environment
        return ""
    git = ["git", "--no-optional-locks", f"--git-dir={root / '.git'}", f"--work-tree={root}"]
    try:
        head, changed = (
            subprocess.run([*git, *words], capture_output=True, text=True, check=True).stdout
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", str(package)])
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head[:12] + "+" * bool(changed)
