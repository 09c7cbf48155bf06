#!/usr/bin/env python3
"""Makes unigram.json.gz: what the PyPI package tokenizers makes of strings with small unigram models and the parts that go with them.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3
    python3 make_unigram.py

The vocabulary and the table of characters are made by sentencepiece from the
fragments of make_goldens.py. The result has one tokenizer.json and what the
others have in its place ("patch": a model named "bpe" is that of the Gemma-like
tokenizer in goldens.json.gz, "append" adds to the vocabulary, "raise" to its
scores, and a table named "BASE" is the first one), and for each string the
start of a hash of its ids, with special tokens, and its text decoded again; for
random ids that of their text.
"""
import base64
import copy
import gzip
import hashlib
import io
import json
import os
import random
import struct
import tempfile

import sentencepiece
from make_goldens import FRAGMENTS, HERE, added, byte_level
from sentencepiece import sentencepiece_model_pb2 as pb
from tokenizers import Tokenizer

STRINGS = [0, 360, 640, 740]  # of goldens.json.gz: from, to, from, to; first written by hand, then random
MORE = [
    "A\u0301", "A\u0301\u0302x", "E\u0323\u0302", "e\u0301\u0302\u0303", "o\u0308\u0304 O\u0308", "\u0301\u0302a", "\r\nx", "\u06ddA\u0301", "\u0600\u0041", "\u200bA\u0301", "\u00adE\u0301",
    "\ufb01x", "\ufb01\u0301", "ﬁﬂ\ufb03", "\uff21\uff22\u0301", "\u200dA", "A\u200d", "A\u200d\u0301", "\u200b", "\u200b \u200b", "x\u200by", "\u3000x\u3000", "\u1f3fb", "A\U0001f3fb", "A\U000e0100",
    "\U000e0001\u0301\u0302", "É\u0301", "ÉÉÉ", "\u00c9t\u00c9", "STRASSE ẞ", "a   b", "   a   ", " a", "a ", "  ", "\t a", "a\n b", "▁a▁▁b", " ▁a", "▁", "``quoted''", "İstanbul IŞIK ǅ", "Ⱥ Ꟛ \U00010d50 \U00016ea0",
    "<unk>", "<unk><unk>", "x<unk>", "𝕏<unk>漢", "<s>a</s>", " <s> a </s> ", "<pad>", "a<|im_end|>b", "<|im_end|> a", " <|im_end|>a", "<think>a", "x <think> a", "ÉX<think>É", "<mark> a <mark>  b", "\x00a\x00", "A\x00\u0301",
    "7 < 8", "aaaaaaaa", "ththththe", "1234567", "a1b22c333", "\u00a0\u2003a\u2003", "a\u0085b", "a" * 200, "xyz" * 60, "the sea " * 20, "漢字" * 40,
]


def rules():
    """Rules of normalization: lower case, composition, ligatures, full width, deletion, spaces."""
    pairs = {chr(c): chr(c + 32) for c in range(0x41, 0x5B)}
    pairs |= {chr(c): chr(c - 0xFEE0 + (32 if 0xFF21 <= c <= 0xFF3A else 0)) for c in range(0xFF01, 0xFF5F)}
    for base in "aeiou":
        for mark, name in [("\u0301", "áéíóú"), ("\u0302", "âêîôû"), ("\u0308", "äëïöü")]:
            for letter in (base, base.upper()):
                pairs[letter + mark] = name["aeiou".index(base)]
    pairs |= {"e\u0323": "ẹ", "e\u0323\u0302": "ệ", "É": "é", "\ufb01": "fi", "\ufb02": "fl", "\ufb03": "ffi", "ß": "ss", "\u200b": "", "\u200d": "", "\u3000": " ", "\t": " ", "\r\n": " ", "\n": " ",
              "\ufdfa": "\u0635\u0644\u0649 \u0627\u0644\u0644\u0647 \u0639\u0644\u064a\u0647 \u0648\u0633\u0644\u0645", "\u0600": "N", "①": "(1)", "½": "1/2", "𝕳": "h"}
    return pairs


