"""The shop's catalogue: the original's files, whole and damaged, its goals, and what is kept on disk."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mulligan.envs.webshop import catalogue, files
from mulligan.envs.webshop.generate import generated, records
from mulligan.errors import UsageError

ROOT = Path(__file__).parents[3]
ORIGINAL = Path(os.environ.get("WEBSHOP_DATA", ROOT / "no original files"))
SHIRT = {
    "asin": "B0SHIRT001",
    "name": "Plain Cotton Shirt",
    "full_description": "A shirt for every day.",
    "small_description": ["Soft", "Easy care"],
    "pricing": [12.5],
    "customization_options": {
        "Size": [{"value": " S "}, {"value": "M/L"}],
        "Color": [{"value": "Navy  Blue"}, {"value": "<Red>"}, {"value": "White"}],
        "Style": None,
    },
    "category": "fashion",
    "query": "Shirts ",
    "product_category": "Clothing › Men › Shirts",
    "average_rating": 4.5,
}
NOTE = {"attributes": ["easy care"], "instruction": "Find me easy care shirts", "instruction_attributes": ["easy care"]}


def write(folder: Path, products: object, notes: object = None, packed: bool = False) -> str:
    """The two files, as values or as texts; the folder's name."""
    notes = {"B0SHIRT001": NOTE} if notes is None else notes
    for name, value in (("items_shuffle_1000.json", products), ("items_ins_v2_1000.json", notes)):
        text = value if isinstance(value, str) else json.dumps(value)
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (folder / name).write_text(text, encoding="utf-8")
    return str(folder)


# --- Products


@pytest.mark.parametrize("packed", [False, True])
def test_reads_a_product_as_the_original_does(tmp_path, packed):
    shop = catalogue.from_files(write(tmp_path, [SHIRT], packed=packed))
    (product,) = shop.products
    assert product.options == {"size": ("s", "m | l"), "color": ("navy blue", "red", "white")}
    assert (product.asin, product.kind, product.price_tag, product.price) == ("b0shirt001", "shirts", "$12.5", 12.5)
    assert product.attributes == ("easy care",)
    assert product == catalogue.read_product(SHIRT, NOTE)


@pytest.mark.parametrize("pricing", [[], None, ""])
def test_without_a_price_it_costs_what_the_original_says(pricing):
    product = catalogue.read_product({**SHIRT, "pricing": pricing}, NOTE)
    assert (product.price_tag, product.price) == ("$100.0", 100.0)


def test_null_and_nan_stand_for_nothing():
    entry = {**SHIRT, "full_description": None, "small_description": float("nan"), "category": None}
    product = catalogue.read_product(entry, {"attributes": None})
    assert (product.description, product.features, product.category, product.attributes) == ("", (), "", ())
    del entry["full_description"]
    assert catalogue.read_product(entry, {}).description == ""


def test_a_price_range_has_one_price_for_good():
    product = catalogue.read_product({**SHIRT, "pricing": "$5.99 - $1,007.99"}, NOTE)
    assert product.price_tag == "$5.99 to $1007.99"
    assert 5.99 <= product.price <= 1007.99
    assert product.price == catalogue.read_product({**SHIRT, "pricing": [5.99, 1007.99]}, NOTE).price
    other = catalogue.read_product({**SHIRT, "asin": "B0SHIRT002", "pricing": [5.99, 1007.99]}, NOTE)
    assert product.price != other.price


@given(st.floats(0, 2000))
def test_the_budget_is_one_of_the_next_four_tens(price):
    product = catalogue.read_product({**SHIRT, "pricing": [price]}, NOTE)
    limit = catalogue.budget(product)
    above = [ten for ten in range(10, 1000, 10) if ten > price][:4]
    # The larger of two is never the smallest.
    assert limit in above[1:] if len(above) >= 2 else limit == catalogue.NO_LIMIT


def test_doubles_and_ids_that_are_none_are_left_out(tmp_path):
    others = [{**SHIRT, "asin": asin} for asin in ("B0SHIRT001", "nan", "TOO-LONG-AN-ID", "B0SHIRT002")]
    shop = catalogue.from_files(write(tmp_path, [SHIRT, *others]))
    assert [product.asin for product in shop.products] == ["b0shirt001", "b0shirt002"]


# --- Goals


