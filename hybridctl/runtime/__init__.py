"""Which kernel computes a token, and the plan of an engine step that follows from it. Imports neither torch nor vllm."""
