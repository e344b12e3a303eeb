"""POST /generate, as vLLM's first server had it: ``{"prompt": …, "max_tokens": 100}`` → ``{"text": [prompt and answer]}``.

Entry point ``hybridctl`` of the group ``vllm.endpoint_plugins``; vLLM loads it only if VLLM_PLUGINS names it. The request goes
through the server's own completions handler, so limits, sampling parameters and errors are those of /v1/completions. The body is
read as JSON whatever its content type says: ``curl -d`` sends another.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import ValidationError


class GenerateEndpoint:
    """What vLLM asks of an endpoint plugin."""

    name = "hybridctl"
    required_tasks = ("generate",)

    def attach_router(self, app: FastAPI) -> None:
        app.add_api_route("/generate", generate, methods=["POST"])

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """Nothing of its own: the handler is in ``state`` already."""


def problem(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "code": status}}, status_code=status)


async def generate(request: Request) -> Any:
    """Complete a prompt; with ``"stream": true`` a JSON document a line, each with the whole text so far."""
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest, CompletionResponse

    handler = getattr(request.app.state, "openai_serving_completion", None)
    if handler is None:
        return problem(501, "this model completes no text")
    try:
        body = json.loads(await request.body())
    except ValueError as error:
        return problem(400, f"the body is no JSON: {error}")
    if not isinstance(body, dict) or "prompt" not in body:
        return problem(400, 'the body must be like {"prompt": "…", "max_tokens": 100}')
    try:
        asked = CompletionRequest(**body)
    except (ValidationError, ValueError) as error:
        return problem(400, str(error))
    prompt = body["prompt"] if isinstance(body["prompt"], str) else ""
    answer = await handler.create_completion(asked, request)
    if isinstance(answer, CompletionResponse):
        return {"text": [prompt + choice.text for choice in answer.choices]}
    if hasattr(answer, "__aiter__"):
        return StreamingResponse(_lines(answer, prompt, asked.n or 1), media_type="application/x-ndjson")
    status = answer.error.code
    return JSONResponse(answer.model_dump(), status_code=status if isinstance(status, int) else 400)


async def _lines(events: AsyncIterator[str], prompt: str, count: int) -> AsyncIterator[str]:
    """Server-sent events of /v1/completions as lines of whole texts."""
    texts = [prompt] * count
    async for event in events:
        data = event.removeprefix("data: ").strip()
        if not data.startswith("{"):
            continue
        document = json.loads(data)
        if "error" in document:
            yield json.dumps(document) + "\n"
            continue
        for choice in document.get("choices", ()):
            index = choice.get("index", 0)
            if index < len(texts):
                texts[index] += choice.get("text", "")
        if document.get("choices"):
            yield json.dumps({"text": texts}) + "\n"


def plugin() -> GenerateEndpoint:
    return GenerateEndpoint()
