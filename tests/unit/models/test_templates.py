"""The renderer against the chat templates of the families people train: SmolLM2, Qwen3 and Llama 3.

The templates here are written anew, with the control tokens and the behaviour of the families' own:

SmolLM2  a default system message where none is given
Qwen3    thoughts in <think> blocks: dropped from earlier turns
Llama 3  a beginning of text, headers, and a system turn with a date in every conversation
"""

from __future__ import annotations

import re
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from mulligan.models.renderer import Renderer

SMOLLM2 = """
{%- if messages[0]['role'] != 'system' -%}
{{ '<|im_start|>system\n' + 'You are Smol, a helpful assistant' + '<|im_end|>\n' }}
{%- endif -%}
{%- for m in messages -%}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}
"""
QWEN3 = """
{%- set last = namespace(question=-1) -%}
{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set last.question = loop.index0 -%}{%- endif -%}{%- endfor -%}
{%- for m in messages -%}
{%- set said = namespace(thought=m.reasoning_content | default(''), text=m.content) -%}
{%- if m.role == 'assistant' and '</think>' in m.content -%}
{%- set said.thought = m.content.split('</think>')[0].split('<think>')[-1].strip('\n') -%}
{%- set said.text = m.content.split('</think>')[-1].lstrip('\n') -%}
{%- endif -%}
{{ '<|im_start|>' + m.role + '\n' }}
{%- if m.role == 'assistant' and loop.index0 > last.question -%}
{{ '<think>\n' + said.thought + '\n</think>\n\n' }}
{%- endif -%}
{{ said.text + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and enable_thinking is false -%}{{ '<think>\n\n</think>\n\n' }}{%- endif -%}
{%- endif -%}
"""
LLAMA3 = """
{{- bos_token -}}
{%- set date = date_string | default('26 Jul 2024') -%}
{%- if messages[0]['role'] == 'system' -%}
{%- set system = messages[0]['content'] | trim -%}{%- set turns = messages[1:] -%}
{%- else -%}
{%- set system = '' -%}{%- set turns = messages -%}
{%- endif -%}
{{ '<|start_header_id|>system<|end_header_id|>\n\n' }}
{{- 'Knowledge until: December 2023\nToday Date: ' + date + '\n\n' + system + '<|eot_id|>' -}}
{%- for m in turns -%}
{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif -%}
"""
TEMPLATES = {"smollm2": SMOLLM2, "qwen3": QWEN3, "llama3": LLAMA3}
CONTROL = {
    "smollm2": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    "qwen3": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    "llama3": (
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eom_id|>",
        "<|eot_id|>",
    ),
}
# Qwen3 and Llama 3 cut text alike, but for the digits: one by one, and up to three at a time.
_CUTS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}"
    r"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DIGITS = {"qwen3": r"\p{N}", "llama3": r"\p{N}{1,3}"}
WORDS = [
    "user\n",
    "system\n\n",
    "assistant\n",
    "\n\n",
    "the mine is at b3",
    "Today Date: 26 Jul 2024",
    " \n\n",
    "think",
]


@lru_cache(maxsize=4)
def tokenizer(family: str) -> PreTrainedTokenizerFast:
    """A small tokenizer that cuts text and marks its control tokens as the family's does."""
    bpe = Tokenizer(models.BPE())
    if family == "smollm2":
        cuts = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    else:
        split = pre_tokenizers.Split(Regex(_CUTS.format(digits=DIGITS[family])), "isolated")
        cuts = [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    bpe.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, min_frequency=1, show_progress=False)
    bpe.train_from_iterator(WORDS * 2, trainer)
    bpe.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROL[family]])
    options = {"bos_token": CONTROL[family][1], "eos_token": "<|im_end|>"}
    if family == "qwen3":  # its <think> is a token, but not a special one; and it has no beginning of text
        bpe.add_tokens([AddedToken(token, special=False, normalized=False) for token in ("<think>", "</think>")])
        del options["bos_token"]
    if family == "llama3":  # encoding adds the beginning of text, which its template writes as well
        options = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}
        begin = ("<|begin_of_text|>", bpe.token_to_id("<|begin_of_text|>"))
        bpe.post_processor = processors.TemplateProcessing(single=f"{begin[0]} $A", special_tokens=[begin])
    return PreTrainedTokenizerFast(tokenizer_object=bpe, chat_template=TEMPLATES[family], **options)


@lru_cache(maxsize=8)
def renderer(family: str) -> Renderer:
    return Renderer(tokenizer(family))


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def reply(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}


def system(content: str) -> dict[str, str]:
    return {"role": "system", "content": content}


def text_of(family: str, messages: list[dict[str, str]]) -> str:
    """The template's own text of a whole conversation."""
    return tokenizer(family).apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def ids_of(family: str, messages: list[dict[str, str]]) -> list[int]:
    return tokenizer(family)(text_of(family, messages), add_special_tokens=False).input_ids


def grown(render: Renderer, messages: list[dict[str, str]], *, ended: bool = True) -> list[int]:
    """The ids of a conversation as a trial grows it; a reply that was not `ended` was cut off by the token limit."""
    first = next(place for place, message in enumerate(messages) if message["role"] == "user") + 1
    ids = render.opening(messages[:first])
    for said, message in zip(messages[first::2], messages[first + 1 :: 2], strict=True):
        sampled = render.encode_reply(said["content"])
        if not ended:
            sampled.pop()
        ids += [*sampled, *render.following(sampled, message)]
    return ids


