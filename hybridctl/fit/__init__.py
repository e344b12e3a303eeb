"""vLLM's memory rules for hybrid models, by version, without weights, torch or vLLM."""
