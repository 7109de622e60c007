"""What the proxy writes behind, on every database."""

from __future__ import annotations

from mulligan.serve.live import Exchange, LiveEpisode, new_row, threads_of, write_batch

ANSWER = b'{"choices": [{"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]}'


def exchange(*contents: str) -> Exchange:
    messages = [{"role": "user", "content": content} for content in contents]
    return Exchange("chat", messages, 200, "application/json", "", ANSWER)


def test_a_batch_is_written_at_once_and_again(make):
    journal = make()
    notes = [journal.add_note("refund", plan=plan) for plan in ("look first", "ask first")]
    values = {"task": "t", "agent": "", "person": "", "untrusted": False, "journal_on": True, "chance": 1.0}
    episodes = [
        LiveEpisode("shop", new_row(f"e{number}", "refund", **values), named=True, note_ids=tuple(notes[: number + 1]))
        for number in range(2)
    ]
    for episode in episodes:
        episode.hear(exchange("one"))
    journal.delete(note=notes[1])  # meanwhile
    write_batch(journal, episodes)
    assert [note.shown for note in journal.notes()] == [2]
    episodes[0].hear(exchange("one", "two"))
    episodes[1].abandon("no outcome came")
    write_batch(journal, episodes)
    first, second = journal.episodes()
    assert [entry["content"] for entry in first.transcript or []] == ["one", "two", "hi"]
    assert threads_of(first.transcript) == episodes[0].threads
    assert (first.state, second.state, second.remark) == ("open", "abandoned", "no outcome came")
    assert first.notes_shown == second.notes_shown == (notes[0],)
    journal.attach("e1").finish(1.0)
    write_batch(journal, episodes)  # a record that comes late changes no outcome
    assert [record.state for record in journal.episodes()] == ["open", "finished"]
