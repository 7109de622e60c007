"""Starts SkyRL's Tinker server, in the environment of `make test-tinker`: ``python skyrl_server.py --port 8123 …``.

Two things stand between `skyrl 0.3.0` and a plain virtual environment. On Python 3.11 its types need the `TypedDict` of
typing_extensions. And its server starts the process that computes with ``uv run``, which would build another
environment: here it is this file again, with ``engine`` as its first word.
"""

from __future__ import annotations

import argparse
import sys
import typing

import typing_extensions

if sys.version_info < (3, 12):
    typing.TypedDict = typing_extensions.TypedDict  # type: ignore[assignment]


def serve() -> None:
    import uvicorn
    from skyrl.tinker import api
    from skyrl.tinker.config import EngineConfig, add_model, config_to_argv

    api._build_uv_run_cmd_engine = lambda _, config: [sys.executable, __file__, "engine", *config_to_argv(config)]
    parser = argparse.ArgumentParser()
    add_model(parser, EngineConfig)
    parser.add_argument("--port", type=int)
    given = vars(parser.parse_args())
    port = given.pop("port")
    api.app.state.engine_config = EngineConfig.model_validate(given)
    uvicorn.run(api.app, host="127.0.0.1", port=port, log_level="warning")


def compute() -> None:
    from skyrl.tinker import engine

    del sys.argv[1]
    engine.main()


if __name__ == "__main__":
    compute() if sys.argv[1] == "engine" else serve()
