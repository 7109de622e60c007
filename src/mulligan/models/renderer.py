"""Chat template -> token ids, turn by turn and append-only.

An agent's sequence grows: what the model sampled stays as it is, and each turn appends what closes the reply, the next
message and the opening of the next reply. So the constant texts between the messages are cut out of the template once,
by rendering conversations of marker words, and every turn is put together from them.

The ids are those the template gives for the whole conversation, with two deliberate exceptions: where a template
changes an earlier turn, e.g. drops its thoughts, the turn stays as sampled; and control tokens spelled out inside a
message are encoded as ordinary text, since what an environment says is not to be trusted.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from tokenizers import AddedToken, Tokenizer

from mulligan.errors import UsageError
from mulligan.types import Message

Role = Literal["system", "user", "assistant", "tool"]

_CACHED_TEXTS = 4096
_ANCHOR, _CUT = "\U000f5a01", "\U000f5a02"  # private-use characters: nobody's text
_LONG, _PIECE = 50_000, 500
"""Characters from which on a text is tokenized piece by piece: tokenizers are quadratic in runs of line breaks: a
million would take hours."""
_MARKS = ("kqzv{}wxj", "Jhvbq{}Zd")
_PADDING = " \n\t{} \n"
_TALK: tuple[Role, ...] = ("user", "assistant", "user", "assistant", "user")
_CALL: tuple[Role, ...] = ("user", "assistant", "tool")


class Renderer:
    """Renders the conversations of one tokenizer's chat template.

    A template that takes no system message gets it in front of the first user message. Raises `UsageError` where there
    is no template or it cannot be followed. `tools`, as chat interfaces take them, are told of as the template does.
    """

    def __init__(self, tokenizer: Any, tools: Sequence[Mapping[str, Any]] = ()) -> None:
        self.tokenizer, self.tools = tokenizer, list(tools)
        self._form = form = _read_form(_Templated(tokenizer, self.tools))
        encoder = _Encoder(tokenizer)
        self._start = encoder.literal(form.start, at_start=True)
        self._start_empty = encoder.literal(form.start_empty, at_start=True)
        if form.system is not None:
            self._system = encoder.literal(form.system[0], at_start=True), encoder.literal(form.system[1])
        self._answer, self._close = answer, close = encoder.literal(form.answer), encoder.literal(form.close)
        self._tool_answer, self._tool_close = answer, close
        if form.tool is not None:
            self._tool_close, self._tool_answer = map(encoder.literal, form.tool)
        self.end_id = close.ids[0] if close.ids and not close.left.strip() else None
        """The template's end of a turn; None where it has no token for that."""
        self.stop_ids = frozenset(number for number in (tokenizer.eos_token_id, self.end_id) if number is not None)
        """Ids that end a reply: the end of the text and the template's end of a turn."""
        if not self.stop_ids:
            raise UsageError(f"{_name(tokenizer)} has no token that ends a reply (eos or end of turn)")
        encoder.guard({*self._start.ids, *close.ids, *self._tool_close.ids, *self._tool_answer.ids, *self.stop_ids})
        self._text, self._decode = encoder.text, encoder.decode
        self._before_user = _Between.of(close, answer, self._text)
        self._before_tool = _Between.of(self._tool_close, self._tool_answer, self._text)
        self._offering: dict[str, Renderer | None] = {}

    def __reduce__(self) -> tuple[Callable[..., Renderer], tuple[Any, ...]]:
        """To other processes goes the tokenizer, and they read its template again."""
        return type(self), (self.tokenizer, self.tools)

    def offering(self, tools: Sequence[Mapping[str, Any]]) -> Renderer | None:
        """The renderer of conversations in which the model may call `tools`; None where the template takes none."""
        key = json.dumps(tools)
        if key not in self._offering:
            with_tools = None
            with suppress(UsageError):
                with_tools = Renderer(self.tokenizer, tools)
            shows_tools = with_tools is not None and tools[0]["function"]["name"] in with_tools._form.start
            self._offering[key] = with_tools if shows_tools else None
        return self._offering[key]

    def opening(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a first prompt: [system,] user[, assistant, user, …], and the opening of the reply."""
        system = messages[0]["content"] if messages[0]["role"] == "system" else None
        turns = messages if system is None else messages[1:]
        form, trims = self._form, self._form.trims
        first = turns[0]["content"]
        parts: list[_Literal | str] = [self._start]
        if system is not None and form.system is None:
            first = f"{system}\n\n{first}"
        elif system is not None:
            system = trims["system"](system)
            parts = [self._system[0], system, self._system[1]] if system else [self._start_empty]
        parts.append(trims["user"](first))
        answer = self._answer
        for message in turns[1:]:
            before = {"assistant": answer, "tool": self._tool_close}.get(message["role"], self._close)
            parts += [before, trims[message["role"]](message["content"])]
            answer = self._tool_answer if message["role"] == "tool" else self._answer
        return self._assemble([*parts, answer])

    def following(self, reply_ids: Sequence[int], message: Message) -> list[int]:
        """Ids to append after a sampled reply: the end of its turn, the message, the opening of the next reply.

        Where the reply's last id is the end of the turn, it is not repeated.
        """
        between = self._before_tool if message["role"] == "tool" else self._before_user
        head = between.closed if reply_ids and reply_ids[-1] == self.end_id else between.unclosed
        text = between.before + self._form.trims[message["role"]](message["content"]) + between.after
        return [*head, *self._text(text), *between.tail]

    def decode_reply(self, ids: Sequence[int]) -> str:
        """The text of a sampled reply, without the token that ended it."""
        end = len(ids) - 1 if ids and ids[-1] in self.stop_ids else len(ids)
        return self._decode(ids[:end])

    def encode_reply(self, text: str) -> list[int]:
        """A reply as a model would have sampled it, with the token that ends it: for demonstrations."""
        end = self.end_id if self.end_id is not None else min(self.stop_ids)
        return [*self._text(text), end]

    def count(self, text: str) -> int:
        return len(self._text(text))

    def _assemble(self, parts: Iterable[_Literal | str]) -> list[int]:
        """Ids of a whole text; what stands between two control tokens is encoded together, as the template's is."""
        ids: list[int] = []
        run, at_start = "", True
        for part in parts:
            if isinstance(part, str):
                run += part
                continue
            run += part.left
            if part.ids:
                ids += self._text(run, at_start)
                ids += part.ids
                run, at_start = part.right, False
        return [*ids, *self._text(run, at_start)]


def _name(tokenizer: Any) -> str:
    return f"the tokenizer {getattr(tokenizer, 'name_or_path', '')!r}"


class _Unfit(Exception):
    """A conversation that the template does not render as contents between constant texts."""


class _Form(NamedTuple):
    """What a template writes around the contents."""

    start: str
    """Before the first user message, where there is no system message; may hold a default one."""
    start_empty: str
    """The same, with a system message that is empty."""
    system: tuple[str, str] | None
    """Before the system message, and between it and the first user message; None where the template takes none."""
    answer: str
    """Between a user message and the reply."""
    close: str
    """Between a reply and the next user message."""
    tool: tuple[str, str] | None
    """Between a reply and the result of its call, and between that and the next reply; None: as of a user message."""
    trims: dict[str, Callable[[str], str]]
    """What the template does to the ends of a content, by role."""


class _Templated(NamedTuple):
    """A tokenizer with its chat template, and the tools that the template is given."""

    tokenizer: Any
    tools: Sequence[Mapping[str, Any]]


def _read_form(templated: _Templated) -> _Form:
    if not getattr(templated.tokenizer, "chat_template", None):
        raise UsageError(f"{_name(templated.tokenizer)} has no chat template; use an instruction-tuned model's")
    trims: dict[str, Callable[[str], str]] = dict.fromkeys(("user", "assistant", "system", "tool"), str)
    try:
        start, answer = _around(templated, ["user"])
        texts = _around(templated, _TALK)
        if texts[2] != texts[4]:
            raise _Unfit("what closes a reply depends on its place")
        trims["user"] = _trim(templated, "user", _TALK, texts)
    except _Unfit as why:
        raise UsageError(f"the chat template of {_name(templated.tokenizer)} cannot be followed: {why}") from None
    system, start_empty = _read_system(templated, answer, start)
    with suppress(_Unfit):  # the template may change what it shows of earlier turns
        trims["assistant"] = _trim(templated, "assistant", _TALK, texts)
        if system is not None:
            trims["system"] = _trim(templated, "system", ("system", "user"), (*system, answer))
    tool, trims["tool"] = _read_tool(templated, trims["user"])
    return _Form(start, start_empty, system, answer, texts[2], tool, trims)


def _read_tool(
    templated: _Templated, as_user: Callable[[str], str]
) -> tuple[tuple[str, str] | None, Callable[[str], str]]:
    """What stands before and after the result of a tool's call, and what becomes of its ends."""
    with suppress(_Unfit):
        if templated.tools:
            texts = _around(templated, _CALL)
            return (texts[2], texts[3]), _trim(templated, "tool", _CALL, texts)
    return None, as_user


def _read_system(templated: _Templated, answer: str, start: str) -> tuple[tuple[str, str] | None, str]:
    """What stands before and after a system message, and before the first user message where it is empty."""
    with suppress(_Unfit):
        before, after, rest = _around(templated, ("system", "user"))
        if rest == answer:
            mark = _MARKS[0].format(0)
            return (before, after), _render(templated, ("system", "user"), ("", mark)).partition(mark)[0]
    return None, start


def _render(templated: _Templated, roles: Sequence[Role], contents: Sequence[str]) -> str:
    """The text of a conversation, the opening of the reply included."""
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
    options = {"tools": templated.tools} if templated.tools else {}
    try:
        text = templated.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options)
        return str(text)
    except Exception as refusal:  # templates raise what they like
        raise _Unfit(f"{type(refusal).__name__}: {refusal}") from refusal


