"""Writes down what Python 3.7 knows of Unicode, as google-research/bert's tokenizer asks for it.

Run by hand, with a CPython 3.7 (Unicode 11), when the tables are to be made anew:

    python3.7 xtask/peers/python_unicode.py > crates/frazil-bert/unicode/python-3.7.json

`cargo xtask codegen` turns that file into Rust. Ranges are inclusive.
"""

import json
import sys
import unicodedata

SIGMA = "\u03a3"
FINAL = "\u03c2"
CHINESE = [(0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF),
           (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0x2F800, 0x2FA1F)]


def code_points():
    for code in range(0x110000):
        if not 0xD800 <= code < 0xE000:
            yield code, chr(code)


def code_class(code, char):
    """What the clean-up and the two ways of splitting make of it."""
    category = unicodedata.category(char)
    ascii_punctuation = 33 <= code < 127 and not char.isalnum()
    if char in " \t\n\r" or category == "Zs":
        return "space"
    if code in (0, 0xFFFD) or category in ("Cc", "Cf"):
        return "removed"
    if char.isspace():
        return "space"
    if any(first <= code <= last for first, last in CHINESE):
        return "chinese"
    if ascii_punctuation or category.startswith("P"):
        return "punctuation"
    return None


def decomposed(char):
    return unicodedata.normalize("NFD", char.lower())


def plain(char):
    """Lower case without marks."""
    return "".join(c for c in decomposed(char) if unicodedata.category(c) != "Mn")


def ranges(codes):
    found = []
    for code in codes:
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def main():
    classes = {"space": [], "removed": [], "chinese": [], "punctuation": []}
    whitespace, cased, ignorable, starters = [], [], [], []
    marks, mapped = {}, {}
    for code, char in code_points():
        kind = code_class(code, char)
        if kind:
            classes[kind].append(code)
        if char.isspace():
            whitespace.append(code)
        # A sigma is final after a cased letter, with letters that count for nothing in between.
        if char == SIGMA or (char + SIGMA).lower()[-1] == FINAL:
            cased.append(code)
        elif ("a" + char + SIGMA).lower()[-1] == FINAL:
            ignorable.append(code)
        if 0xAC00 <= code <= 0xD7A3:
            continue  # Hangul syllables are split by formula.
        lowered = plain(char)
        if lowered != char:
            mapped["%04X" % code] = lowered
        if lowered == "" and any(unicodedata.combining(c) == 0 for c in decomposed(char)):
            starters.append(code)
        if unicodedata.combining(char) and unicodedata.category(char) != "Mn":
            marks["%04X" % code] = unicodedata.combining(char)
    tables = {
        "unicode": unicodedata.unidata_version,
        "classes": {name: ranges(codes) for name, codes in classes.items()},
        "whitespace": ranges(whitespace),
        "cased": ranges(cased),
        "case_ignorable": ranges(ignorable),
        "removed_starters": ranges(starters),
        "kept_marks": marks,
        "lower_without_marks": mapped,
    }
    lines = []
    for name, table in tables.items():
        if isinstance(table, dict) and len(table) > 100:
            rows = ["%s: %s" % (json.dumps(key), json.dumps(value)) for key, value in table.items()]
            groups = [", ".join(rows[i:i + 6]) for i in range(0, len(rows), 6)]
            lines.append("%s: {\n%s\n}" % (json.dumps(name), ",\n".join(groups)))
        else:
            lines.append("%s: %s" % (json.dumps(name), json.dumps(table)))
    sys.stdout.write("{\n%s\n}\n" % ",\n".join(lines))


if __name__ == "__main__":
    main()
