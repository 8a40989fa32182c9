"""A whole run, from the call to the written report: where its time goes, cold and warm.

    python benchmarks/whole_run.py [cifar100-lt] [--root DIR] [--method wcdas] [--set KEY=VALUE …]

`wcdas train` in a process of its own, first with an empty cache, then with what the first left
there. "all" is by a clock outside; the phases are what the run itself keeps in `seconds.json`, and
"python" is the rest: the start of Python, its imports, and its end.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", default="cifar100-lt")
    parser.add_argument("--root", type=Path, help="where the data lies")
    parser.add_argument("--method", default="wcdas")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", nargs="*", default=[], help="settings of wcdas train")
    given = parser.parse_args()
    settings = [*given.set, *([f"data.root={given.root.resolve()}"] if given.root else [])]
    with tempfile.TemporaryDirectory() as place:
        environment = os.environ | {"XDG_CACHE_HOME": place}
        rows = {}
        for name in ("cold", "warm"):
            out = Path(place) / name
            command = [sys.executable, "-m", "wcdas", "train", given.data, "--out", str(out)]
            command += ["--method", given.method, "--device", given.device]
            command += ["--set", *settings] if settings else []
            began = time.monotonic()
            ended = subprocess.run(command, env=environment, capture_output=True, text=True)
            everything = time.monotonic() - began
            if ended.returncode:
                sys.exit(ended.stderr)
            phases = json.loads((out / "seconds.json").read_text())
            rows[name] = {"python": everything - phases.pop("all")} | phases | {"all": everything}
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    print(f"{'seconds':8}" + "".join(f"{name:>12}" for name in names))
    for name, row in rows.items():
        print(f"{name:8}" + "".join(f"{row.get(part, 0):12.1f}" for part in names))


if __name__ == "__main__":
    main()
