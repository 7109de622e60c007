"""The study of unseen games: what its sweeps hold back, and what its table counts as a gain."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from mulligan.app.sweep.arms import plan_work, read_sweep
from mulligan.app.sweep.rows import read_rows
from mulligan.envs import registry
from mulligan.rollout.groups import Mixture
from mulligan.training.config import shown_params
from mulligan.training.resolve import resolve
from mulligan.trusted import trust

FOLDER = Path(__file__).parents[2] / "results" / "transfer"
SWEEPS = sorted(FOLDER.glob("*.toml"))


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    """The sweeps name examples/i_spy.py as seen from there, and whoever starts a sweep trusts what it names."""
    monkeypatch.chdir(FOLDER.parents[1])
    trust(*(file.read_text() for file in SWEEPS))


@pytest.fixture(scope="module")
def gains() -> ModuleType:
    spec = importlib.util.spec_from_file_location("transfer_gains", FOLDER / "gains.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_both_models_are_asked_the_same():
    splits = [{arm.name: len(Mixture.parse(arm.settings["task.env"], {}).weights) for arm in read_sweep(file).arms}
              for file in SWEEPS]  # fmt: skip
    assert len(SWEEPS) == 2
    assert splits[0] == splits[1]
    assert {*splits[0].values()} == {5}


@pytest.mark.parametrize("file", SWEEPS, ids=lambda file: file.stem)
def test_no_task_of_an_unseen_game_is_trained_on_or_demonstrated(file):
    sweep = read_sweep(file)
    for work in plan_work(sweep, Path("/sweep")):
        config = resolve(work.preset, None, work.settings)
        mixture = Mixture.parse(config.task.env, shown_params(config))
        trained = {registry.task_of(game, 0, mixture.own_params(game)).task_class for game, _ in mixture.weights}
        evaluated = [sweep.env, *(changes["env"] for changes in work.evaluation.get("also", {}).values())]
        unseen = {registry.task_of(game, 0, {}).task_class for game in evaluated} - trained
        assert len(trained) == 5
        assert len(unseen) == 2
        if "without" in work.name:
            first, second = re.findall(r"without (\w+) and (\w+)", work.name)[0]
            assert {name.split("/")[1] for name in unseen} == {first, second}


def row(method: str, seed: int, outcomes: list[list[int]], retries: list[list[int]]) -> dict[str, object]:
    """Trained on the signpost, evaluated on the camp, where it is new, and on the signpost, where it is not."""
    part = {"p": [0.0] * 3, "tasks": len(outcomes), "outcomes": outcomes, "control_outcomes": {"independent": retries}}
    settings = {"task.env": "expedition(world=signpost):2,bandit"}
    seen = {"env": "expedition(world=signpost)", **part}
    return {"env": "expedition(world=camp)", "method": method, "seed": seed, "settings": settings, **part} | {
        "also": {"signpost": seen}
    }


def test_a_gain_is_of_unseen_games_and_what_luck_is_worth_is_taken_off(gains):
    first, third, never = [1, 0, 0], [0, 0, 1], [0, 0, 0]
    rows = [row("meta-RL", seed, [first, third, third, never], [first, third, never, never]) for seed in (0, 1)] + [
        row("RL", seed, [first, never, never, never], [first, never, never, never]) for seed in (0, 1)
    ]
    (rl, meta) = gains.gains(rows)
    assert [(gain.game, gain.method) for gain in (rl, meta)] == [("camp", "RL"), ("camp", "meta-RL")]
    line = gains.table([rl, meta, meta._replace(method="warm start")]).splitlines()[3]
    # Of four tasks 1 is won at once, 3 within three attempts, and 2 without memory: +50 and +25 points; RL wins 1.
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells[:5] == ["`camp`", "meta-RL", "2", "25.0", "75.0"]
    assert [cell.split()[0] for cell in cells[5:]] == ["+50.0", "+25.0", "+50.0", "+0.0"]


@pytest.mark.parametrize("figures", sorted(FOLDER.glob("*-gains.md")), ids=lambda file: file.stem)
def test_the_committed_figures_are_those_of_the_committed_table(gains, figures):
    table = figures.with_name(figures.name.replace("-gains.md", ".json"))
    assert gains.table(gains.gains(read_rows([table]))) == figures.read_text()


def test_the_page_has_the_committed_figures():
    page = (FOLDER.parents[1] / "docs" / "transfer.md").read_text()
    for line in (FOLDER / "nano-gains.md").read_text().splitlines()[2:]:
        game, agent, _, *figures = (cell.strip() for cell in line.split("|")[1:-1])
        assert f"| {game} | {agent} | {' | '.join(figures[:4])} |" in page
