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


# A department a paragraph: category and title; materials; colours; attributes in two lines; then a line for each kind,
# with its names, its use, its prices, its group of options and their values.
_TABLE = """\
furniture | Home & Furniture
materials | oak, walnut, bamboo, steel, rattan, birch
colours | white, black, grey, navy, green, beige, brown, red
attributes | easy assemble, space saving, tool free setup, scratch resistant, easy clean, heavy duty
attributes | solid frame, hidden storage, non slip feet, rounded edges, modular design, hand finished
sofa, couch, settee | living room | 180 to 420 | size | 2 seats, 3 seats, 4 seats
desk, writing table, workstation | home office | 90 to 260 | size | 100 cm, 120 cm, 140 cm, 160 cm
wardrobe, closet, armoire | bedroom | 150 to 380 | size | 2 doors, 3 doors, 4 doors
bookcase, bookshelf, shelving unit | study | 60 to 190 | size | 3 shelves, 4 shelves, 5 shelves
stool, footrest, ottoman | hallway | 25 to 90 | item shape | round, square, oval

lighting | Lighting
materials | brass, glass, ceramic, steel, aluminium, chrome
colours | gold, black, white, silver, copper, blue, teal, pink
attributes | energy efficient, dimmable light, warm glow, touch control, long lasting, cordless use
attributes | flicker free, remote control, easy install, adjustable brightness, timer function, shatter proof
table lamp, desk light, reading lamp | bedside table | 18 to 75 | style | modern, rustic, classic
ceiling light, chandelier, pendant | dining room | 45 to 220 | style | single, triple, cluster
lantern, camping light, storm lamp | garden | 12 to 55 | size | 20 cm, 30 cm, 40 cm
torch, flashlight, hand lamp | workshop | 9 to 45 | size | pocket, medium, long

kitchen | Kitchen & Dining
materials | stainless steel, enamel, ceramic, silicone, glass, bamboo
colours | red, black, white, silver, green, yellow, turquoise, grey
attributes | dishwasher safe, food grade, bpa free, heat resistant, hand polished, lead free
attributes | easy grip, stain resistant, space saving, rust free, non slip base, scratch resistant
frying pan, skillet, saute pan | stove | 18 to 85 | size | 20 cm, 24 cm, 28 cm, 32 cm
water bottle, flask, canteen | travel | 9 to 42 | size | 350 ml, 500 ml, 750 ml, 1000 ml
lunch box, bento, food container | school | 8 to 38 | style | 2 parts, 3 parts, 4 parts
kettle, water boiler, teapot | breakfast | 22 to 95 | size | 1 liter, 1.5 liter, 2 liter
chopping board, cutting board, carving plate | kitchen | 10 to 48 | size | small, medium, large

clothing | Clothing
materials | cotton, wool, linen, fleece, polyester, jersey
colours | navy, black, white, olive, burgundy, grey, khaki, purple
attributes | machine washable, quick drying, moisture wicking, water resistant, slim fit, regular fit
attributes | wrinkle free, light weight, elastic closure, double stitched, hidden pocket, tag free
jacket, coat, anorak | autumn | 35 to 160 | size | small, medium, large, x-large
trousers, pants, slacks | work | 22 to 90 | size | 28, 30, 32, 34, 36
sweater, pullover, jumper | winter | 20 to 95 | size | small, medium, large, x-large

shoes | Shoes
materials | suede, leather, canvas, mesh, felt, nubuck
colours | navy, black, white, olive, burgundy, grey, brown, pink
attributes | arch support, rubber sole, memory foam, non slip, light weight, water resistant
attributes | wide fit, quick drying, shock absorbing, removable insole, padded collar, easy care
sneakers, trainers, running shoes | sports | 30 to 130 | size | 6, 7, 8, 9, 10, 11
slippers, house shoes, mules | home | 12 to 48 | size | 6, 7, 8, 9, 10, 11
boots, ankle boots, booties | winter | 45 to 170 | size | 6, 7, 8, 9, 10, 11

beauty | Beauty & Care
materials | shea butter, aloe, jojoba, oat, argan, honey
colours | clear, rose, peach, mocha, ivory, coral, plum, bronze
attributes | fragrance free, cruelty free, sensitive skin, paraben free, long lasting, plant based
attributes | natural ingredients, alcohol free, non greasy, sulfate free, fast absorbing, travel size
face cream, moisturizer, day lotion | daily care | 8 to 60 | size | 30 ml, 50 ml, 100 ml
shampoo, hair wash, hair cleanser | shower | 6 to 35 | scent | lavender, citrus, mint, vanilla
lip balm, lip salve, lip butter | winter | 3 to 18 | scent | cherry, mint, vanilla, coconut
body scrub, exfoliator, peeling | bath | 7 to 40 | scent | coffee, citrus, sea salt, coconut

electronics | Electronics
materials | aluminium, rubber, carbon, magnesium, titanium, steel
colours | black, white, silver, blue, red, green, pink, grey
attributes | usb powered, one touch pairing, water resistant, plug and play, status light, energy saving
attributes | low latency, long battery, carrying case, gold plated, braided cable, voice control
headphones, headset, earphones | music | 20 to 180 | style | on ear, over ear, in ear
power bank, battery pack, portable charger | travel | 14 to 70 | size | 5000 mah, 10000 mah, 20000 mah
speaker, sound box, boombox | party | 22 to 190 | style | mono, stereo, surround
keyboard, typing board, keypad | office | 16 to 120 | style | full layout, compact, split
webcam, video camera, conference cam | meetings | 24 to 140 | style | 720p, 1080p, 4k

outdoor | Garden & Outdoor
materials | canvas, nylon, cotton, aluminium, polyester, ripstop
colours | green, orange, blue, grey, black, yellow, red, khaki
attributes | water proof, uv resistant, rust proof, light weight, easy setup, wind resistant
attributes | mildew resistant, quick drying, carrying bag, reflective trim, reinforced seams, breathable mesh
tent, shelter, dome | camping | 45 to 260 | size | 1 person, 2 person, 3 person, 4 person
backpack, rucksack, daypack | hiking | 24 to 130 | size | 20 liter, 30 liter, 40 liter, 60 liter
parasol, sun umbrella, sunshade | patio | 28 to 150 | size | 2 m, 2.5 m, 3 m
hammock, hanging bed, swing bed | garden | 22 to 110 | size | single, double, family

pets | Pets
materials | bamboo, steel, rubber, hemp, cork, jute
colours | brown, grey, blue, pink, red, beige, black, teal
attributes | chew resistant, easy clean, odor free, non toxic, scratch resistant, water proof
attributes | heavy duty, hand made, eco friendly, vet approved, rust free, fade resistant
dog bed, pet mattress, pet cushion | large dogs | 22 to 120 | size | small, medium, large, x-large
leash, dog lead, walking line | walks | 7 to 38 | size | 1 m, 2 m, 3 m, 5 m
feeding bowl, food dish, pet feeder | cats | 6 to 42 | size | 200 ml, 400 ml, 800 ml
scratching post, cat tree, climbing tower | cats | 20 to 140 | size | 60 cm, 90 cm, 120 cm
"""


def _split(text: str, separator: str = ",") -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(separator))


def _department(paragraph: str) -> Department:
    head, materials, colours, attributes, more_attributes, *kinds = (
        _split(line, "|") for line in paragraph.splitlines()
    )
    return Department(
        head[0],
        head[1],
        _split(materials[1]),
        _split(attributes[1]) + _split(more_attributes[1]),
        _split(colours[1]),
        tuple(_kind(*columns) for columns in kinds),
    )


def _kind(names: str, use: str, prices: str, group: str, values: str) -> Kind:
    low, high = map(float, prices.split(" to "))
    return Kind(_split(names), use, (low, high), group, _split(values))


DEPARTMENTS = tuple(_department(paragraph) for paragraph in _TABLE.split("\n\n"))
BRANDS = _split(
    "Alderby, Borvik, Caldena, Dornwell, Elvano, Fjordal, Garrow, Hollin, Istra, Junova, Kestrel, Lumora, Marden, "
    "Norvik, Oakhaven, Pellin, Quenby, Rowanby, Solvei, Tarnell, Ulvano, Verdane, Westmere, Yarrow"
)
