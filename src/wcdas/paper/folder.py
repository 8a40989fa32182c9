"""The folder of a run through the paper: which claims were asked for, and how."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wcdas.errors import InputError, unknown
from wcdas.files import write_synced
from wcdas.paper import CLAIMS
from wcdas.paper.claim import MODES, Setting
from wcdas.run.folder import check_free


def chosen(names: Sequence[str], everything: bool) -> list[str]:
    """The claims that are asked for, in the paper's order."""
    if names and everything:
        raise InputError(f"--all and the name {names[0]!r} were given; expected one or the other")
    for name in names:
        if name not in CLAIMS:
            raise InputError(f"{unknown('claim', name, CLAIMS)}; see wcdas paper")
    return [name for name in CLAIMS if everything or name in names]


def begin(names: list[str], setting: Setting, resume: bool) -> list[str]:
    """Make the folder, or go on with it; the claims to judge, those asked for before included."""
    if setting.mode not in MODES:
        raise unknown("mode", setting.mode, MODES)
    if setting.measured is not None and not (setting.measured / "paper.json").exists():
        raise InputError(
            f"--measured is {setting.measured}, which holds no paper; expected the --out of an "
            "earlier wcdas paper --mode real"
        )
    if resume:
        before = _read(setting.out)
        if before["mode"] != setting.mode:
            raise InputError(
                f"{setting.out} was begun with --mode {before['mode']}; go on with the same mode "
                "or choose another --out"
            )
        names = [name for name in CLAIMS if name in {*names, *before["claims"]}]
    else:
        check_free(setting.out)
    if not names:
        raise InputError("no claim was named; expected names of `wcdas paper`, or --all")
    try:
        setting.out.mkdir(parents=True, exist_ok=True)
        asked = {"mode": setting.mode, "claims": names}
        write_synced(setting.out / "paper.json", f"{json.dumps(asked, indent=1)}\n".encode())
    except OSError as error:
        raise InputError(
            f"the output folder {setting.out} cannot be written ({error.strerror}); "
            "choose another with --out"
        ) from None
    return names


def _read(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads((path / "paper.json").read_text("utf-8"))
        return {"mode": str(stored["mode"]), "claims": list(stored["claims"])}
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{path} holds no paper; expected a paper.json in it") from None
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{path / 'paper.json'} is damaged: {error}") from None
