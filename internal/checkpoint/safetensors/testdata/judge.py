"""Says what the reference implementation makes of every case of TestParse.

usage: go test -run TestParse -args -corpus DIR    writes the cases
       judge.py DIR                                prints "NAME ok" or "NAME refused: REASON"
needs: numpy, safetensors (PyPI; verdicts in the test are those of 0.8.0)
"""
import sys
from pathlib import Path

from safetensors import safe_open

for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        with safe_open(path, "numpy") as f:
            f.keys()
        print(path.stem, "ok")
    except Exception as e:
        print(path.stem, "refused:", str(e)[:100])
