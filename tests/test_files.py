"""Only regular files of a sensible size are read; a folder is one process's at a time."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from wcdas import files
from wcdas.errors import InputError
from wcdas.files import (
    DamagedFile,
    MissingFile,
    holder,
    locked,
    read_bytes,
    read_json,
    read_text,
    read_toml,
)


def pipe(path):
    os.mkfifo(path)


def bound(path):
    socket.socket(socket.AF_UNIX).bind(os.path.relpath(path))


@pytest.mark.parametrize(
    ("make", "told"), [(pipe, "a pipe"), (bound, "a socket"), (Path.mkdir, "a folder")]
)
def test_nothing_but_files_is_opened(tmp_path, monkeypatch, make, told):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "it")
    with pytest.raises(InputError, match=f"it is {told}; expected a file"):
        read_bytes(tmp_path / "it")


def test_devices_are_not_read():
    with pytest.raises(InputError, match="/dev/zero is a device; expected a file"):
        read_text(Path("/dev/zero"))


def test_a_link_to_a_pipe_is_a_pipe(tmp_path):
    pipe(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    with pytest.raises(InputError, match="is a pipe"):
        read_bytes(tmp_path / "link")


def test_huge_files_are_refused_unread(tmp_path):
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(files.LARGEST + 1)
    with pytest.raises(InputError, match="has 1,024 MB; expected at most 1,024"):
        read_json(tmp_path / "huge.json", dict)


@pytest.mark.parametrize("name", ["none", "none/below", "with\0nul"])
def test_what_is_not_there(tmp_path, name):
    with pytest.raises(InputError):
        read_bytes(tmp_path / name)
    if "\0" not in name:
        with pytest.raises(MissingFile, match="does not exist"):
            read_text(tmp_path / name)


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '{"a": "x"}', "[" * 100_000, '{"a": NaN}', "\x00"]
)
def test_damaged_json_is_told_in_a_line_with_a_remedy(tmp_path, text):
    path = tmp_path / "it.json"
    path.write_text(text)
    with pytest.raises(DamagedFile, match=r"it\.json is damaged: .*; do this$") as refused:
        read_json(path, dict[str, float], "do this")
    assert "\n" not in str(refused.value)


def test_toml(tmp_path):
    path = tmp_path / "it.toml"
    path.write_text("a = 1")
    assert read_toml(path, dict[str, int]) == {"a": 1}
    path.write_text("a = ")
    with pytest.raises(DamagedFile, match="is damaged"):
        read_toml(path, dict[str, int])
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(DamagedFile, match="is no text in UTF-8"):
        read_toml(path, dict[str, int])


def test_a_folder_is_one_process_s_at_a_time(tmp_path):
    with (
        locked(tmp_path, "go elsewhere"),
        pytest.raises(InputError, match=f"in use by process {os.getpid()} on .*; go elsewhere"),
        locked(tmp_path, "go elsewhere"),
    ):
        pass
    with locked(tmp_path, ""):
        pass


def test_who_is_at_work_in_a_folder(tmp_path):
    assert holder(tmp_path) == ""
    with locked(tmp_path, ""):
        assert holder(tmp_path) == f"process {os.getpid()} on {os.uname().nodename}"
    assert holder(tmp_path) == ""


@pytest.mark.parametrize("text", [b"", b"process 1", b"process x on y", b"\xff", b"process -1 on "])
def test_a_lock_file_of_another_tells_nothing(text, tmp_path):
    (tmp_path / ".lock").write_bytes(text)
    assert holder(tmp_path) == ""
    (tmp_path / ".lock").unlink()
    os.mkfifo(tmp_path / ".lock")
    assert holder(tmp_path) == ""


def test_a_dead_process_holds_nothing(tmp_path):
    code = (
        "import os, sys, signal; from pathlib import Path; from wcdas.files import locked\n"
        "with locked(Path(sys.argv[1]), ''): os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", code, tmp_path], check=False)
    assert ended.returncode == -9
    with locked(tmp_path, ""):
        assert json.dumps((tmp_path / ".lock").read_text()).startswith('"process')
