"""The journal as a callback of LiteLLM: for its proxy, or its library, in the place of ours.

A file beside LiteLLM's configuration, which names it as ``litellm_settings: {callbacks: journal_callback.handler}``:

    import mulligan
    from mulligan.serve.litellm import JournalCallback

    handler = JournalCallback(mulligan.Journal("sqlite:///agent.db", namespace="shop"))

A request takes part if it names its episode: with ``metadata={"mulligan_episode": "ticket-18", "mulligan_class": …}``,
or with the headers of our proxy. Its outcome comes from your system: ``journal.attach("ticket-18").finish(1.0)``.
LiteLLM calls it for asynchronous requests alone, as its proxy makes them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from litellm.integrations.custom_logger import CustomLogger

from mulligan.errors import MulliganError, UsageError
from mulligan.journal.journal import Journal
from mulligan.serve.dialects import task_in, with_context

_MOST_UNDER_WAY = 10_000
"""Requests whose messages are kept until their answer; LiteLLM may drop one without a word."""


class JournalCallback(CustomLogger):  # type: ignore[misc]
    """Adds a journal's notes to requests and stores what was said. What fails in it turns no request away."""

    log = logging.getLogger("mulligan.serve")

    def __init__(self, journal: Journal, context_tokens: int = 1500) -> None:
        super().__init__()
        self.journal, self.context_tokens = journal, context_tokens
        self._asked: OrderedDict[str, tuple[str, list[Any]]] = OrderedDict()

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        """Called by LiteLLM before a request goes to a model."""
        named, messages = _named(kwargs), kwargs.get("messages")
        if not named.get("episode") or not isinstance(messages, list):
            return None
        try:
            context = await asyncio.to_thread(self._context, named, messages)
        except MulliganError as error:
            self.log.error("a request goes on without the journal: %s", error)
            return None
        self._asked[str(kwargs.get("litellm_call_id"))] = named["episode"], messages
        while len(self._asked) > _MOST_UNDER_WAY:
            self._asked.popitem(last=False)
        return {**kwargs, **with_context({"messages": messages}, "chat", context, "user")} if context else None

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        """Called by LiteLLM when the answer is complete, streams included."""
        asked = self._asked.pop(str(kwargs.get("litellm_call_id")), None)
        if asked is None:
            return
        episode_id, messages = asked
        try:
            transcript = [*messages, _reply(response_obj)]
            await asyncio.to_thread(lambda: self.journal.attach(episode_id).keep(transcript))
        except MulliganError as error:
            self.log.error("what was said in episode %s is not stored: %s", episode_id, error)

    async def async_log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self._asked.pop(str(kwargs.get("litellm_call_id")), None)

    def _context(self, named: Mapping[str, str], messages: list[Any]) -> str:
        id, task_class = named["episode"], named.get("class") or "default"
        task = named.get("task") or task_in({"messages": messages}, "chat")
        others = {name: named[name] for name in ("agent", "person") if name in named}
        try:
            episode = self.journal.attach(id)
        except UsageError:
            untrusted = named.get("untrusted", "").lower() in ("1", "true")
            episode = self.journal.episode(task, task_class, id=id, untrusted=untrusted, **others)
        return episode.context(self.context_tokens)


def _named(kwargs: Mapping[str, Any]) -> dict[str, str]:
    """What headers and metadata say of the episode; metadata counts where both do."""
    metadata = kwargs.get("metadata") or kwargs.get("litellm_metadata") or {}
    request = kwargs.get("proxy_server_request") or {}
    headers = {**(request.get("headers") or {}), **(metadata.get("headers") or {})}
    by_header = {name.lower().removeprefix("mulligan-"): text for name, text in headers.items() if _is_ours(name, "-")}
    by_metadata = {name.removeprefix("mulligan_"): text for name, text in metadata.items() if _is_ours(name, "_")}
    return {name: str(text) for name, text in (by_header | by_metadata).items()}


def _is_ours(name: Any, joint: str) -> bool:
    return isinstance(name, str) and name.lower().startswith(f"mulligan{joint}")


def _reply(response: Any) -> Any:
    with suppress(AttributeError, IndexError, TypeError):
        message = response.choices[0].message.model_dump(exclude_none=True)
        return {name: value for name, value in message.items() if value and name != "provider_specific_fields"}
    return {"role": "assistant", "content": str(response)}
