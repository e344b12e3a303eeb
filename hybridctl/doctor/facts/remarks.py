"""What a person writes beside the facts: what was seen (``symptom : loops on one token``), and settings without their dashes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hybridctl.doctor.facts.clean import Line
from hybridctl.doctor.facts.labels import split_label
from hybridctl.doctor.facts.statements import IMPLIED, Found, is_nothing
from hybridctl.flags import flag_window

MAX_REMARKS = 200
"""Lines that are kept: a report has a handful, a paste of something else has thousands."""

# A label that introduces what was seen, in any company: "symptom", "actual_output", "acceptance rate", "without_mtp".
_SEEN = re.compile(
    r"symptom|output|observ|behaviou?r|issue|problem|result|\bnotes?\b|\berrors?\b|effect|actual|\bseen\b|happen|accept|report|"
    r"quality|accuracy|respon[sc]e|answer|content|tool.?calls?|\bspeed|\bslow|throughput|"
    r"tok(?:ens?)?/s|tokens per|"
    r"tps\b|\bwith(?:out)? |"
    r"\blogs?\b|\bstatus\b|\bstate\b|hang|crash|fail|works?\b|measured|\bttft|\btpot|latency|\bstorage\b|"
    r"\bbackend\b|load.?time|start.?up|^before\b|^after\b|took\b|comment|description|现象|输出|问题|结果",
    re.IGNORECASE,
)
# A sentence without such a label is a remark when it complains of something.
_COMPLAINT = re.compile(
    r"garbage|garbled|gibberish|nonsense|repeat|repetiti|\bloops?\b|looping|\bhangs?\b|stuck|freez|\bslow(?:er|s)?\b|wrong|corrupt|"
    r"\bempty\b|truncat|incorrect|"
    r"\bNaN\b|!!!!|\bfail|crash|missing|never |no longer|instead of|does(?: not|n't)|not work|"
    r"拖慢|重复|乱码|感叹号|卡住|报错",
    re.IGNORECASE,
)
# Words about the report itself ("list cut off in the excerpt", "log truncated") say nothing of the server.
_ABOUT_THE_PASTE = re.compile(
    r"\bexcerpt\b|\b(?:list|logs?|paste|traceback|trace) (?:is |was |were )?(?:cut|truncat|shortened|abridged)|"
    r"(?:cut off|truncated|shortened) (?:list|log|paste|trace)",
    re.IGNORECASE,
)
_RATE = re.compile(r"\d\s*(?:tok(?:en)?s?\s?(?:/|per)\s?s|t/s\b|tps\b)", re.IGNORECASE)
_WORDS = re.compile(r"(?:[^\W\d_]{2,}[,.;:!?]?\s+){3,}")
_CJK = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]{4,}")
_BARE_NAME = re.compile(r"[a-z][a-z0-9]*(?:[_-][a-z0-9]+)+")
_SETTING = re.compile(
    r"\s*(?:[-*$#%]\s+)?(?:export\s+|set\s+)?[\w.\[\]-]+\s?={1,2}\s?\S"
)  # a variable, a pinned package
_SECRET = re.compile(r"token\s*[:=]|secret|passw|credential|api[_ -]?key|\bhf_\w{8}|\bsk-\w{8}", re.IGNORECASE)
_ABSENT = re.compile(r"\s*not (?:installed|found|available)\b", re.IGNORECASE)  # of a package: that is something seen
_KERNELS = re.compile(r"flash[-_ ]?linear|\bfla\b|causal[-_ ]?conv|mamba[-_ ]?ssm|flash[-_ ]?attn", re.IGNORECASE)
_TAIL = re.compile(r"\s+\([^)]*\)$")
# SGLang's own settings; vLLM's are in the table of its flags.
_OTHER_FLAGS_TEXT = """
attention-backend linear-attn-backend linear-attn-decode-backend linear-attn-prefill-backend mamba-radix-cache-strategy
mamba-scheduler-strategy moe-runner-backend speculative-algorithm speculative-algo speculative-num-steps
speculative-eagle-topk speculative-num-draft-tokens disable-radix-cache mem-fraction-static tp-size cuda-graph-max-bs
"""
_OTHER_FLAGS = frozenset(_OTHER_FLAGS_TEXT.split())


def parse(lines: Sequence[Line]) -> Found:
    """Remarks as ``report.said``, one statement a line; and ``kv_cache_dtype : fp8`` as the flag of that name."""
    found = Found()
    for line in lines:
        if _SETTING.match(line.text) or _SECRET.search(line.text) or " @ http" in line.text:
            continue
        split = split_label(line.text)
        if split and is_nothing(split[1]):
            if _KERNELS.search(split[0]) and _ABSENT.match(split[1]) and len(found.statements) < MAX_REMARKS:
                found.say("report.said", " ".join(line.text.split()), line)
            continue
        if split and (name := _flag(line.text, split[0])):
            found.say(f"flag.{name}", _TAIL.sub("", split[1]), line, IMPLIED)
        if len(found.statements) < MAX_REMARKS and _is_remark(line.text, split):
            found.say("report.said", " ".join(line.text.split()), line)
    return found


def _is_remark(text: str, split: tuple[str, str] | None) -> bool:
    if _ABOUT_THE_PASTE.search(text):
        return False
    if split:
        label = split[0].replace("_", " ").replace("-", " ")
        if _SEEN.search(label + " ") or _RATE.search(split[1]):
            return True
    return bool(_COMPLAINT.search(text)) and bool(_WORDS.search(text + " ") or _CJK.search(text))


def _flag(text: str, label: str) -> str | None:
    """The flag that a bare name stands for: names of one word ("model", "dtype") mean too many other things."""
    if not _BARE_NAME.fullmatch(label) or re.match(r"\s*(?:INFO|WARNING|ERROR|DEBUG)\b", text):
        return None
    name = label.replace("_", "-")
    return name if name in _OTHER_FLAGS or flag_window(name) is not None else None
