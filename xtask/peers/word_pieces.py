"""What frazil's tokenizer finds, Hugging Face's `tokenizers` finds, but for a list of characters.

usage: word_pieces.py WRITTEN [SHARED] [--full]

WRITTEN is the folder that `cargo xtask peers tokenizers` filled. The list with its reasons is
`tokenizers_differences.json`: every character that the two treat differently must be on it, no
other may be, and texts without such characters must give the same pieces at the same places."""

import json
import os
import sys

from hugging_face_words import tokenizer
from report import check, expect, finish

WRITTEN = sys.argv[1]
CASINGS = {"lower": True, "keep": False}
BATCH = 20000
HERE = os.path.dirname(os.path.abspath(__file__))

with open(os.path.join(HERE, "tokenizers_differences.json"), encoding="utf-8") as f:
    DIFFERENCES = json.load(f)


def listed(casing):
    """The characters of one column; `places` are those whose pieces are the same."""
    ranges = [pair for entry in DIFFERENCES for pair in entry.get(casing, [])]
    return {code for first, last in ranges for code in range(first, last + 1)}


def read(name):
    with open(os.path.join(WRITTEN, name), encoding="utf-8", newline="") as f:
        return f.read()


def in_bytes(line, offsets):
    """Places counted in characters to places counted in bytes."""
    if line.isascii():
        return offsets
    place, places = 0, []
    for char in line:
        places.append(place)
        place += len(char.encode())
    places.append(place)
    return [(places[start], places[end]) for start, end in offsets]


def pairs(name, casing):
    """Each line with what frazil and what Hugging Face found: ids, and places in bytes."""
    cutter = tokenizer(os.path.join(WRITTEN, f"{name}.vocab"), lowercase=CASINGS[casing])
    lines = read(f"{name}.txt").split("\n")
    ours = read(f"{name}.{casing}.ids").split("\n")[:-1]
    expect(len(lines) == len(ours), f"{len(lines)} lines, {len(ours)} results")
    for at in range(0, len(lines), BATCH):
        found = cutter.encode_batch(lines[at:at + BATCH], add_special_tokens=False)
        for line, row, encoding in zip(lines[at:at + BATCH], ours[at:at + BATCH], found):
            pieces = [tuple(map(int, piece.split(":"))) for piece in row.split()]
            yield (line, [id for id, _, _ in pieces], [(start, end) for _, start, end in pieces],
                   encoding.ids, in_bytes(line, encoding.offsets))


def shown(codes):
    return " ".join(f"U+{code:04X}" for code in sorted(codes)[:12])


for casing in CASINGS:

    @check(f"every character by itself, {casing}")
    def _():
        different, count = set(), 0
        for line, ours, _, theirs, _ in pairs("characters", casing):
            count += 1
            if ours != theirs:
                different.add(ord(line[-1]))
        known = listed(casing)
        expect(different <= known, f"not on the list: {shown(different - known)}")
        expect(known <= different, f"on the list, but the same: {shown(known - different)}")
        return f"{count} characters, {len(different)} of them different, all on the list"

    @check(f"made-up text without the listed characters, {casing}")
    def _():
        moved, count, different = listed("places"), 0, 0
        for line, ours, our_places, theirs, their_places in pairs("clean", casing):
            expect(ours == theirs, f"{line!a}: {ours} and {theirs}")
            count += len(ours)
            if our_places != their_places:
                different += 1
                expect(casing == "lower" and moved & set(map(ord, line)), f"{line!a}: other places")
        return f"the same {count} pieces; {different} lines with other places, each with a character of the list"

    @check(f"made-up text, {casing}")
    def _():
        known, count, different = listed(casing), 0, 0
        for line, ours, _, theirs, _ in pairs("mixed", casing):
            count += 1
            if ours != theirs:
                different += 1
                expect(known & set(map(ord, line)), f"{line!a}: {ours} and {theirs}")
        return f"{different} of {count} lines differ, each with a character of the list"

    for name in ["uncased", "cased", "chinese", "multilingual_cased"]:
        if not os.path.exists(os.path.join(WRITTEN, f"{name}.txt")):
            continue

        @check(f"English text, {name} vocabulary, {casing}")
        def _():
            known, count, different = listed(casing), 0, 0
            for line, ours, our_places, theirs, their_places in pairs(name, casing):
                count += 1
                if ours != theirs or our_places != their_places:
                    different += 1
                    expect(known & set(map(ord, line)), f"{line!a}: {ours} and {theirs}")
            return f"{different} of {count} lines differ, each with a character of the list"


@check("reasons")
def _():
    for entry in DIFFERENCES:
        expect(entry["why"] and entry["ours"] != entry["theirs"], f"no reason: {entry}")
    return f"{len(DIFFERENCES)} of them"


finish()
