#!/usr/bin/env python3
"""Makes goldens.json.gz: small SentencePiece models and what sentencepiece makes of strings with them, and
what the PyPI package tokenizers makes of strings with the pre-tokenizers that GGUF has names for.

    pip install tokenizers==0.23.3 sentencepiece==0.2.3
    python3 make.py

The strings are those of ../../testdata/goldens.json.gz, the models are trained
on some of its fragments. Contents of the result:

  models   name, the tokenizer.model, and for each string the start of a hash of
           the ids of sentencepiece, or dashes where it means something else by the string:
           it knows no control tokens in texts, and its rules of normalization are
           applied differently by the reference for tokenizer.json (make_unigram.py)
  pre      name, and for each string the start of a hash of the ids with the
           vocabulary of tiny-qwen3 and the pre-tokenizer, written here as the
           tokenizer.json of the models has it

With --check it makes nothing, but has the Go test write a tokenizer.json for
each model and compares the ids that tokenizers finds with it.
"""
import base64
import gzip
import hashlib
import io
import json
import os
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../testdata"))
import make_unigram  # noqa: E402
import sentencepiece  # noqa: E402
from make_goldens import FRAGMENTS, TINY, byte_level, regex  # noqa: E402
from sentencepiece import sentencepiece_model_pb2 as pb  # noqa: E402
from tokenizers import Tokenizer, normalizers  # noqa: E402

MORE = ["a   b", "   a   ", " a", "a ", "  ", "▁a▁▁b", " ▁a", "<table>", "a<table>b", " <table> ", "<b><b>", "a  <b>  b", "\n\n\n\n\n", "a\n\n\nb", "x\t\ty", "    indented\n        twice", "<table", "the theatre", "aaaaaaa"]

TRAIN = {
    "llama": dict(model_type="bpe", vocab_size=620, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True),
    "gemma": dict(model_type="bpe", vocab_size=640, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False, pad_id=0, eos_id=1, bos_id=2, unk_id=3,
                  bos_piece="<bos>", eos_piece="<eos>", user_defined_symbols=["\n", "\n\n", "\n\n\n", "▁▁", "▁▁▁", "▁▁▁▁", "<table>", "<b>", "\t"]),
    "bpe": dict(model_type="bpe", vocab_size=420, rules=True),
    "unigram": dict(model_type="unigram", vocab_size=420, rules=True),
    "unigram bytes": dict(model_type="unigram", vocab_size=620, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False, user_defined_symbols=["<table>", "<b>", "\n"]),
    "unigram words": dict(model_type="unigram", vocab_size=380, normalization_rule_name="identity", split_by_whitespace=False),
}


def sequence(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
START = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
END = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DIGITS = {"type": "Digits", "individual_digits": True}
NFC = {"type": "NFC"}
TEKKEN = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# name -> pre_tokenizer, normalizer, ignore_merges
PRE = {
    "gpt-2": (byte_level(False, True), None, False),
    "llama-bpe": (regex(START + r"\p{N}{1,3}" + END), None, True),
    "qwen2": (regex(START + r"\p{N}" + END), NFC, False),
    "qwen35": (regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), NFC, False),
    "smollm": (sequence(DIGITS, byte_level(False, True)), None, False),
    "tekken": (regex(TEKKEN), None, True),
    "default": (sequence(split(r"[\p{P}\$\+<=>\^~\|]+"), split(GPT2), split(r"\p{N}+"), split("[0-9][0-9][0-9]"), byte_level(False, False)), None, False),
}


def train(options):
    options = dict(options)
    out = io.BytesIO()
    with tempfile.TemporaryDirectory() as tmp:
        if options.pop("rules", False):
            options["normalization_rule_tsv"] = os.path.join(tmp, "rules.tsv")
            with open(options["normalization_rule_tsv"], "w") as f:
                for old, new in make_unigram.rules().items():
                    f.write(" ".join("%X" % ord(c) for c in old) + "\t" + " ".join("%X" % ord(c) for c in new) + "\n")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([p for s in FRAGMENTS[:6] + FRAGMENTS[18:27] for p in s.split("\n") if p.strip()]), model_writer=out, character_coverage=0.98, hard_vocab_limit=False, num_threads=1, minloglevel=2, **options)
    return out.getvalue()


def strings():
    all = json.load(gzip.open(os.path.join(HERE, "../../testdata/goldens.json.gz")))["strings"]
    return MORE + all[:300] + all[640:720]


