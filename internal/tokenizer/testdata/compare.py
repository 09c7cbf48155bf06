#!/usr/bin/env python3
"""Compares this package with the PyPI package tokenizers: ids and speed.

    pip install tokenizers==0.23.3
    python3 compare.py TOKENIZER.json TEXT...

For every text: whether the ids and the decoded text are the same, and the
rate of both, each on one thread, the first time (caches empty) and the best of
three, in one run of this script. Exit status 1 if any differ.
"""
import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # noqa: E402

REPEAT = 3


def main():
    path, texts = os.path.abspath(sys.argv[1]), [os.path.abspath(p) for p in sys.argv[2:]]
    start = time.perf_counter()
    tok = tokenizers.Tokenizer.from_file(path)
    load = time.perf_counter() - start
    theirs = []
    for name in texts:
        text = open(name, "rb").read().decode("utf-8", "replace")
        times = []
        for _ in range(REPEAT):
            start = time.perf_counter()
            ids = tok.encode(text, add_special_tokens=False).ids
            times.append(time.perf_counter() - start)
        start = time.perf_counter()
        decoded = tok.decode(ids, skip_special_tokens=False)
        theirs.append((ids, times[0], min(times), hashlib.sha256(decoded.encode()).hexdigest(), time.perf_counter() - start))
    with tempfile.NamedTemporaryFile("w", suffix=".json") as job:
        json.dump({"tokenizer": path, "texts": texts, "repeat": REPEAT}, job)
        job.flush()
        out = subprocess.run(
            ["go", "test", "-count=1", "-run", "^TestCompare$", "-v", "."],
            cwd=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."),
            env=dict(os.environ, ANEMONE_TOKENIZER_COMPARE=job.name, GOMAXPROCS="1"),
            capture_output=True, text=True)
    lines = [l.split()[1:] for l in out.stdout.splitlines() if l.startswith("compare ")]
    if out.returncode:
        sys.exit(out.stdout + out.stderr)
    bad = 0
    for l in lines:
        if l[0] == "load":
            print("load: %.2f s, tokenizers %.2f s: %.1f times as fast" % (float(l[1]), load, load / float(l[1])))
            continue
        i = int(l[1])
        ids, first, best, decoded, decode = theirs[i]
        size = os.path.getsize(texts[i]) / 1e6
        if l[0] == "text":
            want = hashlib.sha256(struct.pack("<%di" % len(ids), *ids)).hexdigest()
            bad += want != l[3]
            print("%s: encode %.2f MB, %d ids: %s; first %.2f MB/s, tokenizers %.2f: %.1f times as fast; best %.2f MB/s, tokenizers %.2f: %.1f times" % (
                os.path.basename(texts[i]), size, len(ids), "equal" if want == l[3] else "DIFFERENT (%s ids)" % l[2],
                size / float(l[4]), size / first, first / float(l[4]), size / float(l[5]), size / best, best / float(l[5])))
        else:
            bad += decoded != l[2]
            print("%s: decode %s; %.2f MB/s, tokenizers %.2f MB/s" % (
                os.path.basename(texts[i]), "equal" if decoded == l[2] else "DIFFERENT",
                size / float(l[3]), size / decode))
    sys.exit(1 if bad else 0)


main()
