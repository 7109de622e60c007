"""Gradient checkpointing by whichever name transformers has for it."""

from __future__ import annotations

import warnings

import pytest
from torch import nn

from mulligan.models.load import is_checkpointed, load, old_name_allowed, use_checkpointing


class OldModel(nn.Module):
    """As transformers' models were before the name changed."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.layer.gradient_checkpointing = False

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: dict[str, bool]) -> None:
        assert gradient_checkpointing_kwargs == {"use_reentrant": False}
        self.layer.gradient_checkpointing = True

    def gradient_checkpointing_disable(self) -> None:
        self.layer.gradient_checkpointing = False


@pytest.mark.parametrize("make", [OldModel, lambda: load("nano:hidden=32,layers=1").model], ids=["old", "installed"])
def test_it_is_turned_on_and_off_without_a_warning(make):
    model = make()
    assert not is_checkpointed(model)
    for wanted in (True, True, False, False):
        use_checkpointing(model, wanted)
        assert is_checkpointed(model) == wanted


def test_only_the_old_name_is_not_warned_of():
    with old_name_allowed():
        warnings.warn("`is_gradient_checkpointing` is deprecated", FutureWarning, stacklevel=1)
        with pytest.raises(FutureWarning, match="something else"):
            warnings.warn("something else is deprecated", FutureWarning, stacklevel=1)
