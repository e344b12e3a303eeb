"""The tokenizer: one token a byte (its number is the byte), then a few special tokens. No merges, nothing is trained."""

from __future__ import annotations

import json
from pathlib import Path

BEGIN, END, PAD = 256, 257, 258
SPECIAL = {BEGIN: "<|begin|>", END: "<|endoftext|>", PAD: "<|pad|>"}
VOCABULARY = 260
# The model has only ever seen source text, so a chat is just its messages, one after the other, to be continued.
CHAT_TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message['content'] }}\n{% endfor %}"


def byte_letters() -> dict[int, str]:
    """The printable letter that stands for each byte in byte-level tokenizers (GPT-2's table)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def save_tokenizer(folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json. Every text starts with <|begin|>."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.BPE(vocab={letter: b for b, letter in byte_letters().items()}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(SPECIAL[i], special=True, normalized=False) for i in sorted(SPECIAL)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{SPECIAL[BEGIN]} $A", pair=f"{SPECIAL[BEGIN]} $A $B", special_tokens=[(SPECIAL[BEGIN], BEGIN)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[BEGIN],
        "eos_token": SPECIAL[END],
        "pad_token": SPECIAL[PAD],
        "model_max_length": 2048,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
