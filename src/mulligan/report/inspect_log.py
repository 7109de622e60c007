"""Trials as a log of inspect_ai, so that people can keep their viewer: `inspect view --log-dir FOLDER`.

A trial is a sample: all attempts in one conversation, as the agent had them. Each attempt and each reflection is a span
of events, an attempt ends with a score, and the sample's scores are solved, reward and the attempt it was solved at.
The file is written without inspect_ai, which is 60 packages; a test reads it back with inspect_ai itself.
"""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

from mulligan.types import Completion, Episode, Message, Trial

_VERSION = 2
"""Of inspect_ai's format of logs."""
Data = dict[str, Any]


def inspect_log(
    trials: Mapping[int, Trial], *, task: str, model: str, episodes: int, created: float, settings: Mapping[str, Any]
) -> Data:
    """The log of one arm: index in its task list -> trial."""
    when = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(created))
    samples = [_Sample(trial, model, when).data(place) for place, trial in sorted(trials.items())]
    solved = [trial.solved_at for trial in trials.values()]
    metrics = {
        f"p@{k}": sum(at is not None and at < k for at in solved) / max(1, len(solved)) for k in range(1, episodes + 1)
    }
    ids = [sample["id"] for sample in samples]
    return {
        "version": _VERSION,
        "status": "success",
        "eval": {
            "created": when,
            "task": task,
            "dataset": {"name": task, "samples": len(samples), "sample_ids": ids, "shuffled": False},
            "model": f"mulligan/{model}",
            "config": {"epochs": 1},
            "metadata": dict(settings),
        },
        "plan": {"name": "trial", "steps": []},
        "results": {
            "total_samples": len(samples),
            "completed_samples": len(samples),
            "scores": [
                {
                    "name": "solved",
                    "scorer": "solved",
                    "params": {},
                    "metrics": {name: {"name": name, "value": value, "params": {}} for name, value in metrics.items()},
                }
            ],
        },
        "stats": {"started_at": when, "completed_at": when, "model_usage": {}},
        "samples": samples,
    }


_IN_LIST = ("id", "epoch", "input", "target", "metadata", "scores")
"""What the list of samples shows of one."""


def as_eval(log: Data) -> bytes:
    """The log in the form that ends in ``.eval``, which `inspect view` lists under any name.

    A zip: what the log says of the whole, a line about each sample, and a file for each.
    """
    samples = log["samples"]
    summaries = [
        {name: sample[name] for name in _IN_LIST} | {"completed": True, "message_count": len(sample["messages"])}
        for sample in samples
    ]
    files = {
        "_journal/start.json": {name: log[name] for name in ("version", "eval", "plan")},
        **{f"samples/{sample['id']}_epoch_{sample['epoch']}.json": sample for sample in samples},
        "summaries.json": summaries,
        "header.json": {name: part for name, part in log.items() if name != "samples"},
    }
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, json.dumps(data))
    return content.getvalue()


class _Sample:
    """One trial on its way to a sample: the conversation so far, and its events."""

    def __init__(self, trial: Trial, model: str, when: str) -> None:
        self.trial, self.model, self.when = trial, f"mulligan/{model}", when
        self.everything: list[Data] = []
        """Messages of all attempts."""
        self.sequence: list[Data] = []
        """Those that the model saw when it answered: an attempt may begin a conversation of its own."""
        self.events: list[Data] = []

    def data(self, place: int) -> Data:
        for episode in self.trial.episodes:
            self._play(episode)
        trial = self.trial
        at = trial.solved_at
        words = "not solved" if at is None else f"solved at attempt {at + 1}"
        scores = {
            "solved": {"value": int(at is not None), "answer": words, "explanation": repr(trial)},
            "attempt": {"value": 0 if at is None else at + 1},
            "reward": {"value": sum(episode.reward for episode in trial.episodes)},
        }
        first = trial.episodes[0].opening if trial.episodes else ()
        metadata = {
            "task_class": trial.task.task_class,
            "seed": trial.task.seed,
            "params": dict(trial.task.params),
            "memory": trial.memory,
            "attempts": [episode.stop.value for episode in trial.episodes],
        }
        return {
            "id": place + 1,
            "epoch": 1,
            "input": [_message(message) for message in first] or trial.task.env,
            "target": "",
            "messages": self.everything,
            "output": {"model": self.model, "choices": []},
            "scores": scores,
            "metadata": metadata,
            "events": self.events,
            "store": {},
            "model_usage": {},
            "attachments": {},
        }

    def _play(self, episode: Episode) -> None:
        span = f"attempt {episode.index + 1}"
        self._begin(span, "attempt")
        if not episode.continues:
            self.sequence = []
        self._say([_message(message) for message in episode.opening])
        for index, turn in enumerate(episode.turns):
            self._answer(turn.reply, span)
            seen = episode.turns[index + 1].observation if index + 1 < len(episode.turns) else episode.final
            text = "\n".join(filter(None, (turn.feedback, seen)))
            self._say([{"role": "user", "content": text, "source": "input"}])
            turn_fields = {"observation": seen, "reward": turn.reward, "valid": turn.valid, "feedback": turn.feedback}
            self._event("info", span, source="world", data=turn_fields)
        outcome = {"value": episode.reward, "answer": episode.stop.value, "explanation": episode.error or None}
        self._event("score", span, score=outcome, intermediate=True)
        self._end(span)
        if episode.reflection is not None:
            self._reflect(episode, f"reflection {episode.index + 1}")

    def _reflect(self, episode: Episode, span: str) -> None:
        reflection = episode.reflection
        assert reflection is not None
        self._begin(span, "reflection")
        if reflection.completion is not None:
            self._answer(reflection.completion, span)
        note_fields = {"reflection": reflection.text, "valid": reflection.valid, "fields": dict(reflection.fields)}
        self._event("info", span, source="reflection", data=note_fields)
        self._end(span)

    def _say(self, messages: Sequence[Data]) -> None:
        self.sequence = [*self.sequence, *messages]
        self.everything += messages

    def _answer(self, reply: Completion, span: str) -> None:
        message: Data = {"role": "assistant", "content": _content(reply), "source": "generate", "model": self.model}
        usage = {"input_tokens": reply.prompt_tokens, "output_tokens": reply.completion_tokens}
        usage["total_tokens"] = sum(usage.values())
        stop = "max_tokens" if reply.finish == "length" else "stop"
        output = {
            "model": self.model,
            "choices": [{"message": message, "stop_reason": stop}],
            "usage": usage,
        }
        self._event(
            "model",
            span,
            model=self.model,
            input=self.sequence,
            tools=[],
            tool_choice="auto",
            config={},
            output=output,
        )
        self._say([message])

    def _begin(self, span: str, kind: str) -> None:
        self._event("span_begin", span, id=span, type=kind, name=span)

    def _end(self, span: str) -> None:
        self._event("span_end", span, id=span)

    def _event(self, kind: str, span: str, **fields: Any) -> None:
        self.events.append({"event": kind, "span_id": span, "timestamp": self.when, "working_start": 0.0, **fields})


def _content(reply: Completion) -> str | list[Data]:
    if not reply.reasoning:
        return reply.written
    return [{"type": "reasoning", "reasoning": reply.reasoning}, {"type": "text", "text": reply.written}]


def _message(message: Message) -> Data:
    role = message["role"] if message["role"] in ("system", "assistant") else "user"
    return {"role": role, "content": message["content"], **({"source": "input"} if role == "user" else {})}
