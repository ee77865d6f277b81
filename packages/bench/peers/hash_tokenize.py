"""Hash-tokenizing in plain Python: lower-case, split, FNV-1a. Prints seconds and the sum of all ids."""
import gzip
import json
import sys
import time

path = sys.argv[1]
with (gzip.open(path, "rt") if path.endswith(".gz") else open(path)) as f:
    texts = [json.loads(line)["text"] for line in f if line.strip()]


def encode(text, vocabulary=20000):
    out = []
    for word in text.lower().split():
        h = 2166136261
        for c in word:
            h = ((h ^ ord(c)) * 16777619) & 0xFFFFFFFF
        out.append(1 + h % (vocabulary - 1))
    return out


start = time.perf_counter()
total = sum(sum(encode(text)) for text in texts)
print(json.dumps({"seconds": time.perf_counter() - start, "sum": total, "texts": len(texts)}))
