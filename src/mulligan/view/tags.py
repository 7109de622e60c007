"""Tags that people give to runs: a small file beside the runs, ``tags.json``, name of a run -> its tags."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mulligan.errors import ParameterError, RunFolderError
from mulligan.report.files import replace_file
from mulligan.view.folder import inside, json_of

FILE = "tags.json"
MOST = 12
"""Tags of a run."""
LONGEST = 40
"""Characters of a tag."""
_WRITING = threading.Lock()


def tags_of(root: Path) -> dict[str, list[str]]:
    """Run -> its tags; what is not in the form of `FILE` is left out."""
    try:
        data = json_of(root / FILE)
    except RunFolderError:
        return {}
    if not isinstance(data, dict):
        return {}
    return {name: _fitting(tags) for name, tags in data.items() if isinstance(tags, list) and _fitting(tags)}


def _fitting(tags: Sequence[Any]) -> list[str]:
    return [tag for tag in tags if isinstance(tag, str) and _is_tag(tag)][:MOST]


def _is_tag(tag: str) -> bool:
    return 0 < len(tag) <= LONGEST and tag.isprintable() and "," not in tag and tag == tag.strip()


def set_tags(root: Path, name: str, text: str) -> list[str]:
    """Give a run these tags, separated by commas, in place of those that it has; returns them."""
    inside(root, name)
    tags = list(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))
    for tag in tags:
        if not _is_tag(tag):
            raise ParameterError(f"a tag must have 1 to {LONGEST} printable characters (got {tag[:80]!r})")
    if len(tags) > MOST:
        raise ParameterError(f"a run can have {MOST} tags at most (got {len(tags)})")
    with _WRITING:
        if (root / FILE).exists():
            json_of(root / FILE)  # raises where it is damaged: it would be lost
        tags_by_run = {each: given for each, given in tags_of(root).items() if each != name}
        if tags:
            tags_by_run[name] = tags
        try:
            replace_file(root / FILE, (json.dumps(tags_by_run, indent=1, sort_keys=True) + "\n").encode())
        except OSError as error:
            raise RunFolderError(f"{root / FILE} cannot be written: {error.strerror or error}") from error
    return tags