def test_goals_are_all_combinations_in_the_originals_order(tmp_path):
    silent = {**SHIRT, "asin": "B0SILENT"}
    plain = {**SHIRT, "asin": "B0PLAIN", "customization_options": ""}
    notes = {"B0SHIRT001": NOTE, "B0PLAIN": NOTE, "B0SILENT": {"attributes": ["easy care"]}}
    shop = catalogue.from_files(write(tmp_path, [silent, SHIRT, plain], notes))
    listed = [("b0shirt001", pair) for pair in itertools.product(("navy blue", "red", "white"), ("s", "m | l"))]
    listed.append(("b0plain", ()))
    random.Random(233).shuffle(listed)
    goals = [shop.goal(number) for number in range(len(shop.order))]
    assert [(goal.asin, tuple(goal.options.values())) for goal in goals] == listed
    first = next(goal for goal in goals if goal.options == {"color": "red", "size": "s"})
    assert first.instruction.startswith("Find me easy care shirts with color: red, and size: s, and price lower than ")
    assert f" {first.budget:.2f} dollars" in first.instruction


@pytest.mark.skipif(not ORIGINAL.exists(), reason="no WebShop data here")
def test_the_originals_thousand_products_have_6910_goals_and_search_finds_them():
    shop = catalogue.from_files(str(ORIGINAL))
    assert (len(shop.products), len(shop.order)) == (1000, 6910)
    sample = [shop.goal(number) for number in range(0, 6910, 10)]
    is_hit = [goal.asin in {shop.products[hit].asin for hit in shop.search(goal.instruction)} for goal in sample]
    assert sum(is_hit) / len(is_hit) > 0.93


# --- Damage


@pytest.mark.parametrize(
    ("products", "names"),
    [
        (json.dumps([SHIRT, SHIRT])[:-40], "entry 2"),
        ("[" + json.dumps(SHIRT) + ", {broken}]", "entry 2"),
        ([SHIRT, ["no", "product"]], "entry 2"),
        ([SHIRT, {"asin": "B0X"}], r"entry 2.*'name'"),
        ([{**SHIRT, "pricing": [-3]}], r"'pricing'.*\[-3\]"),
        ([{**SHIRT, "pricing": [float("nan")]}], r"'pricing'.*\[nan\]"),
        ([{**SHIRT, "pricing": {"low": 3}}], "entry 1"),
        ([{**SHIRT, "customization_options": {"size": [{}]}}], "'value'"),
        ([{**SHIRT, "customization_options": "red"}], "entry 1"),
        ("[" * 100_000, "entry 1"),
        ("7", "entry 1"),
        ("", "entry 1"),
    ],
    ids=lambda value: None if isinstance(value, list) else str(value)[:30],
)
def test_says_what_is_wrong_with_a_file(tmp_path, products, names):
    where = write(tmp_path, products)
    with pytest.raises(UsageError, match=rf"items_shuffle_1000\.json.*{names}") as caught:
        catalogue.from_files(where)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache").glob("*webshop*")), "nothing half made is left"


@pytest.mark.parametrize(
    ("notes", "names"),
    [
        ({"B0SHIRT001": {"attributes": "easy care"}}, r"entry 1.*'easy care'"),
        ('{"B0SHIRT001": {}, "B0', r"items_ins_v2_1000.json.*entry 2"),
        ({"B0OTHER": NOTE}, "no instruction"),
    ],
    ids=["text", "cut", "none"],
)
def test_says_what_is_wrong_with_the_instructions(tmp_path, notes, names):
    with pytest.raises(UsageError, match=names):
        catalogue.from_files(write(tmp_path, [SHIRT], notes))


def test_says_what_is_wrong_with_a_packed_file(tmp_path):
    where = write(tmp_path, [SHIRT], packed=True)
    file = tmp_path / "items_shuffle_1000.json.gz"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(UsageError, match=r"items_shuffle_1000.json.gz.*entry 1"):
        catalogue.from_files(where)
    file.write_bytes(b"this is no gzip file")
    with pytest.raises(UsageError, match="entry 1"):
        catalogue.from_files(where)


def test_bytes_that_are_no_text_are_damage(tmp_path):
    where = write(tmp_path, [SHIRT])
    (tmp_path / "items_shuffle_1000.json").write_bytes(b"[\xff\xfe]")
    with pytest.raises(UsageError, match=r"entry 1.*utf-8"):
        catalogue.from_files(where)


def test_says_which_file_is_missing(tmp_path):
    with pytest.raises(UsageError, match="nowhere"):
        files.find(str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match=r"items_shuffle\.json"):
        files.find(str(tmp_path))
    (tmp_path / "items_shuffle_1000.json").write_text("[]")
    with pytest.raises(UsageError, match=r"items_ins_v2_1000\.json"):
        files.find(str(tmp_path))