def train():
    with tempfile.TemporaryDirectory() as tmp:
        tsv, out = os.path.join(tmp, "rules.tsv"), io.BytesIO()
        with open(tsv, "w") as f:
            for old, new in rules().items():
                f.write(" ".join("%X" % ord(c) for c in old) + "\t" + " ".join("%X" % ord(c) for c in new) + "\n")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([p for s in FRAGMENTS for p in s.split("\n") if p.strip()]), model_writer=out, model_type="unigram", vocab_size=620,
            normalization_rule_tsv=tsv, character_coverage=0.98, hard_vocab_limit=False, pad_id=3, num_threads=1, minloglevel=2)
    return pb.ModelProto.FromString(out.getvalue())


def metaspace(scheme, split=True):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


def sequence(*parts, kind="pretokenizers"):
    return {"type": "Sequence", kind: list(parts)}


def replace(old, new, kind="Regex"):
    return {"type": "Replace", "pattern": {kind: old}, "content": new}


def template(before, after):
    tokens = before + after
    piece = lambda t: {"SpecialToken": {"id": t, "type_id": 0}}
    a = {"Sequence": {"id": "A", "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [piece(t) for t in before] + [a] + [piece(t) for t in after], "pair": [a, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {t: {"id": t, "ids": [IDS[t]], "tokens": [t]} for t in tokens}}


IDS = {"<unk>": 0, "<s>": 1, "</s>": 2, "<pad>": 3}
TEXTS = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
TOKENS = [added(t, i, special=True) for t, i in IDS.items()]


def variants():
    pre = {"type": "Precompiled", "precompiled_charsmap": "BASE"}
    more = TOKENS + [added("<|im_end|>", 620, special=True), added("<think>", 621, normalized=True), added("<mark>", 622, lstrip=True, rstrip=True)]
    return {
        "as made": {},
        "words apart": {"pre_tokenizer": sequence({"type": "WhitespaceSplit"}, metaspace("always"))},
        "words apart, first": {"pre_tokenizer": sequence({"type": "WhitespaceSplit"}, metaspace("first")), "decoder": metaspace("first")},
        "accents": {"normalizer": sequence(replace("``", '"', "String"), replace("''", '"', "String"), {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, pre, replace(" {2,}", " "), kind="normalizers"),
                    "post_processor": template(["<s>"], ["</s>"])},
        "lower": {"normalizer": {"type": "Lowercase"}, "pre_tokenizer": metaspace("never"), "decoder": metaspace("never")},
        "bytes": {"normalizer": sequence({"type": "Prepend", "prepend": "▁"}, SPACES, kind="normalizers"), "pre_tokenizer": None, "decoder": TEXTS,
                  "model": {"byte_fallback": True}, "append": [["<0x%02X>" % b, 0.0] for b in range(256)]},
        "some bytes": {"normalizer": None, "decoder": TEXTS, "model": {"byte_fallback": True}, "append": [["<0x%02X>" % b, 0.0] for b in range(0xD0)]},
        "first, whole": {"normalizer": None, "pre_tokenizer": metaspace("first", False), "decoder": metaspace("first"), "added_tokens": more},
        "strip, first": {"normalizer": sequence({"type": "Strip", "strip_left": True, "strip_right": True}, pre, kind="normalizers"), "pre_tokenizer": metaspace("first"), "added_tokens": more},
        "margins, first": {"normalizer": sequence(pre, replace(r"\A +| +\z", ""), replace(" {2,}", "▁"), kind="normalizers"), "pre_tokenizer": metaspace("first"), "added_tokens": more},
        "accents, first": {"normalizer": sequence({"type": "StripAccents"}, replace("^[ab]+", ""), replace("x", "", "String"), kind="normalizers"), "pre_tokenizer": metaspace("first", False), "added_tokens": more},
        "pieces, first": {"normalizer": pre, "pre_tokenizer": sequence({"type": "Digits", "individual_digits": True}, {"type": "Split", "pattern": {"String": "a"}, "behavior": "Removed", "invert": False}, metaspace("first"))},
        "nothing": {"normalizer": None, "pre_tokenizer": None, "decoder": None, "post_processor": None},
        "scores above zero": {"pre_tokenizer": None, "normalizer": None, "raise": 40},
        "twice": {"pre_tokenizer": None, "normalizer": None, "append": [["", 3.0], ["th", -1.0], ["e", -30.0], ["the", -9.0], ["a", -2.0]]},
        "byte level": {"normalizer": None, "pre_tokenizer": byte_level(False, True), "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}},
        "bpe, first": {"model": "bpe", "normalizer": None, "pre_tokenizer": metaspace("first", False), "post_processor": None, "added_tokens": more[-3:], "decoder": sequence({"type": "ByteFallback"}, {"type": "Fuse"}, kind="decoders")},
        "bpe, words": {"model": "bpe", "normalizer": None, "pre_tokenizer": metaspace("always"), "post_processor": None, "added_tokens": [], "decoder": sequence(metaspace("always"), {"type": "ByteFallback"}, {"type": "Fuse"}, kind="decoders")},
    }


def patched(base, gemma, patch):
    d = copy.deepcopy(base)
    for key, value in patch.items():
        if key == "model" and value == "bpe":
            d["model"] = gemma["model"]
        elif key == "model":
            d["model"].update(value)
        elif key == "append":
            d["model"]["vocab"] += value
        elif key == "raise":
            d["model"]["vocab"] = [[t, s + value] for t, s in d["model"]["vocab"]]
        else:
            d[key] = value
    return json.dumps(d).replace('"BASE"', json.dumps(base["normalizer"]["precompiled_charsmap"]))


def digest(ids, text):
    return hashlib.sha256(struct.pack("<%dI" % len(ids), *ids) + text.encode()).hexdigest()[:6]


def main():
    rng = random.Random(20260303)
    goldens = json.load(gzip.open(os.path.join(HERE, "goldens.json.gz")))
    strings = MORE + [s for i in (0, 2) for s in goldens["strings"][STRINGS[i] : STRINGS[i + 1]]]
    m = train()
    vocab = [[p.piece, p.score] for p in m.pieces]
    assert [vocab[i][0] for i in range(4)] == list(IDS)
    charsmap = m.normalizer_spec.precompiled_charsmap
    base = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": TOKENS,
            "normalizer": {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()},
            "pre_tokenizer": metaspace("always"), "post_processor": template([], ["</s>"]), "decoder": metaspace("always"),
            "model": {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": False}}
    picks = [[rng.randrange(len(vocab) + 100) for _ in range(rng.randint(1, 12))] for _ in range(60)]
    out = {"made_by": "make_unigram.py, tokenizers " + __import__("tokenizers").__version__, "more": MORE, "strings": STRINGS, "base": base, "picks": picks, "variants": []}
    for name, patch in variants().items():
        t = Tokenizer.from_str(patched(base, goldens["gemma"], patch))
        ids = [t.encode(s, add_special_tokens=True).ids for s in strings]
        hashes = "".join(digest(i, t.decode(i, skip_special_tokens=True)) for i in ids) + "".join(digest([], t.decode(p, skip_special_tokens=False)) for p in picks)
        out["variants"].append({"name": name, "patch": patch, "hashes": hashes})
        print(name, sum(map(len, ids)), sum(i == 0 for j in ids for i in j))
    data = gzip.compress(json.dumps(out, ensure_ascii=False, separators=(",", ":")).encode(), 9, mtime=0)
    with open(os.path.join(HERE, "unigram.json.gz"), "wb") as f:
        f.write(data)
    print(len(vocab), "tokens,", len(charsmap), "bytes of charsmap,", len(data), "bytes")


if __name__ == "__main__":
    main()
