"""Verdicts follow from the parts; a change that is named does make the model fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridctl.fit.advice import changes_that_fit, command, needed_flags
from hybridctl.fit.caches import Flags, caches
from hybridctl.fit.estimate import GIB, Memory, Question, Subject, estimate
from hybridctl.fit.groups import PagesDiffer, group_layers
from hybridctl.fit.limits import contexts, fp8_gain, least_budget, sequences
from hybridctl.fit.parallel import expert_share, problems, sizes_that_divide
from hybridctl.fit.rules import batch_defaults, rules_for
from hybridctl.fit.specs import Launch, Spec
from hybridctl.fit.weights import Ranks, from_count
from hybridctl.model.config import read_config
from hybridctl.model.plan import plan_layers

FAMILIES = json.loads((Path(__file__).parent.parent / "data" / "fit" / "families.json").read_text())


def subject(family: str, quant: list[str] | None = None, **changes: Any) -> Subject:
    config = read_config({**FAMILIES[family], **changes})
    return Subject(family, config, plan_layers(config), None, quant or [])


def question(gib: float, tp: int = 1, length: int = 32768, drafts: int = 0, **flags: Any) -> Question:
    f = Flags(length, 8192, 256, tp, num_speculative_tokens=drafts, draft_layers=1 if drafts else 0)
    return Question(Memory.exact(gib, "GPU"), replace(f, **flags), Ranks(tp), rules_for("0.32.0"), 0.92)


class TestVerdict:
    def test_fits_does_not_fit_and_between(self) -> None:
        verdicts = [estimate(subject("qwen3_5_27b"), question(gib)).verdict for gib in (48, 60, 80)]
        assert verdicts == ["does-not-fit", "tight", "fits"]

    def test_the_parts_add_up_to_the_share(self) -> None:
        e = estimate(subject("qwen3_5_27b"), question(80))
        assert e.weights and e.overhead
        share = int(80 * GIB * 0.92)
        slack = int(e.weights.gpu * e.weights.error)
        assert e.pool.low == share - e.weights.gpu - slack - e.overhead.total.high
        assert e.pool.high == share - e.weights.gpu + slack - e.overhead.total.low
        assert e.pool.low < e.planned < e.pool.high

    def test_heads_that_do_not_divide_are_refused(self) -> None:
        e = estimate(subject("qwen3_5_27b"), question(80, tp=16))
        assert e.verdict == "refused"
        assert "24 attention heads do not divide by 16 ranks" in e.why

    def test_what_the_config_leaves_open_is_unknown(self) -> None:
        e = estimate(subject("qwen3_next", linear_key_head_dim=None), question(80))
        assert e.verdict == "unknown"
        assert e.why == ("config.json does not tell the sizes of a gdn layer",)

    def test_a_named_size_is_a_range_and_a_measured_one_is_not(self) -> None:
        named = Memory.nominal(80, "H100")
        assert named.low < 79.65 * GIB < named.high < 80 * GIB
        assert Memory.exact(79.65).low == Memory.exact(79.65).high

    @settings(deadline=None, max_examples=30)
    @given(gib=st.floats(30, 200), more=st.floats(0, 100), length=st.integers(1000, 200_000))
    def test_more_memory_and_shorter_requests_never_hurt(self, gib: float, more: float, length: int) -> None:
        order = ["does-not-fit", "tight", "fits"]
        model = subject("qwen3_5_27b")
        e = estimate(model, question(gib, length=length))
        larger = estimate(model, question(gib + more, length=length))
        shorter = estimate(model, question(gib, length=max(1, length // 2)))
        assert order.index(larger.verdict) >= order.index(e.verdict)
        assert order.index(shorter.verdict) >= order.index(e.verdict)


class TestAdvice:
    def test_every_named_change_fits_when_asked_again(self) -> None:
        model, asked = subject("qwen3_next_80b"), question(80)
        changes = changes_that_fit(model, asked)
        assert changes
        for change in changes:
            assert estimate(change.answer.subject, change.asked).verdict == "fits"

    def test_a_smaller_checkpoint_is_named_when_it_is_published(self) -> None:
        changes = changes_that_fit(subject("qwen3_5_27b"), question(40), {"fp8": None}, limit=9)
        assert any(c.text.startswith("the fp8 checkpoint") for c in changes)
        assert not any("checkpoint" in c.text for c in changes_that_fit(subject("qwen3_5_27b"), question(40), limit=9))

    def test_a_shorter_context(self) -> None:
        asked = question(63, length=262144, max_num_seqs=16, kv_cache_dtype="fp8", max_num_batched_tokens=2048)
        change = changes_that_fit(subject("qwen3_5_27b"), asked)[0]
        assert change.text.startswith("a shorter context (--max-model-len ")
        assert change.asked.flags.max_model_len % 1024 == 0

    def test_defaults_are_no_flags(self) -> None:
        asked = question(141, length=262144)
        asked = replace(asked, flags=replace(asked.flags, max_num_seqs=1024))
        e = estimate(subject("qwen3_5_27b"), asked)
        assert needed_flags(e, asked, False) == []
        flags = needed_flags(e, replace(asked, ranks=Ranks(2)), True)
        assert command(e.subject, flags) == "vllm serve qwen3_5_27b --tensor-parallel-size 2 --max-model-len 262144"

    def test_sequences_beyond_the_state_blocks_are_capped(self) -> None:
        asked = question(70, length=32768)
        asked = replace(asked, flags=replace(asked.flags, max_num_seqs=1024))
        e = estimate(subject("qwen3_5_27b"), asked)
        seqs = next(f for f in needed_flags(e, asked, False) if f.flag.startswith("--max-num-seqs"))
        assert "state block" in seqs.reason


class TestLimits:
    def test_contexts_end_with_the_maximum(self) -> None:
        e = estimate(subject("qwen3_5_27b"), question(80))
        assert e.caches
        rows = contexts(e.caches, e.planned, (1000, 500_000, 8192))
        assert [r.tokens for r in rows] == [1000, 8192, 32768]
        assert rows[0].concurrency > rows[1].concurrency > rows[2].concurrency

    def test_a_model_with_states_has_a_limit_at_start(self) -> None:
        made = caches(plan_layers(read_config(FAMILIES["qwen3_5_27b"])), question(80).flags, rules_for("0.32.0"))
        assert sequences(made, 20 * GIB).start == made.blocks(20 * GIB)
        plain = caches(plan_layers(read_config(FAMILIES["qwen3"])), question(80).flags, rules_for("0.32.0"))
        assert sequences(plain, 20 * GIB).start is None

    def test_the_budget_holds_a_block_and_a_decode_step(self) -> None:
        plan = plan_layers(read_config(FAMILIES["qwen3_5_27b"]))
        few = caches(plan, question(80, max_num_seqs=16).flags, rules_for("0.32.0"))
        many = caches(plan, question(80, max_num_seqs=1024, drafts=3).flags, rules_for("0.32.0"))
        assert least_budget(few)[0] == few.block_size
        assert least_budget(many)[0] == 1024 * 4

    def test_fp8_buys_less_than_twice_where_there_are_states(self) -> None:
        model = subject("qwen3_5_27b")
        gain = fp8_gain(estimate(model, question(80)), model.plan)
        assert gain and 1.5 < gain.factor < 2
        assert fp8_gain(estimate(model, question(80, kv_cache_dtype="fp8")), model.plan) is None

    def test_defaults_by_gpu(self) -> None:
        assert batch_defaults(140.4, "H200") == (8192, 1024)
        assert batch_defaults(79.3, "NVIDIA A100-SXM4-80GB") == (2048, 256)
        assert batch_defaults(179, "B200") == (16384, 1024)
        assert batch_defaults(24) == (2048, 256)


class TestLayout:
    def test_sizes(self) -> None:
        assert sizes_that_divide(subject("qwen3_5_27b").config, subject("qwen3_5_27b").plan, []) == [1, 2, 4, 8]

    @pytest.mark.parametrize(
        ("width", "pieces", "block", "expected"),
        [
            (640, 1, 128, "whole"),
            (640, 4, 128, "retiled"),
            (640, 8, 128, "refused"),
            (512, 4, 128, "whole"),
            (640, 3, 1, "refused"),
        ],
    )
    def test_experts(self, width: int, pieces: int, block: int, expected: str) -> None:
        assert expert_share(width, pieces, block) == expected

    def test_expert_parallelism_keeps_experts_whole(self) -> None:
        model = subject("qwen4_exp")
        assert problems(model.config, model.plan, Ranks(8), ["fp8-block"])
        assert not problems(model.config, model.plan, Ranks(8, 1, True), ["fp8-block"])

    def test_what_is_spread_and_what_is_repeated(self) -> None:
        model = subject("qwen3_next")
        counted = {"experts": 800, "attention": 80, "router": 8, "draft": 40, "table": 400}
        one = from_count(counted, model.config, model.plan, Ranks(1), False, False, [])
        assert dict(one.parts) == {"experts": 1600, "attention": 160, "router": 16}
        assert one.host == 800
        two = from_count(counted, model.config, model.plan, Ranks(2, 2), True, True, [])
        assert dict(two.parts) == {"experts": 400, "attention": 80, "router": 16, "draft": 40, "table": 400}
        assert two.host == 0


class TestGroups:
    def test_an_mla_page_is_not_padded(self) -> None:
        specs = [Spec("mla", 16, 1000, 1000), Spec("sliding", 16, 1500, 1500, window=8)]
        with pytest.raises(PagesDiffer):
            group_layers(specs)

    def test_a_group_is_as_wide_as_the_fewest_layers(self) -> None:
        full, state = Spec("full", 16, 64, 64), Spec("state", 16, 60, 64)
        made = group_layers([state, state, state, full] * 4)
        assert [len(g.specs) for g in made.groups] == [4, 4, 4, 4]
        assert made.block_bytes == 4 * 64

    def test_nearly_equal_counts_make_two_groups(self) -> None:
        full, slide = Spec("full", 16, 64, 64), Spec("sliding", 16, 64, 64, window=128)
        made = group_layers([slide, full] * 12 + [full])
        assert sorted(len(g.specs) for g in made.groups) == [12, 13]
        assert made.block_bytes == 13 * 64
        assert 0 < made.idle(4096, Launch(2048)) < 0.1


def test_a_published_size_counts_more_than_a_count() -> None:
    model = subject("qwen4_exp", ["fp8"])
    counted = estimate(model, question(141, tp=4))
    stated = estimate(replace(model, size=int(172.8 * GIB)), question(141, tp=4))
    assert counted.weights and stated.weights
    assert stated.weights.whole == pytest.approx(172.8 * GIB, rel=1e-6)
    assert counted.weights.whole == pytest.approx(172.8 * GIB, rel=counted.weights.error)
    assert stated.weights.error < counted.weights.error
