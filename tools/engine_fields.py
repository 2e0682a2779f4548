"""Print, as JSON, every request field that the installed vLLM knows. Runs in vLLM's own environment (vllm_cpu.py).

What it prints is compared with the wrapper's field policies (`serving/src/huddle/data/engine_fields.yaml`).
"""

import json
import sys


def fields() -> dict[str, list[str]]:
    """Field names by section of the wrapper's file."""
    from vllm.entrypoints.generate.base.protocol import StreamOptions  # noqa: PLC0415 - only there in vLLM's environment
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest  # noqa: PLC0415
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest  # noqa: PLC0415
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest  # noqa: PLC0415
    from vllm.entrypoints.pooling.embed.protocol import EmbeddingChatRequest, EmbeddingCompletionRequest  # noqa: PLC0415
    from vllm.renderers.chat_utils import MM_PARSER_MAP  # noqa: PLC0415

    models = {
        "chat.completions": [ChatCompletionRequest],
        "completions": [CompletionRequest],
        "embeddings": [EmbeddingCompletionRequest, EmbeddingChatRequest],
        "responses": [ResponsesRequest],
        "stream_options": [StreamOptions],
    }
    found = {section: sorted({name for m in of for name in m.model_fields}) for section, of in models.items()}
    return found | {"content_parts": sorted(MM_PARSER_MAP)}


if __name__ == "__main__":
    json.dump(fields(), sys.stdout)
