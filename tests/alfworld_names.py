"""How the ids of official ALFWorld games begin."""

from __future__ import annotations

from mulligan.envs.alfworld.world import Kind

FOLDERS: dict[str, Kind] = {
    "pick_and_place_simple": "pick",
    "look_at_obj_in_light": "look",
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "heat",
    "pick_cool_then_place_in_recep": "cool",
    "pick_two_obj_and_place": "pick2",
}
"""First word of an id -> kind of task."""