VALUE = st.none() | st.integers() | st.text(max_size=8) | st.lists(st.integers() | st.text(max_size=4), max_size=4)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(VALUE, max_size=6) | st.dictionaries(st.text(max_size=4), VALUE, max_size=6),
    st.sampled_from([None, 1]),
    st.integers(1, 9),
)
def test_reading_in_pieces_is_reading(content, indent, chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_CHUNK", chunk)
        read = list(files._stream(io.StringIO(json.dumps(content, indent=indent))))
    expected = content.items() if isinstance(content, dict) else ((f"entry {n}", v) for n, v in enumerate(content, 1))
    assert read == list(expected)


# --- What is kept


def test_the_index_is_made_once(tmp_path, monkeypatch):
    where = write(tmp_path, [SHIRT])
    before = catalogue.from_files(where)
    catalogue.from_files.cache_clear()
    monkeypatch.setattr(files, "entries", lambda path: pytest.fail("read the file again"))
    after = catalogue.from_files(where)
    assert [after.goal(n) for n in range(6)] == [before.goal(n) for n in range(6)]
    assert after.search("shirts") == (0,)


def test_another_file_is_another_index(tmp_path):
    where = write(tmp_path, [SHIRT])
    catalogue.from_files(where)
    catalogue.from_files.cache_clear()
    write(tmp_path, [SHIRT, {**SHIRT, "asin": "B0SHIRT002"}])
    assert len(catalogue.from_files(where).products) == 2


def test_says_when_there_is_no_room_for_the_index(tmp_path, monkeypatch):
    (tmp_path / "blocked").write_text("a file, where a folder should be")
    monkeypatch.setenv("MULLIGAN_CACHE", str(tmp_path / "blocked"))
    with pytest.raises(UsageError, match="MULLIGAN_CACHE"):
        catalogue.from_files(write(tmp_path, [SHIRT]))


def test_a_damaged_index_is_named(tmp_path):
    where = write(tmp_path, [SHIRT])
    catalogue.from_files(where)
    catalogue.from_files.cache_clear()
    (folder,) = (tmp_path / "cache").glob("webshop-*")
    (folder / "starts.npy").write_bytes(b"")
    with pytest.raises(UsageError, match=folder.name):
        catalogue.from_files(where)


# --- The generated catalogue


def test_the_same_seed_is_the_same_shop_and_a_bigger_one_begins_with_it():
    assert list(records(30, 5)) == list(records(30, 5))
    assert list(records(30, 5)) != list(records(30, 6))
    assert list(records(30, 5)) == list(itertools.islice(records(300, 5), 30))


def test_generated_products_are_whole():
    shop = generated(400, 1)
    assert len({product.asin for product in shop.products}) == 400
    for product in shop.products:
        texts = " ".join([product.title, product.description, *product.features]).lower()
        assert all(attribute in texts for attribute in product.attributes), "a page speaks of every attribute"
        assert set(product.wanted) < set(product.attributes)
        assert all(attribute in product.instruction.lower() for attribute in product.wanted)
        assert product.options
        assert len(product.title) <= 90
        assert product.price > 0


def families(shop: catalogue.Catalogue) -> list[list[catalogue.Product]]:
    """Products of one kind with one attribute in their titles and the same options."""
    grouped: dict[tuple[object, ...], list[catalogue.Product]] = {}
    for product in shop.products:
        key = (product.kind, product.attributes[0], tuple(product.options.items()))
        grouped.setdefault(key, []).append(product)
    return list(grouped.values())


def test_search_cannot_tell_which_product_of_a_family_is_asked_for():
    shop = generated(1000, 0)
    for product in shop.products:
        first, *hidden = product.attributes
        searched = catalogue.indexed_text(product).lower()
        assert first in product.title.lower()
        assert not any(attribute in searched for attribute in hidden)
        assert product.wanted[0] == first
        assert set(product.wanted[1:]) < set(hidden)


def test_one_product_of_a_family_has_what_is_asked():
    sizes = []
    for members in families(generated(1000, 0)):
        sizes.append(len(members))
        for one, other in itertools.permutations(members, 2):
            assert not set(one.wanted) <= set(other.attributes)
    # A few families are cut off at the end of the catalogue.
    assert sum(6 <= size <= 8 for size in sizes) / len(sizes) > 0.9


def test_the_place_in_a_list_says_nothing():
    """Of its family, within the budget, the product that is asked for stands anywhere: on average in the middle."""
    shop = generated(1000, 0)
    ranks = []
    for number in range(600):
        goal = shop.goal(number)
        hits = [shop.products[hit] for hit in shop.search(goal.instruction)]
        alike = [each for each in hits if each.kind == goal.kind and goal.attributes[0] == each.attributes[0]]
        listed = [each.asin for each in alike if each.price <= goal.budget]
        if goal.asin in listed and len(listed) > 1:
            ranks.append(listed.index(goal.asin) / (len(listed) - 1))
    # The mean of 500 or more uniform numbers is within 0.04 of 0.5: three standard errors of 0.013.
    assert len(ranks) > 500
    assert abs(sum(ranks) / len(ranks) - 0.5) < 0.06
