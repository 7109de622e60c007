"""The words that generated products are made of: departments, kinds of product, attributes, options, brands.

Every kind has several names that mean the same. A product's texts use one of them and an instruction may use another,
as people do; so a first search can miss what it looks for, and a search in other words finds it.
"""

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    """One kind of product."""

    names: tuple[str, ...]
    """Names that mean the same; the first is the one the shop files it under."""
    use: str
    """What it is for; in every title."""
    prices: tuple[float, float]
    group: str
    """The second group of options, beside the colour."""
    values: tuple[str, ...]


class Department(NamedTuple):
    """A part of the shop."""

    category: str
    title: str
    materials: tuple[str, ...]
    attributes: tuple[str, ...]
    colours: tuple[str, ...]
    kinds: tuple[Kind, ...]


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def _kind(names: str, use: str, low: float, high: float, group: str, values: str) -> Kind:
    return Kind(_split(names), use, (low, high), group, _split(values))


DEPARTMENTS = (
    Department(
        "furniture",
        "Home & Furniture",
        _split("oak, walnut, bamboo, steel, rattan, birch"),
        _split(
            "easy assemble, space saving, tool free setup, scratch resistant, easy clean, heavy duty, solid frame, "
            "hidden storage, non slip feet, rounded edges, modular design, hand finished"
        ),
        _split("white, black, grey, navy, green, beige, brown, red"),
        (
            _kind("sofa, couch, settee", "living room", 180, 420, "size", "2 seats, 3 seats, 4 seats"),
            _kind("desk, writing table, workstation", "home office", 90, 260, "size", "100 cm, 120 cm, 140 cm, 160 cm"),
            _kind("wardrobe, closet, armoire", "bedroom", 150, 380, "size", "2 doors, 3 doors, 4 doors"),
            _kind("bookcase, bookshelf, shelving unit", "study", 60, 190, "size", "3 shelves, 4 shelves, 5 shelves"),
            _kind("stool, footrest, ottoman", "hallway", 25, 90, "item shape", "round, square, oval"),
        ),
    ),
    Department(
        "lighting",
        "Lighting",
        _split("brass, glass, ceramic, steel, aluminium, chrome"),
        _split(
            "energy efficient, dimmable light, warm glow, touch control, long lasting, cordless use, flicker free, "
            "remote control, easy install, adjustable brightness, timer function, shatter proof"
        ),
        _split("gold, black, white, silver, copper, blue, teal, pink"),
        (
            _kind("table lamp, desk light, reading lamp", "bedside table", 18, 75, "style", "modern, rustic, classic"),
            _kind("ceiling light, chandelier, pendant", "dining room", 45, 220, "style", "single, triple, cluster"),
            _kind("lantern, camping light, storm lamp", "garden", 12, 55, "size", "20 cm, 30 cm, 40 cm"),
            _kind("torch, flashlight, hand lamp", "workshop", 9, 45, "size", "pocket, medium, long"),
        ),
    ),
    Department(
        "kitchen",
        "Kitchen & Dining",
        _split("stainless steel, enamel, ceramic, silicone, glass, bamboo"),
        _split(
            "dishwasher safe, food grade, bpa free, heat resistant, hand polished, lead free, easy grip, "
            "stain resistant, space saving, rust free, non slip base, scratch resistant"
        ),
        _split("red, black, white, silver, green, yellow, turquoise, grey"),
        (
            _kind("frying pan, skillet, saute pan", "stove", 18, 85, "size", "20 cm, 24 cm, 28 cm, 32 cm"),
            _kind("water bottle, flask, canteen", "travel", 9, 42, "size", "350 ml, 500 ml, 750 ml, 1000 ml"),
            _kind("lunch box, bento, food container", "school", 8, 38, "style", "2 parts, 3 parts, 4 parts"),
            _kind("kettle, water boiler, teapot", "breakfast", 22, 95, "size", "1 liter, 1.5 liter, 2 liter"),
            _kind("chopping board, cutting board, carving plate", "kitchen", 10, 48, "size", "small, medium, large"),
        ),
    ),
    Department(
        "clothing",
        "Clothing",
        _split("cotton, wool, linen, fleece, polyester, jersey"),
        _split(
            "machine washable, quick drying, moisture wicking, water resistant, slim fit, regular fit, wrinkle free, "
            "light weight, elastic closure, double stitched, hidden pocket, tag free"
        ),
        _split("navy, black, white, olive, burgundy, grey, khaki, purple"),
        (
            _kind("jacket, coat, anorak", "autumn", 35, 160, "size", "small, medium, large, x-large"),
            _kind("trousers, pants, slacks", "work", 22, 90, "size", "28, 30, 32, 34, 36"),
            _kind("sweater, pullover, jumper", "winter", 20, 95, "size", "small, medium, large, x-large"),
        ),
    ),
    Department(
        "shoes",
        "Shoes",
        _split("suede, leather, canvas, mesh, felt, nubuck"),
        _split(
            "arch support, rubber sole, memory foam, non slip, light weight, water resistant, wide fit, quick drying, "
            "shock absorbing, removable insole, padded collar, easy care"
        ),
        _split("navy, black, white, olive, burgundy, grey, brown, pink"),
        (
            _kind("sneakers, trainers, running shoes", "sports", 30, 130, "size", "6, 7, 8, 9, 10, 11"),
            _kind("slippers, house shoes, mules", "home", 12, 48, "size", "6, 7, 8, 9, 10, 11"),
            _kind("boots, ankle boots, booties", "winter", 45, 170, "size", "6, 7, 8, 9, 10, 11"),
        ),
    ),
    Department(
        "beauty",
        "Beauty & Care",
        _split("shea butter, aloe, jojoba, oat, argan, honey"),
        _split(
            "fragrance free, cruelty free, sensitive skin, paraben free, long lasting, plant based, "
            "natural ingredients, alcohol free, non greasy, sulfate free, fast absorbing, travel size"
        ),
        _split("clear, rose, peach, mocha, ivory, coral, plum, bronze"),
        (
            _kind("face cream, moisturizer, day lotion", "daily care", 8, 60, "size", "30 ml, 50 ml, 100 ml"),
            _kind("shampoo, hair wash, hair cleanser", "shower", 6, 35, "scent", "lavender, citrus, mint, vanilla"),
            _kind("lip balm, lip salve, lip butter", "winter", 3, 18, "scent", "cherry, mint, vanilla, coconut"),
            _kind("body scrub, exfoliator, peeling", "bath", 7, 40, "scent", "coffee, citrus, sea salt, coconut"),
        ),
    ),
    Department(
        "electronics",
        "Electronics",
        _split("aluminium, rubber, carbon, magnesium, titanium, steel"),
        _split(
            "usb powered, one touch pairing, water resistant, plug and play, status light, energy saving, "
            "low latency, long battery, carrying case, gold plated, braided cable, voice control"
        ),
        _split("black, white, silver, blue, red, green, pink, grey"),
        (
            _kind("headphones, headset, earphones", "music", 20, 180, "style", "on ear, over ear, in ear"),
            _kind(
                "power bank, battery pack, portable charger", "travel", 14, 70, "size", "5000 mah, 10000 mah, 20000 mah"
            ),
            _kind("speaker, sound box, boombox", "party", 22, 190, "style", "mono, stereo, surround"),
            _kind("keyboard, typing board, keypad", "office", 16, 120, "style", "full layout, compact, split"),
            _kind("webcam, video camera, conference cam", "meetings", 24, 140, "style", "720p, 1080p, 4k"),
        ),
    ),
    Department(
        "outdoor",
        "Garden & Outdoor",
        _split("canvas, nylon, cotton, aluminium, polyester, ripstop"),
        _split(
            "water proof, uv resistant, rust proof, light weight, easy setup, wind resistant, mildew resistant, "
            "quick drying, carrying bag, reflective trim, reinforced seams, breathable mesh"
        ),
        _split("green, orange, blue, grey, black, yellow, red, khaki"),
        (
            _kind("tent, shelter, dome", "camping", 45, 260, "size", "1 person, 2 person, 3 person, 4 person"),
            _kind("backpack, rucksack, daypack", "hiking", 24, 130, "size", "20 liter, 30 liter, 40 liter, 60 liter"),
            _kind("parasol, sun umbrella, sunshade", "patio", 28, 150, "size", "2 m, 2.5 m, 3 m"),
            _kind("hammock, hanging bed, swing bed", "garden", 22, 110, "size", "single, double, family"),
        ),
    ),
    Department(
        "pets",
        "Pets",
        _split("bamboo, steel, rubber, hemp, cork, jute"),
        _split(
            "chew resistant, easy clean, odor free, non toxic, scratch resistant, water proof, heavy duty, hand made, "
            "eco friendly, vet approved, rust free, fade resistant"
        ),
        _split("brown, grey, blue, pink, red, beige, black, teal"),
        (
            _kind("dog bed, pet mattress, pet cushion", "large dogs", 22, 120, "size", "small, medium, large, x-large"),
            _kind("leash, dog lead, walking line", "walks", 7, 38, "size", "1 m, 2 m, 3 m, 5 m"),
            _kind("feeding bowl, food dish, pet feeder", "cats", 6, 42, "size", "200 ml, 400 ml, 800 ml"),
            _kind("scratching post, cat tree, climbing tower", "cats", 20, 140, "size", "60 cm, 90 cm, 120 cm"),
        ),
    ),
)

BRANDS = _split(
    "Alderby, Borvik, Caldena, Dornwell, Elvano, Fjordal, Garrow, Hollin, Istra, Junova, Kestrel, Lumora, Marden, "
    "Norvik, Oakhaven, Pellin, Quenby, Rowanby, Solvei, Tarnell, Ulvano, Verdane, Westmere, Yarrow"
)
