"""How much memory control groups leave, from made-up folders of both versions."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mulligan.models.memory import free_in_groups, free_memory

GIB = 2**30
NO_LIMIT = 9223372036854771712
"""What version 1 says where there is none: the largest number of whole pages."""


@pytest.fixture
def machine(tmp_path):
    """Makes groups from file contents, says which one is this process', and asks what is free."""

    def ask(files: dict[str, object], own: str | None) -> int | None:
        for name, content in files.items():
            path = tmp_path / "groups" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{content}\n")
        if own is not None:
            (tmp_path / "own").write_text(own)
        return free_in_groups(tmp_path / "groups", tmp_path / "own")

    return ask


def two(group: str, limit: object, used: int, cached: int = 0) -> dict[str, object]:
    """The files of a group in version 2."""
    stat = (
        f"anon 12345\nfile {cached + 777}\ninactive_file {cached // 4}\nactive_file {cached - cached // 4}\nshmem 777"
    )
    return {f"{group}memory.max": limit, f"{group}memory.current": used, f"{group}memory.stat": stat}


def one(group: str, limit: int, used: int, cached: int = 0) -> dict[str, object]:
    """The files of a group in version 1; what is not called total_ leaves out the groups inside."""
    stat = f"active_file 1\ninactive_file 2\ntotal_inactive_file {cached}\ntotal_active_file 0"
    folder = f"memory/{group}"
    return {
        f"{folder}memory.limit_in_bytes": limit, f"{folder}memory.usage_in_bytes": used, f"{folder}memory.stat": stat
    }  # fmt: skip


def test_a_container_of_version_2_has_its_limit_at_the_root(machine):
    assert machine(two("", 4 * GIB, GIB), "0::/\n") == 3 * GIB


def test_pages_of_files_are_given_back_when_memory_is_needed(machine):
    """A container that has read a large model once is not full: 4 GiB limit − 4 GiB used + 3 GiB of files' pages."""
    assert machine(two("", 4 * GIB, 4 * GIB, cached=3 * GIB), "0::/\n") == 3 * GIB


def test_the_tightest_of_all_groups_above_counts(machine):
    files = {**two("a/b/", "max", GIB), **two("a/", 8 * GIB, 6 * GIB), **two("", 16 * GIB, 7 * GIB)}
    assert machine(files, "0::/a/b\n") == 2 * GIB
    assert machine(two("a/b/", 3 * GIB, 2 * GIB), "0::/a/b\n") == GIB
    assert machine(two("other/", GIB, GIB), "0::/a/b\n") == GIB  # where this process is not


def test_version_1(machine):
    own = "9:name=systemd:/\n4:cpuset,memory:/job/1\n0::/\n"
    assert machine({**one("", NO_LIMIT, 9 * GIB), **one("job/1/", 6 * GIB, 2 * GIB)}, own) == 4 * GIB
    assert machine(one("job/", 5 * GIB, 4 * GIB, cached=2 * GIB), own) == 3 * GIB


def test_a_container_of_version_1_sees_its_own_group_as_the_root(machine):
    """Which group that is on the machine, the file still says; its folder is not seen."""
    assert machine(one("", 2 * GIB, GIB), "4:memory:/docker/4f9a\n") == GIB


@pytest.mark.parametrize(
    ("files", "own"),
    [
        ({}, None),
        ({}, "0::/\n"),
        (two("", "max", GIB), "0::/\n"),
        (two("a/", GIB, 0), "0::/\n"),
        ({"memory.max": "a lot", "memory.current": 3}, "0::/\n"),
        ({"memory.max": 3 * GIB}, "nonsense\n\n"),
    ],
    ids=["nothing", "no files", "no limit", "another group", "not a number", "no use known"],
)
def test_where_nothing_is_limited_nothing_is_said(machine, files, own):
    assert machine(files, own) is None


def test_a_group_that_is_over_its_limit_has_nothing_free(machine):
    assert machine(two("", GIB, 2 * GIB), "0::/../elsewhere\n") == 0


@pytest.mark.parametrize(("left", "expected"), [(GIB, GIB), (9 * GIB, 7 * GIB), (None, 7 * GIB)])
def test_the_smaller_of_machine_and_groups_is_free(monkeypatch, left, expected):
    monkeypatch.setattr("mulligan.models.memory.free_in_groups", lambda: left)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=7 * GIB))
    assert free_memory(torch.device("cpu")) == expected


def test_no_control_groups_on_this_system():
    assert free_in_groups(Path("/nowhere"), Path("/nowhere/own")) is None
