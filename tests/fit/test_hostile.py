"""Whatever a config.json says, fit answers or says what it does not know; it never fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hybridctl.commands._fit_page import summary
from hybridctl.fit.advice import changes_that_fit
from hybridctl.fit.caches import Flags
from hybridctl.fit.estimate import Memory, Question, Subject, estimate
from hybridctl.fit.parallel import sizes_that_divide
from hybridctl.fit.routing import routing
from hybridctl.fit.rules import rules_for
from hybridctl.fit.weights import Ranks
from hybridctl.model.config import read_config
from hybridctl.model.plan import plan_layers

FAMILIES = json.loads((Path(__file__).parent.parent / "data" / "fit" / "families.json").read_text())
_VALUES: Any = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.sampled_from(
        [
            2**31,
            2**63,
            -(2**70),
            1.5,
            float("inf"),
            float("nan"),
            "x",
            "float32",
            [],
            [1, 2],
            ["full_attention"],
            {},
            {"a": 1},
        ]
    ),
)


@st.composite
def spoiled(draw: Any) -> dict[str, Any]:
    """A family's config with a few fields replaced or gone."""
    document: dict[str, Any] = json.loads(json.dumps(FAMILIES[draw(st.sampled_from(sorted(FAMILIES)))]))
    text = document["text_config"] if draw(st.booleans()) and "text_config" in document else document
    for name in draw(st.lists(st.sampled_from(sorted(text)), min_size=1, max_size=4)):
        if draw(st.integers(0, 3)):
            text[name] = draw(_VALUES)
        else:
            text.pop(name, None)
    if draw(st.booleans()):
        document["hybrid_config"] = {
            "thresholds": {"linear": draw(_VALUES)},
            "linear_head_ratio": draw(_VALUES),
            "linear_heads": draw(_VALUES),
        }
    return document


@settings(deadline=None, max_examples=300)
@given(
    document=spoiled(),
    ranks=st.sampled_from([1, 2, 3, 8]),
    drafts=st.integers(0, 3),
    block=st.sampled_from([None, 1, 17, 64]),
)
def test_any_config(document: dict[str, Any], ranks: int, drafts: int, block: int | None) -> None:
    config = read_config(document)
    plan = plan_layers(config)
    model = Subject("x", config, plan, None, [])
    flags = Flags(4096, 2048, 16, ranks, block, num_speculative_tokens=drafts, draft_layers=min(drafts, 1))
    asked = Question(Memory.exact(24, "GPU"), flags, Ranks(ranks), rules_for("0.32.0"), 0.92)
    answer = estimate(model, asked)
    assert summary(answer, [])
    changes_that_fit(model, asked)
    sizes_that_divide(config, plan, [])
    routing(config, plan, ranks)