def _around(templated: _Templated, roles: Sequence[Role]) -> tuple[str, ...]:
    """The texts before, between and after the contents of a conversation; they must not depend on the contents."""
    renderings = set()
    for mark in _MARKS:
        marks = [mark.format(number) for number in range(len(roles))]
        match = re.fullmatch("(.*)" + "".join(f"{mark}(.*)" for mark in marks), _render(templated, roles, marks), re.S)
        renderings.add(match.groups() if match else None)
    (texts, *others) = renderings
    if texts is None or others or any(mark[:4] in text for mark in _MARKS for text in texts):
        raise _Unfit("the messages do not each appear once, in order, between constant texts")
    return texts


def _trim(templated: _Templated, role: Role, roles: Sequence[Role], texts: Sequence[str]) -> Callable[[str], str]:
    """What happens to the ends of the contents of `role` in a conversation with these texts around them."""
    marks = [_MARKS[0].format(number) for number in range(len(roles))]
    padded = [_PADDING.format(mark) if each == role else mark for each, mark in zip(roles, marks, strict=True)]
    rendered = _render(templated, roles, padded)
    for trim in (str, str.strip, str.rstrip, str.lstrip):
        contents = [trim(content) for content in padded]
        if rendered == "".join(text + content for text, content in zip(texts, [*contents, ""], strict=True)):
            return trim
    raise _Unfit(f"{role} messages are changed by the template")


