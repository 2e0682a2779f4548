"""One question, one answer. Set OPENAI_BASE_URL and OPENAI_API_KEY first; `make local` prints both."""

import os

from openai import OpenAI

# A gateway (Azure API Management) reads its own header, the wrapper the bearer token that the SDK sends by itself.
client = OpenAI(default_headers={"Ocp-Apim-Subscription-Key": os.environ["OPENAI_API_KEY"]})
model = client.models.list().data[0].id

answer = client.chat.completions.create(
    model=model,
    messages=[
        {"role": "system", "content": "Answer in one sentence."},
        {"role": "user", "content": "Why is the sky blue?"},
    ],
    max_tokens=64,
)
print(answer.choices[0].message.content)
