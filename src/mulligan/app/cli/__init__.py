"""The command line: one module a command, imported when it is called.

Errors are one line that says what is wrong and what to do, exit code 2; a traceback comes with --debug only.
"""

from mulligan.app.cli.main import main

__all__ = ["main"]