class _Literal(NamedTuple):
    """A text of the template, as ids from its first to its last control token and as text on both sides of them."""

    left: str
    """All of it, where it holds no control token."""
    ids: tuple[int, ...]
    right: str


class _Between(NamedTuple):
    """The constant parts of what follows a reply: ids before and after, and the texts encoded with the message."""

    unclosed: tuple[int, ...]
    """Where the reply was cut off before the end of its turn."""
    closed: tuple[int, ...]
    before: str
    after: str
    tail: tuple[int, ...]

    @classmethod
    def of(cls, close: _Literal, answer: _Literal, encode: Callable[[str], tuple[int, ...]]) -> _Between:
        unclosed = (*encode(close.left), *close.ids) if close.ids else ()
        before = close.right if close.ids else close.left
        return cls(unclosed, close.ids[1:], before, answer.left, (*answer.ids, *encode(answer.right)))


class _Encoder:
    """Encodes parts of a longer text, behind an anchor token: some tokenizers treat the start of a text specially."""

    def __init__(self, tokenizer: Any) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise UsageError(f"{_name(tokenizer)} is not a fast tokenizer (library tokenizers); Mulligan needs one")
        self._backend = copy.deepcopy(backend)
        self._backend.no_padding()
        self._backend.no_truncation()
        self._added = self._backend.get_added_tokens_decoder()
        self._backend.add_tokens([AddedToken(_ANCHOR, special=False, normalized=False)])
        self._control = self._backend.get_added_tokens_decoder().keys() - self._added.keys()
        self.text: Callable[..., tuple[int, ...]] = lru_cache(maxsize=_CACHED_TEXTS)(self._encode_text)
        """(text, at_start=False) -> ids, without control tokens. Only after `guard`."""

    def guard(self, ids: Iterable[int]) -> None:
        """From now on no text yields a special token, nor one of `ids`, which the tokenizer may not mark as special."""
        self._backend.encode_special_tokens = True
        self._control |= self._added.keys() & set(ids)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._backend.decode(list(ids), skip_special_tokens=False))

    def literal(self, text: str, *, at_start: bool = False) -> _Literal:
        """A text of the template, whose control tokens count as such. Only before `guard`."""
        shift = 0 if at_start else 1
        encoding = self._backend.encode(text if at_start else _ANCHOR + text, add_special_tokens=False)
        ids, offsets = encoding.ids[shift:], encoding.offsets[shift:]
        control = [index for index, number in enumerate(ids) if number in self._added]
        if not control:
            return _Literal(text, (), "")
        first, last = 0 if at_start else control[0], control[-1]
        left = "" if at_start else text[: offsets[first][0] - shift]
        return _Literal(left, tuple(ids[first : last + 1]), text[offsets[last][1] - shift :])

    def _encode_text(self, text: str, at_start: bool = False) -> tuple[int, ...]:
        ids = self._plain(text, at_start) if text else []
        return tuple(ids) if self._control.isdisjoint(ids) else self._defused(text, at_start)

    def _plain(self, text: str, at_start: bool) -> list[int]:
        if len(text) > _LONG:
            pieces = [text[begin : begin + _PIECE] for begin in range(0, len(text), _PIECE)]
            return [number for piece in pieces for number in self._plain(piece, at_start and piece is pieces[0])]
        if at_start:
            return list(self._backend.encode(text, add_special_tokens=False).ids)
        return list(self._backend.encode(_ANCHOR + text, add_special_tokens=False).ids[1:])

    def _defused(self, text: str, at_start: bool) -> tuple[int, ...]:
        """Ids of a text that spells out control tokens which the tokenizer does not mark as special: cut in two."""
        names = sorted((self._added[number].content for number in self._control & self._added.keys()), key=len)
        pattern = "|".join(re.escape(name) for name in reversed(names))
        text = text.replace(_ANCHOR, "").replace(_CUT, "")
        ids: list[int] = []
        for part in re.sub(pattern, lambda match: match[0][0] + _CUT + match[0][1:], text).split(_CUT):
            ids += self._plain(part, at_start and not ids)
        return tuple(number for number in ids if number not in self._control)
