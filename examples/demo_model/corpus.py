"""The text: CPython's own standard library, as it lies beside the interpreter that runs this script.

    python corpus.py OUT_DIR

writes OUT_DIR/train.npz (all training documents) and OUT_DIR/heldout.json.gz (windows of documents that training never
sees). Copyright of the text: Python Software Foundation, under the PSF licence, version 2.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import platform
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np

WINDOW = 2047  # bytes; with the first token, <|begin|>, one context of 2,048
# Tables rather than text; and whatever pip put there, which has other licences.
SKIPPED = ("site-packages", "encodings", "pydoc_data", "ensurepip", "unidata", "config-")
HELD_OUT_SHARE = 16
WINDOWS_PER_DOCUMENT = 3
HELD_OUT_WINDOWS = 208


def documents(root: Path) -> Iterator[tuple[str, bytes]]:
    """Every Python file of the library: (path inside it, text), sorted by path; only valid UTF-8 of 1 to 300 KB."""
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if any(part in name for part in SKIPPED):
            continue
        data = path.read_bytes()
        if not 1_000 <= len(data) <= 300_000:
            continue
        try:
            data.decode()
        except UnicodeDecodeError:
            continue  # test files in other encodings
        yield name, data


def held_out(name: str) -> bool:
    """Whether a document is kept from training: by a hash of its name, so that every run makes the same split."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % HELD_OUT_SHARE == 0


def windows(name: str, data: bytes) -> list[dict[str, object]]:
    """Up to three windows of a held-out document, evenly spaced, none overlapping."""
    count = min(WINDOWS_PER_DOCUMENT, len(data) // WINDOW)
    step = len(data) // max(count, 1)
    return [{"document": name, "offset": i * step, "text": data[i * step :][:WINDOW].hex()} for i in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    train: list[bytes] = []
    kept: list[dict[str, object]] = []
    for name, data in documents(Path(sysconfig.get_paths()["stdlib"])):
        if held_out(name):
            kept += windows(name, data)
        else:
            train.append(data)
    order = np.random.default_rng(0).permutation(len(kept))[:HELD_OUT_WINDOWS]
    text = {
        "source": f"CPython {platform.python_version()}, standard library",
        "licence": "PSF-2.0, copyright Python Software Foundation",
        "windows": [kept[i] for i in sorted(order)],
    }
    np.savez_compressed(
        out / "train.npz",
        text=np.frombuffer(b"".join(train), dtype=np.uint8),
        lengths=np.array([len(t) for t in train]),
    )
    (out / "heldout.json.gz").write_bytes(gzip.compress(json.dumps(text).encode(), mtime=0))
    print(
        f"{len(train)} documents, {sum(map(len, train)):,} bytes to train on; {len(text['windows'])} held-out windows"
    )


if __name__ == "__main__":
    main()
