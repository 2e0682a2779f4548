"""A model that calls a function. The engine needs --enable-auto-tool-choice and a --tool-call-parser."""

import json
import os

from openai import OpenAI

client = OpenAI(default_headers={"Ocp-Apim-Subscription-Key": os.environ["OPENAI_API_KEY"]})
model = client.models.list().data[0].id


def tide(harbour: str) -> str:
    """What the model may call."""
    return f"High tide in {harbour} is at 14:20."


place = {"type": "object", "properties": {"harbour": {"type": "string"}}, "required": ["harbour"]}
function = {"name": "tide", "description": "When the next high tide is.", "parameters": place}
tools = [{"type": "function", "function": function}]
messages = [{"role": "user", "content": "When is high tide in Husum?"}]

first = client.chat.completions.create(model=model, messages=messages, tools=tools).choices[0].message
if not first.tool_calls:
    print(first.content)
    raise SystemExit
messages.append(first.model_dump(exclude_none=True))
for call in first.tool_calls:
    result = tide(**json.loads(call.function.arguments))
    messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
print(client.chat.completions.create(model=model, messages=messages, tools=tools).choices[0].message.content)
