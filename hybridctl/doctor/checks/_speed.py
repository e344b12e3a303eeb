"""What a report says of speed, and what the memory of the GPU allows: one answer reads all active weights once a token."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hybridctl.data import read_table
from hybridctl.doctor.checks import _reading as read
from hybridctl.doctor.facts.model import Fact, Facts
from hybridctl.gpus import lookup
from hybridctl.patterns import late

_SLOW = late(
    r"\bslow(?:er|ly|ness|down|s)?\b|times longer|takes? (?:forever|ages|too long|very long|hours|minutes)|"
    r"\b(?:low|poor|bad|terrible|reduced|drops? in|decreas\w+|regress\w+)\b.{0,30}\b(?:throughput|"
    r"performance|speed|rate)|"
    r"\b(?:throughput|performance|speed|generation)\b.{0,40}\b(?:low|poor|bad|terrible|drops?|dropped|"
    r"decreas\w+|halved|lower|worse)\b|"
    r"\b(?:less|no more|not more|more|not faster) than \d+(?:\.\d+)? ?t(?:ok|/s|ps)|"
    r"\bonly \d+(?:\.\d+)? ?t(?:ok\w*|/s|ps)\b|"
    r"\b(?:higher|longer|worse|increas\w+|doubl\w+) .{0,20}\b(?:ttft|tpot|itl|latency)|"
    r"\b(?:ttft|tpot|itl|latency)\b.{0,30}(?:grow|increas|higher|worse|doubl|minutes)|"
    r"\b(?:throughput|performance|speed|decod\w+|tps)\b.{0,25}regress|"
    r"can't get .{0,60}(?:t/s|tok|tps)|under-?utili[sz]|full duration|every restart|"
    r"\b(?:cold start|start(?:s|ed|ing|-?up)?|boot\w*|load\w*|compil\w*|reading).{0,30}\d+(?:\.\d+)? ?(?:min|hour)|"
    r"\d+(?:\.\d+)? ?(?:minutes?|hours?|min|h) (?:to|for|of|reading|loading)|慢|很久|耗时",
    re.IGNORECASE,
)
# Speech of slowness that means something else: the start of the engine, the download, or a drafter that does not pay.
_START = late(
    r"cold start|start-?up|\bstart(?:s|ing|ed)?\b|\bboot|compil|warm-?up|\bload|weights|shard|safetensors|启动|加载",
    re.IGNORECASE,
)
_DOWNLOAD = late(r"download|fetching|\bpull(?:ing)?\b|\bxet\b|hf_transfer|下载", re.IGNORECASE)
_DRAFTER = late(r"\bmtp\b|eagle|specul|draft|acceptance|dflash", re.IGNORECASE)
_RATE = late(
    r"(?<![\d.])(\d{1,5}(?:\.\d+)?)(?:\s*(?:-|–|/|to)\s*\d+(?:\.\d+)?)?\s*"
    r"(?:output |generation |decode )?(?:tok(?:en)?s?\s?(?:/|\s+per\s+|\s+a\s+)\s?s|t/s|tps\b|tokens? per sec)",
    re.IGNORECASE,
)
_NOT_DECODE = late(r"prefill|prompt|\bpp\d*\b|without|faster|expected|baseline|compared|\bvs\b", re.IGNORECASE)
_ACTIVE = late(r"-a(\d{1,3}(?:\.\d+)?)b(?![a-z])", re.IGNORECASE)
_TOTAL = late(r"(?<![\w.])(?:e)?(\d{1,4}(?:\.\d+)?)\s?b(?![a-z])", re.IGNORECASE)
_GGUF_BITS = late(r"(?<![a-z0-9])(?:iq|tq|q)([1-8])(?:_|\b)", re.IGNORECASE)
_FOUR_BITS = {"nvfp4", "mxfp4", "awq", "gptq", "int4", "auto-round", "bitsandbytes"}
_EIGHT_BITS = {"fp8", "fp8-block", "int8", "mxfp8"}


@dataclass(frozen=True, slots=True)
class Rate:
    """Tokens a second of one answer, and what says so."""

    value: float
    fact: Fact


@dataclass(frozen=True, slots=True)
class Roof:
    """The most tokens a second that memory allows for one answer."""

    tokens_per_s: float
    gb_per_token: float
    gb_per_s: float
    facts: tuple[Fact, ...]


def complaint(facts: Facts, kind: str) -> Fact | None:
    """The remark that calls answers (``decode``), the start (``start``) or the download (``download``) slow."""
    for fact in facts.all("report.said"):
        text = str(fact.value)
        if _SLOW.search(text) and kind_of(text) == kind:
            return fact
    return None


def kind_of(text: str) -> str:
    if _DOWNLOAD.search(text):
        return "download"
    if _START.search(text):
        return "start"
    return "drafter" if _DRAFTER.search(text) else "decode"


def observed(facts: Facts) -> Rate | None:
    """The speed of one answer: the best that the log shows while requests run, else the lowest that the person tells."""
    logged = [Rate(float(f.value), f) for f in facts.all("log.tokens_per_s") if isinstance(f.value, (int, float))]
    if logged:
        return max(logged, key=lambda r: r.value)
    told: list[Rate] = []
    for fact in facts.all("report.said"):
        text = str(fact.value)
        m = _RATE.search(text)
        if m and float(m[1]) > 0 and not _NOT_DECODE.search(text[: m.start()]):
            told.append(Rate(float(m[1]), fact))
    return min(told, key=lambda r: r.value) if told else None


def roof(facts: Facts) -> Roof | None:
    """Bandwidth of all GPUs that share the layers, over the bytes that a token reads; ``None`` when either is not known."""
    gpus = facts.get("gpu.names")
    if gpus is None or not isinstance(gpus.value, list) or not gpus.value:
        return None
    table = read_table("bandwidth.toml")
    speeds = {table["gb_per_s"].get(g.name) if (g := lookup(name)) else None for name in gpus.value}
    size = bytes_per_token(facts, table["active_billions"])
    if None in speeds or len(speeds) != 1 or size is None:
        return None
    ranks = read.number(facts, ("flag.tensor-parallel-size",))
    gb, fact = size
    speed = float(speeds.pop() or 0) * max(1, ranks.value if ranks else 1)
    return Roof(speed / gb, gb, speed, (gpus, fact))


def bytes_per_token(facts: Facts, active: dict[str, float]) -> tuple[float, Fact] | None:
    """GB of weights that one token reads, from the name of the model: ``70B`` of NVFP4 are some 40, ``-A3B`` of FP8 some 3."""
    fact = facts.get("model.name") or complaint(facts, "decode")
    if fact is None:
        return None
    name = str(fact.value)
    known = next((billions for part, billions in active.items() if part in name.lower()), None)
    m = _ACTIVE.search(name) or _TOTAL.search(name.rpartition("/")[2])
    if known is None and (m is None or (facts.value("model.moe") is True and not _ACTIVE.search(name))):
        return None
    billions = known if known is not None else float(m[1]) if m else 0.0
    width = _bytes_a_weight(facts, name)
    return (billions * width, fact) if billions and width else None


def _bytes_a_weight(facts: Facts, name: str) -> float | None:
    if "gpt-oss" in name.lower():
        return 0.6
    if bits := _GGUF_BITS.search(name):
        return int(bits[1]) / 8 * 1.1
    quant = facts.value("model.quant")
    kinds = set(quant) if isinstance(quant, list) else set()
    if kinds & _FOUR_BITS:
        return 0.58
    if kinds & _EIGHT_BITS:
        return 1.0
    if (
        kinds <= {"none"}
        and read.engine(facts) in ("vllm", "sglang", "transformers")
        and not facts.get("flag.quantization")
    ):
        return 2.0
    return None
