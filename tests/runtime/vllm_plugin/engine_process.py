"""Run an engine in processes of its own: engine_process.py MODEL PROMPTS.json ANSWERS.json SETTINGS TOKENS.

Beside the answers it leaves ANSWERS.masks: of each worker (known, masks, band), nearly as a Recorder has them.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any


def start(worker: Any) -> None:
    """In a worker: record what it does."""
    from recording import Recorder

    from hybridctl.runtime.vllm_plugin import record

    runner = worker.model_runner
    config = runner.model_config
    record.hook = Recorder(
        lambda: runner.input_batch.req_ids, config.hf_text_config.num_hidden_layers, config.get_total_num_kv_heads()
    )


def stop(worker: Any) -> Any:
    """In a worker: what was recorded; of each mask its shape and where it is True, as no tensor comes through in one piece."""
    from hybridctl.runtime.vllm_plugin import record

    made: Any = record.hook
    masks = {name: (list(mask.shape), mask.nonzero().tolist()) for name, mask in made.masks.items()}
    return made.known, masks, made.band


def main() -> None:
    from vllm import LLM
    from vllm_harness import answer, greedy

    model, prompts, answers, settings, tokens = sys.argv[1:]
    llm = LLM(model, **json.loads(settings))
    llm.collective_rpc(start)
    params = greedy(int(tokens))
    given = [{"prompt_token_ids": p} for p in json.loads(Path(prompts).read_text(encoding="utf-8"))]
    rounds = [llm.generate(given, params, use_tqdm=False) for _ in range(2)]
    done = [dataclasses.asdict(answer(each)) for outputs in rounds for each in outputs]
    Path(answers).with_suffix(".masks").write_text(json.dumps(llm.collective_rpc(stop)), encoding="utf-8")
    Path(answers).write_text(json.dumps(done), encoding="utf-8")


if __name__ == "__main__":
    main()
