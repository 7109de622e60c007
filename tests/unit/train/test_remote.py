"""What of a training run with a server needs no server; `tests/remote` trains with a real one."""

from __future__ import annotations

import pytest

from mulligan.errors import ParameterError
from mulligan.training.resolve import resolve


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"algo.kl_weight": "0.1"}, "algo.kl_weight must be 0 where backend.kind = tinker: its servers compute no KL"),
        ({"algo.entropy_weight": "0.01"}, "algo.entropy_weight must be 0"),
        ({"algo.estimator": "ppo"}, "needs an estimator without a critic"),
        ({"engine.kind": "vllm"}, "engine.kind must be auto where backend.kind = tinker (got vllm)"),
        ({"trial.temperature": "0.7"}, "trial.temperature must be 1"),
        ({"population.agents": "2", "population.past": "0.2"}, "population.past must be 0"),
        ({"population.agents": "2", "population.vary": "trial.temperature"}, "population.vary must not name"),
        ({"population.agents": "2", "backend.rank": "0"}, "backend.rank must be >= 1 in a population"),
        ({"warmstart.steps": "10"}, "warmstart.steps must be 0"),
        ({"backend.url": ""}, "backend.url must name a server"),
        ({"model.name": "nano"}, "model.name must be the server's base model"),
    ],
)
def test_what_a_server_cannot_do_is_refused_in_one_line(flags, message):
    given = {"task.env": "bandit", "backend.kind": "tinker", "backend.url": "http://127.0.0.1:1", "model.name": "m/m"}
    with pytest.raises(ParameterError) as refused:
        resolve(None, None, {**given, **flags})
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