def expected(model, s):
    """The ids of sentencepiece, or None where it means something else."""
    m, sp = pb.ModelProto.FromString(model), sentencepiece.SentencePieceProcessor(model_proto=model)
    control = [p.piece for p in m.pieces if p.type in (2, 3)]

    def one(s):
        if any(c in s for c in control):
            return None
        if m.normalizer_spec.precompiled_charsmap:
            mine = normalizers.Precompiled(m.normalizer_spec.precompiled_charsmap).normalize_str(s)
            if " ".join(mine.split(" ")).strip(" ") != "" and sp.normalize(s).replace("▁", " ").strip(" ") != " ".join(p for p in mine.split(" ") if p).replace("▁", " ").strip(" "):
                return None
        return sp.encode(s)

    return [one(s) for s in s]


def digest(ids):
    return hashlib.sha256(struct.pack("<%dI" % len(ids), *ids)).hexdigest()[:6] if ids is not None else "------"


def check():
    got = {}
    with tempfile.TemporaryDirectory() as tmp:
        subprocess.run(["go", "test", "-count=1", "-run", "^TestWrite$", "."], cwd=os.path.join(HERE, ".."), env=dict(os.environ, ANEMONE_VOCAB_WRITE=tmp), check=True, stdout=subprocess.DEVNULL)
        for name in os.listdir(tmp):
            got[name.removesuffix(".json")] = Tokenizer.from_file(os.path.join(tmp, name))
    bad, all = 0, strings()
    golden = json.load(gzip.open(os.path.join(HERE, "goldens.json.gz")))
    for m in golden["models"]:
        want = expected(base64.b64decode(m["model"]), all)
        for s, ids in zip(all, want):
            if ids is not None and got[m["name"]].encode(s, add_special_tokens=False).ids != ids:
                bad += 1
                print(m["name"], repr(s), got[m["name"]].encode(s, add_special_tokens=False).ids, ids)
    for p in golden["pre"]:
        for i, s in enumerate(all):
            if digest(got[p["name"]].encode(s, add_special_tokens=False).ids) != p["hashes"][6 * i : 6 * i + 6]:
                bad += 1
                print(p["name"], repr(s))
    print(len(all), "strings with", len(golden["models"]), "models and", len(golden["pre"]), "pre-tokenizers:", bad, "differ")
    sys.exit(bad > 0)


def main():
    all = strings()
    out = {"made_by": "make.py, sentencepiece " + sentencepiece.__version__ + ", tokenizers " + __import__("tokenizers").__version__, "more": MORE, "models": [], "pre": []}
    for name, options in TRAIN.items():
        model = train(options)
        m, sp = pb.ModelProto.FromString(model), sentencepiece.SentencePieceProcessor(model_proto=model)
        want = expected(model, all)
        out["models"].append({
            "name": name, "model": base64.b64encode(model).decode(), "hashes": "".join(digest(i) for i in want),
            "ids": {"bos": sp.bos_id(), "eos": sp.eos_id(), "unk": sp.unk_id(), "pad": sp.pad_id()},
            "pieces": [[p.piece, struct.unpack("<I", struct.pack("<f", p.score))[0], p.type] for p in m.pieces][:: 40],
            "count": len(m.pieces), "prefix": m.normalizer_spec.add_dummy_prefix, "extra": m.normalizer_spec.remove_extra_whitespaces, "charsmap": len(m.normalizer_spec.precompiled_charsmap)})
        print(name, len(m.pieces), "pieces,", len(model), "bytes;", sum(i is not None for i in want), "of", len(all), "strings")
    tiny = json.load(open(TINY, encoding="utf-8"))
    for name, (pre, normalizer, ignore) in PRE.items():
        tiny.update(pre_tokenizer=pre, normalizer=normalizer)
        tiny["model"]["ignore_merges"] = ignore
        t = Tokenizer.from_str(json.dumps(tiny))
        out["pre"].append({"name": name, "hashes": "".join(digest(t.encode(s, add_special_tokens=False).ids) for s in all)})
    data = gzip.compress(json.dumps(out, ensure_ascii=False, separators=(",", ":")).encode(), 9, mtime=0)
    with open(os.path.join(HERE, "goldens.json.gz"), "wb") as f:
        f.write(data)
    print(len(data), "bytes")


if __name__ == "__main__":
    check() if sys.argv[1:] == ["--check"] else main()
