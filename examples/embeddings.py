"""Texts as vectors. Only where the engine serves an embedding model; a chat model's engine answers 404."""

import math
import os

from openai import NotFoundError, OpenAI

client = OpenAI(default_headers={"Ocp-Apim-Subscription-Key": os.environ["OPENAI_API_KEY"]})
model = client.models.list().data[0].id
texts = ["a lighthouse on a cliff", "a beacon above the sea", "a recipe for onion soup"]

try:
    vectors = [row.embedding for row in client.embeddings.create(model=model, input=texts).data]
except NotFoundError:
    raise SystemExit(f"the engine of {model} has no embeddings: serve an embedding model for them") from None


def cosine(left: list[float], right: list[float]) -> float:
    """How alike two directions are, from -1 to 1."""
    product = sum(a * b for a, b in zip(left, right, strict=True))
    return product / math.hypot(*left) / math.hypot(*right)


for text, vector in zip(texts[1:], vectors[1:], strict=True):
    print(f"{cosine(vectors[0], vector):+.3f}  {texts[0]} / {text}")
