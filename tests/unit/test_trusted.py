"""What a person names is run without more, what only a folder names is not, and the advice on how to go on works."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import mulligan
from mulligan import trusted
from mulligan.envs.registry import import_file
from mulligan.errors import UsageError


@pytest.fixture(autouse=True)
def nothing_trusted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MULLIGAN_TRUST", "")
    for name in ("mine.py", "other.py", "two words.py", "a=1,b=2.py"):
        Path(name).write_text("")
    Path("settings.toml").write_text('[task]\nenv = "bandit:2,./mine.py:Mine"\n')


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (["eval", "mine.py:Mine"], "mine.py"),
        (["eval", "bandit", "--policy=mine.py:answer"], "mine.py"),
        (["train", "bandit:2,other.py:Other:1,mine.py:Mine"], "mine.py"),
        (["train", "--config", "settings.toml"], "mine.py"),
        (["train", "--config=settings.toml"], "mine.py"),
        (["eval", "two words.py:Mine"], "two words.py"),
        (["eval", "a=1,b=2.py:Mine"], "a=1,b=2.py"),
        (["eval", "--resume", "run", "--trust"], "mine.py"),
    ],
)
def test_what_a_command_line_names_is_run(words, file):
    trusted.trust_words(words)
    assert import_file(Path(file))
    assert import_file(Path(file).absolute())


@pytest.mark.parametrize(
    "words", [["eval", "other.py:Other"], ["show", "*"], ["eval", "mine.pyc"], ["eval", "--resume", "."], ["x/mine.py"]]
)
def test_what_it_does_not_name_is_not(words):
    trusted.trust_words(words)
    with pytest.raises(UsageError, match=r"mine\.py is Python code that a run folder names.*--trust.*mulligan\.trust"):
        import_file(Path("mine.py"))


def test_settings_that_are_no_text_are_left_to_whoever_reads_them():
    Path("settings.toml").write_bytes(b"\0mine.py\xff\0.py")
    trusted.trust_words(["train", "--config", "settings.toml", "missing.toml", "x" * 5000 + ".toml"])


def test_names_in_python_are_trusted():
    mulligan.trust(Path("mine.py"), {"opponent": "other.py:Other"})
    assert import_file(Path("mine.py"))
    assert import_file(Path("other.py"))
    assert len(os.environ["MULLIGAN_TRUST"].splitlines()) == 2


def test_the_command_that_continues_a_run_says_so_where_it_needs_to():
    assert trusted.flag("bandit", "expert", {"arms": 2}) == ""
    for names in (("mine.py:Mine",), ("bandit", "endpoint:m"), ("textarena:X", "random", {"opponent": "mine.py:fold"})):
        assert trusted.flag(*names) == " --trust"


def test_policies_are_not_made_text_of():
    """Only names are looked through; what an object says of itself may be long, or raise."""

    class Silent:
        def __repr__(self):
            raise NotImplementedError

        def __call__(self, messages):
            return "<action>1</action>"

    assert mulligan.evaluate("bandit", Silent(), tasks=1, room=False).main.trials == 1


@pytest.mark.parametrize(
    ("word", "file"),
    [
        ("/home/o'brien/e.py:X:2,bandit", "/home/o'brien/e.py"),
        ("--task.env=/a=b/e.py:X", "/a=b/e.py"),
        ("bandit:1,/a b/e.py:X:2", "/a b/e.py"),
    ],
)
def test_a_typed_path_may_have_quotes_and_equal_signs(word, file):
    trusted.trust_words([word])
    trusted.check_trusted(Path(file))
