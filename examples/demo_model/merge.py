"""Weighted mean of two checkpoints of one run: python merge.py EARLIER LATER OUT --share 0.75 (the share of EARLIER)."""

from __future__ import annotations

import argparse
from pathlib import Path

from modeling import load, save


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("earlier", type=Path)
    parser.add_argument("later", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--share", type=float, default=0.75)
    args = parser.parse_args()
    model, earlier = load(args.later), load(args.earlier).state_dict()
    mean = {name: w + args.share * (earlier[name] - w) for name, w in model.state_dict().items()}
    model.load_state_dict(mean)
    save(model, args.out)


if __name__ == "__main__":
    main()
