"""The tiny model and its tokenizer. After prompts were reworded: UPDATE_NANO=1 pytest tests/unit/models/test_nano.py"""

from __future__ import annotations

import json
import os
from functools import lru_cache

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import mulligan
import nano_vocabulary
from mulligan.errors import ParameterError, UnknownName
from mulligan.models import nano
from mulligan.models.renderer import Renderer
from mulligan.policy.scripted import ExpertPolicy

GAMES = [
    ("minesweeper", {"view": "compact"}),
    ("minesweeper", {"view": "compact", "mines": 4}),
    ("minesweeper", {}),
    ("sokoban", {}),
    ("sokoban", {"boxes": 1, "moves": 1, "solution": 7}),
    ("tictactoe", {"seat": 1}),
    ("tictactoe", {"seat": 2}),
    ("kuhn", {"seat": 1}),
    ("kuhn", {"seat": 2}),
    ("bandit", {}),
]


class Recorder(ExpertPolicy):
    """A scripted player that keeps every message list it is shown; the lists go on growing as the trial does."""

    def __init__(self) -> None:
        super().__init__(0.5, 0.5)
        self.seen: list[list[dict[str, str]]] = []

    def start(self, task, seed):
        conversation = super().start(task, seed)
        answer = conversation.reply

        async def reply(messages, sampling):
            if not self.seen or self.seen[-1] is not messages:
                self.seen.append(messages)
            return await answer(messages, sampling)

        conversation.reply = reply
        return conversation


@lru_cache(maxsize=1)
def said() -> tuple[str, ...]:
    """What environments, runner and players say, in every style and memory mode."""
    pytest.importorskip("pyspiel")
    recorder = Recorder()
    for env, params in GAMES:
        for style in ("plain", "zero-shot", "react", "bare"):
            for memory in ("reflection", "history", "both", "none"):
                for seed in range(2 if os.environ.get("UPDATE_NANO") else 1):
                    task = mulligan.make_task(env, seed, params=params)
                    mulligan.run_trial_sync(task, recorder, style=style, memory=memory, episodes=3, stop="never")
    return tuple(message["content"] for messages in recorder.seen for message in messages)


@lru_cache(maxsize=2)
def built(phrases: int):
    return nano_vocabulary.build_tokenizer(said(), phrases=phrases)


@lru_cache(maxsize=1)
def shipped():
    return nano.nano_tokenizer()


@pytest.fixture
def tokenizer():
    return shipped()


def ids(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False).input_ids


# ------------------------------------------------------------------------------------------------------- the tokenizer


def test_the_shipped_tokenizer_suits_what_is_said_today():
    """Not the same as a fresh one, since ids should not change with every comma, but hardly longer."""
    fresh = built(384)
    if os.environ.get("UPDATE_NANO"):
        nano.TOKENIZER_FILE.write_text(fresh.to_str(pretty=True) + "\n", encoding="utf-8")
    now = nano.nano_tokenizer().backend_tokenizer
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        assert json.loads(now.to_str())[part] == json.loads(fresh.to_str())[part], "rebuild with UPDATE_NANO=1"
    lengths = [sum(len(encoding.ids) for encoding in which.encode_batch(list(said()))) for which in (now, fresh)]
    assert lengths[0] <= 1.1 * lengths[1], "prompts were reworded: rebuild with UPDATE_NANO=1"


def test_building_depends_on_what_is_said_alone():
    texts = said()[:600]
    assert nano_vocabulary.build_tokenizer(texts).to_str() == nano_vocabulary.build_tokenizer(reversed(texts)).to_str()


def test_phrases_halve_what_is_said_over_and_over():
    """The reason for having phrases at all, on compact MineSweeper's rules and reflection request."""
    rules = next(text for text in said() if text.startswith("MineSweeper"))
    request = next(text for text in said() if "Write a short reflection" in text)
    for text in (rules, request):
        assert 2 * len(built(384).encode(text).ids) < len(built(0).encode(text).ids)


def test_vocabulary_and_file_stay_small(tokenizer):
    assert len(tokenizer) <= 2048
    assert nano.TOKENIZER_FILE.stat().st_size < 150_000


def test_each_cell_and_fact_is_one_token_of_its_own(tokenizer):
    words = (*nano_vocabulary.CELLS, *nano_vocabulary.FACTS)
    assert len(words) == 64 + 64 * 11
    found = [ids(tokenizer, word) for word in words]
    assert all(len(one) == 1 for one in found)
    assert len({one[0] for one in found}) == len(words)
    assert [tokenizer.decode(one) for one in found] == list(words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a1=0 b1=1 c1=0", ["a1=0", "b1=1", "c1=0"]),
        ("mine b2", ["mine", "b2"]),
        ("safe a1 b1", ["safe", "a1", "b1"]),
        ("<action>b3</action>", ["<action>", "b3", "</action>"]),
        ("<action>(2, 3)</action>", ["<action>", "(2,", "3)", "</action>"]),
        ("b3=*", ["b3=*"]),
    ],
)
def test_one_token_a_word(tokenizer, text, words):
    assert [tokenizer.decode([number]) for number in ids(tokenizer, text)] == words


