"""BERT's tokenizer as Hugging Face builds it, from a `vocab.txt`."""

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer


def tokenizer(path, lowercase):
    """Words of 200 characters, as in the original; no special pieces are looked for in texts."""
    with open(path, encoding="utf-8", newline="") as f:
        pieces = {line.strip(): i for i, line in enumerate(f.read().rstrip("\n").split("\n"))}
    cutter = Tokenizer(WordPiece(pieces, unk_token="[UNK]", max_input_chars_per_word=200))
    cutter.normalizer = BertNormalizer(lowercase=lowercase)
    cutter.pre_tokenizer = BertPreTokenizer()
    return cutter
