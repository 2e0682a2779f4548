"""An answer while it is made. Set OPENAI_BASE_URL and OPENAI_API_KEY first; `make local` prints both."""

import os

from openai import OpenAI

client = OpenAI(default_headers={"Ocp-Apim-Subscription-Key": os.environ["OPENAI_API_KEY"]})
model = client.models.list().data[0].id

# Leaving the `with` block early closes the request, and the engine stops working on it.
with client.chat.completions.create(
    model=model,
    messages=[{"role": "user", "content": "Count from one to five."}],
    max_tokens=64,
    stream=True,
    stream_options={"include_usage": True},
) as stream:
    for chunk in stream:
        if chunk.choices:
            print(chunk.choices[0].delta.content or "", end="", flush=True)
        if chunk.usage:
            print(f"\n{chunk.usage.prompt_tokens} tokens in, {chunk.usage.completion_tokens} out")