def test_a_cell_is_the_same_token_wherever_it_stands(tokenizer):
    (cell,) = ids(tokenizer, "b3")
    for text in ("safe b3 a1", "x\nb3", "x\n\nb3, a1", "<action>b3</action>", "plan: b3.", "b3\n", "(b3 or b3)"):
        assert cell in ids(tokenizer, text)
    for text in ("ab3", "b33", "b3x", "b3=9", "b9", "b3=22"):
        assert cell not in ids(tokenizer, text)


def test_a_number_is_one_token_a_digit(tokenizer):
    """So that a number that was never said still reads as one: 12 turns, 6 rows."""
    for digits in ("7", "12", "305"):
        for text in (digits, f"at most {digits} turns.", f"({digits} turns left)"):
            held = [tokenizer.decode([number]) for number in ids(tokenizer, text)]
            assert "".join(token for token in held if token.isdecimal()) == digits
            assert all(len(token) == 1 for token in held if any(letter.isdecimal() for letter in token))


PARTS = st.sampled_from(
    ["b3", "b3=1", "a1=*", " ", "  ", "\n", "\t", "<action>", "</action>", "(2, 3)", "12", "é", ".", "x"]
)


@settings(max_examples=100)
@given(text=st.one_of(st.text(max_size=40), st.lists(PARTS, max_size=12).map("".join)))
@example("\n <action> \n<action>\n b3 ")
@example("▁Ġ\u00a0\x00\r\n")
def test_any_text_round_trips(text):
    tokenizer = shipped()
    assert tokenizer.decode(ids(tokenizer, text)) == text


def test_all_that_is_said_round_trips(tokenizer):
    texts = sorted(set(said()))
    assert [tokenizer.decode(ids(tokenizer, text)) for text in texts] == texts


# -------------------------------------------------------------------------------------------------- the chat template


def test_a_turn_costs_two_tokens_beside_its_words(tokenizer):
    render = Renderer(tokenizer)
    end, assistant = tokenizer.convert_tokens_to_ids([nano.END, nano.ASSISTANT])
    (reply,), (fact,) = ids(tokenizer, "b3"), ids(tokenizer, "b3=1")
    assert render.following([reply, end], {"role": "user", "content": "b3=1"}) == [fact, assistant]
    assert render.stop_ids == {end}
    assert render.decode_reply([reply, end]) == "b3"


def test_an_empty_system_message_leaves_no_trace(tokenizer):
    render = Renderer(tokenizer)
    user, rules = {"role": "user", "content": "all closed"}, {"role": "system", "content": "rules"}
    assert render.opening([{"role": "system", "content": ""}, user]) == render.opening([user])
    assert len(render.opening([rules, user])) > len(render.opening([user]))


@given(contents=st.lists(st.text(alphabet="ab3=* \n<>|é", max_size=12), min_size=5, max_size=5))
def test_turn_by_turn_equals_the_whole_conversation(contents):
    tokenizer = shipped()
    render = Renderer(tokenizer)
    roles = ("system", "user", "assistant", "user")
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    whole = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    sampled = [*ids(tokenizer, contents[2]), tokenizer.eos_token_id]
    grown = [*render.opening(messages[:2]), *sampled, *render.following(sampled, messages[3])]
    assert grown == ids(tokenizer, whole) == render.opening(messages)


# ----------------------------------------------------------------------------------------------------------- the model


def test_the_default_is_small_and_sizes_can_be_changed():
    model = nano.nano_model(0)
    assert 300_000 <= model.num_parameters() <= 3_000_000
    assert model.config.vocab_size == len(nano.nano_tokenizer())
    wider = nano.nano_model(0, hidden=128, layers=3, context=256)
    assert (wider.config.hidden_size, wider.config.num_hidden_layers) == (128, 3)
    assert wider.config.max_position_embeddings == 256


def test_the_seed_draws_the_weights_and_nothing_else_is_touched():
    before = torch.get_rng_state()
    first, again, other = (nano.nano_model(seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["model.embed_tokens.weight"], other["model.embed_tokens.weight"])


@pytest.mark.parametrize(
    ("size", "error", "told"),
    [
        ({"layer": 3}, UnknownName, "layers"),
        ({"layers": 0}, ParameterError, "layers"),
        ({"hidden": 100, "heads": 8}, ParameterError, "16"),
    ],
)
def test_an_impossible_size_is_refused(size, error, told):
    with pytest.raises(error, match=told):
        nano.nano_model(0, **size)
