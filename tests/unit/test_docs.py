"""The design's layout lists every source file, and the page of the Python interface every name, with an example."""

from __future__ import annotations

import doctest
import inspect
import re
import warnings
from pathlib import Path

import pytest

import mulligan
from mulligan.envs import registry

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "mulligan"


def test_the_layout_lists_every_file() -> None:
    text = (ROOT / "docs" / "design.md").read_text()
    block = text[text.index("src/mulligan/\n") :].partition("```")[0].splitlines()[1:]
    folders: list[str] = []
    listed = []
    for line in block:
        name = line.split()[0]
        depth = (len(line) - len(line.lstrip())) // 2
        if depth == 0:  # what lies beside the source
            break
        folders = [*folders[: depth - 1], name]
        if name.endswith(".py"):
            listed.append("".join(folders))
    files = [path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if not path.name.startswith("__")]
    assert sorted(listed) == sorted(files)


PUBLIC = sorted(name for name, value in vars(mulligan).items() if name[0] != "_" and not inspect.ismodule(value))
PUBLIC = sorted({*PUBLIC, "Journal"} - {"TYPE_CHECKING", "Any", "MissingExtra"})


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_on_the_page_and_its_example_runs(name, tmp_path, monkeypatch):
    page = (ROOT / "docs" / "api.md").read_text()
    assert re.search(rf"^\.\. auto(class|function):: {name}$", page, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MULLIGAN_TRUST", "")
    monkeypatch.setattr(registry, "REGISTERED", {})
    public = getattr(mulligan, name)
    example = doctest.DocTestParser().get_doctest(public.__doc__, {"mulligan": mulligan}, name, None, 0)
    assert example.examples, f"the docstring of mulligan.{name} has no example"
    told: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a policy that names no action is warned of
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=told.append)
    assert not told, "".join(told)
