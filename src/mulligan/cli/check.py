"""Test an environment against the contract every environment keeps."""

from __future__ import annotations

import sys

from mulligan.cli.options import Parser


def add_options(parser: Parser) -> None:
    parser.add_argument("env", help="a name from 'mulligan envs', or path/to/file.py:ClassName")


def run(parser: Parser, words: list[str]) -> int:
    from mulligan.envs.check import check_env

    options, params = parser.read(words)
    check_env(options.env, **params)
    sys.stdout.write(f"{options.env} keeps the contract\n")
    return 0
