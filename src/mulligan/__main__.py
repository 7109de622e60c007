"""``python -m mulligan`` is ``mulligan``."""

from mulligan.app.cli import main

if __name__ == "__main__":
    main()