contents = st.text(alphabet=st.sampled_from("ab 12=.\n\té<|>"), max_size=20)


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, str]]:
    messages = [system(draw(contents))] if draw(st.booleans()) else []
    messages.append(user(draw(contents)))
    for _ in range(draw(st.integers(0, 2))):
        messages += [reply(f"b{draw(contents).strip()}."), user(draw(contents))]
    return messages


@pytest.mark.parametrize("family", TEMPLATES)
@settings(max_examples=50, deadline=None)
@given(messages=conversations(), ended=st.booleans())
def test_a_grown_conversation_has_the_ids_of_the_whole_one(family, messages, ended):
    render = renderer(family)
    assert grown(render, messages, ended=ended) == ids_of(family, messages)
    assert render.opening(messages) == ids_of(family, messages)


@pytest.mark.parametrize(
    ("family", "end"), [("smollm2", "<|im_end|>"), ("qwen3", "<|im_end|>"), ("llama3", "<|eot_id|>")]
)
def test_a_reply_stops_at_the_end_of_the_turn_and_reads_without_it(family, end):
    render = renderer(family)
    number = tokenizer(family).convert_tokens_to_ids(end)
    assert render.end_id == number
    assert render.stop_ids == {number}
    sampled = tokenizer(family)("<action>b3</action>\n", add_special_tokens=False).input_ids
    for ids in (sampled, [*sampled, number]):
        assert render.decode_reply(ids) == "<action>b3</action>\n"


def test_a_base_models_end_of_text_stops_a_reply_too():
    """Llama 3's and Qwen3's base models name another eos than the end of a turn; both end a reply."""
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer("llama3").backend_tokenizer,
        bos_token="<|begin_of_text|>",
        eos_token="<|end_of_text|>",
        chat_template=LLAMA3,
    )
    render = Renderer(made)
    end_of_text, end_of_turn = made.convert_tokens_to_ids(["<|end_of_text|>", "<|eot_id|>"])
    assert render.stop_ids == {end_of_text, end_of_turn}
    assert render.decode_reply([*render.encode_reply("b3")[:-1], end_of_text]) == "b3"
    # What follows closes the turn, as the template does, behind the end of text that was sampled in its place.
    assert render.following([end_of_text], user("on"))[0] == end_of_turn


# ------------------------------------------------------------------------------------------------------------- SmolLM2


def test_smollm2_gets_its_default_system_message_only_where_there_is_none():
    def said(*messages: dict[str, str]) -> str:
        return tokenizer("smollm2").decode(renderer("smollm2").opening(messages))

    asked = "<|im_start|>user\ngo<|im_end|>\n<|im_start|>assistant\n"
    assert said(user("go")) == f"<|im_start|>system\nYou are Smol, a helpful assistant<|im_end|>\n{asked}"
    assert said(system("rules"), user("go")) == f"<|im_start|>system\nrules<|im_end|>\n{asked}"
    assert said(system(""), user("go")) == f"<|im_start|>system\n<|im_end|>\n{asked}"


# --------------------------------------------------------------------------------------------------------------- Qwen3

THOUGHT = "<think>\nb3 was a mine.\n</think>\n\n"


def test_qwen3_keeps_the_thoughts_it_sampled_and_its_template_drops():
    render = renderer("qwen3")
    messages = [user("go"), reply(f"{THOUGHT}a1"), user("on"), reply(f"{THOUGHT}a2"), user("and")]
    kept = tokenizer("qwen3").decode(grown(render, messages))
    assert kept.count(THOUGHT) == 2
    assert kept.replace(THOUGHT, "") == text_of("qwen3", messages)
    assert render.decode_reply(render.encode_reply(f"{THOUGHT}a1")) == f"{THOUGHT}a1"


def test_a_demonstrated_thought_has_the_tokens_that_qwen3_would_sample():
    render, words = renderer("qwen3"), tokenizer("qwen3")
    open_, close = words.convert_tokens_to_ids(["<think>", "</think>"])
    sampled = render.encode_reply(f"{THOUGHT}a1")
    assert (sampled.count(open_), sampled.count(close)) == (1, 1)


# -------------------------------------------------------------------------------------------------------------- Llama 3


def test_llama3_begins_once_with_its_date():
    render = renderer("llama3")
    messages = [system(" rules\n"), user(" go "), reply("a1"), user("on")]
    ids = grown(render, messages)
    assert ids == ids_of("llama3", messages)
    assert ids.count(tokenizer("llama3").bos_token_id) == 1
    assert tokenizer("llama3").decode(ids) == (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
        "Knowledge until: December 2023\nToday Date: 26 Jul 2024\n\nrules<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\ngo<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\na1<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\non<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_llama3_dates_a_conversation_without_a_system_message_too():
    said = tokenizer("llama3").decode(renderer("llama3").opening([user("go")]))
    assert "Today Date: 26 Jul 2024\n\n<|eot_id|>" in said


def test_a_template_that_asks_for_todays_date_is_asked_once():
    """Llama 3.2's does: a run that goes on past midnight keeps the prompt it began with."""
    words = tokenizer("llama3")
    dated = PreTrainedTokenizerFast(
        tokenizer_object=words.backend_tokenizer,
        bos_token="<|begin_of_text|>",
        eos_token="<|eot_id|>",
        chat_template=LLAMA3.replace("'26 Jul 2024'", "strftime_now('%d %b %Y')"),
    )
    render = Renderer(dated)
    dated.chat_template = LLAMA3.replace("26 Jul 2024", "tomorrow")
    said = dated.decode(render.opening([user("go")]))
    assert re.search(r"Today Date: \d\d \w{3} \d{4}\n\n<\|eot_id\|>", said)
