"""hybridctl: from a hybrid-attention model's name to a verified vLLM server, and why it fails on the way."""

__version__ = "0.1.0"
