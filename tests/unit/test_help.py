"""`--help` of every command."""

from __future__ import annotations

import pytest

from mulligan.app.bench import NAMES
from mulligan.app.cli.main import COMMANDS, main


@pytest.mark.parametrize("words", [*([command] for command in COMMANDS), *(["bench", name] for name in NAMES)])
def test_every_command_has_help(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    assert f"mulligan {words[0]}" in capsys.readouterr().out
