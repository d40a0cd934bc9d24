"""Words of made-up texts as Python 3.7 gives them, by google-research/bert's rules spelled out.

The texts are of characters that seldom meet: sigmas beside letters that do and do not count,
marks that change places when they are decomposed, syllables, ideographs, format characters.
Run by hand, with a CPython 3.7 (Unicode 11):

    python3.7 xtask/peers/python_words.py > crates/frazil-bert/tests/fixtures/words.json
"""

import json
import random
import unicodedata

from python_unicode import code_class

TEXTS = 400
# Each text draws from two of these.
ALPHABETS = [
    "\u03a3\u03c3\u03b1\u0391'.:\u00ad\u0301\u0345 A-",
    "\u1b44\u302e\u302f\U0001d165\U0001d16d\U0001d15e\U0001d1bb\u0301\u0323\u0900\u034f a",
    "\uac00\uac01\ud7a3\u1100\u1161\u11a8\u302e ",
    "\u4e00\uf900\U0002f800\u3400\u9fff\u3041a ",
    "\u00e9e\u0301\u0130\u0131I\u212a\u1e9e\u00df\ufb01\u01c5 ",
    "\u2260\u226e\u037e\u1fef\u2000\u2028\u2029\u0085\u001f\u200b\ufeff\ufffd=<; ",
    "abcXYZ019.,-_[]##  \t\n\r\u00a0",
    "\U0001f600\U0001f468\u200d\U0001f469\ufe0f\u20e3\u2014\u2019\u2026 z",
    "\u0b47\u0b56\u0b48\u0f73\u0f75\u0f71\u0f72\u1026\u0cc0\u0cd5 ",
]


def words(text, lower):
    spaced = []
    for char in text:
        kind = code_class(ord(char), char)
        if kind == "chinese":
            spaced.append(" %s " % char)
        elif kind == "space":
            spaced.append(" ")
        elif kind != "removed":
            spaced.append(char)
    found = []
    for token in "".join(spaced).split():
        if lower:
            token = unicodedata.normalize("NFD", token.lower())
            token = "".join(c for c in token if unicodedata.category(c) != "Mn")
        word = ""
        for char in token:
            if code_class(ord(char), char) == "punctuation":
                found += [word, char]
                word = ""
            else:
                word += char
        found.append(word)
    return [word for word in found if word]


def main():
    draw = random.Random(11)
    everything = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    cases = []
    for i in range(TEXTS):
        if i % 5 == 4:
            text = "".join(chr(draw.choice(everything)) for _ in range(draw.randint(1, 12)))
        else:
            letters = draw.choice(ALPHABETS) + draw.choice(ALPHABETS)
            text = "".join(draw.choice(letters) for _ in range(draw.randint(1, 24)))
        cases.append(json.dumps([text, words(text, True), words(text, False)]))
    print("[\n%s\n]" % ",\n".join(cases))


if __name__ == "__main__":
    main()
