"""Run an engine in processes of its own: engine_process.py MODEL PROMPTS.json ANSWERS.json SETTINGS TOKENS."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path


def main() -> None:
    from vllm import LLM
    from vllm_harness import answer, greedy

    model, prompts, answers, settings, tokens = sys.argv[1:]
    llm = LLM(model, **json.loads(settings))
    params = greedy(int(tokens))
    given = [{"prompt_token_ids": p} for p in json.loads(Path(prompts).read_text(encoding="utf-8"))]
    rounds = [llm.generate(given, params, use_tqdm=False) for _ in range(2)]
    done = [dataclasses.asdict(answer(each)) for outputs in rounds for each in outputs]
    Path(answers).write_text(json.dumps(done), encoding="utf-8")


if __name__ == "__main__":
    main()
