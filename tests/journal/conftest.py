"""Databases for the journal's tests: SQLite for all of them, and for `make test-journal` a real PostgreSQL too.

The server is Debian's, as a cluster of its own in a temporary folder, reached by a socket there. PostgreSQL does not
run as root, so that root lends it another user.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import sqlalchemy as sa

import mulligan
from mulligan.journal.journal import Journal

SETTINGS = "-c listen_addresses='' -c fsync=on -c max_connections=60"


def _programs() -> Path | None:
    """The folder of the server's programs, of its newest version."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    return versions[-1].parent if versions else None


def _server_user() -> str | None:
    """Who the server runs as: us, or where we are root, somebody else."""
    if os.getuid() != 0:
        return pwd.getpwuid(os.getuid()).pw_name
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    return None


@pytest.fixture(scope="session")
def postgresql() -> Iterator[sa.URL]:
    """A running server."""
    programs, user = _programs(), _server_user()
    if programs is None:
        pytest.skip("no PostgreSQL here: install Debian's package postgresql")
    if user is None:
        pytest.skip("PostgreSQL does not run as root, and there is no other user to lend it to")
    folder = Path(tempfile.mkdtemp(prefix="mulligan-postgresql-"))
    shutil.chown(folder, user)
    as_user = {"user": user, "cwd": folder} if os.getuid() == 0 else {"cwd": folder}

    def call(program: str, *words: str) -> None:
        subprocess.run([programs / program, *words], check=True, capture_output=True, timeout=120, **as_user)  # type: ignore[call-overload]

    try:
        call("initdb", "-D", str(folder / "data"), "-U", "tester", "--auth=trust", "--encoding=UTF8", "--locale=C")
        call(
            "pg_ctl",
            "-D",
            str(folder / "data"),
            "-w",
            "-l",
            str(folder / "log"),
            "-o",
            f"{SETTINGS} -k {folder}",
            "start",
        )
        try:
            yield sa.make_url(f"postgresql+psycopg://tester@/postgres?host={folder}")
        finally:
            call("pg_ctl", "-D", str(folder / "data"), "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.journal)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/agent.db"
    server: sa.URL = request.getfixturevalue("postgresql")
    name = f"test_{os.urandom(6).hex()}"
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine.dispose()
    return server.set(database=name).render_as_string(hide_password=False)


@pytest.fixture
def make(database: str) -> Iterator[Callable[..., Journal]]:
    """Opens journals of one database; without a hold-out unless one is asked for."""
    opened: list[Journal] = []

    def journal(namespace: str = "shop", **options: object) -> Journal:
        opened.append(mulligan.Journal(database, namespace, **{"hold_out": 0.0, **options}))
        return opened[-1]

    yield journal
    for each in opened:
        each.close()
