"""The system prompts of a stack: where each lies in the bundle, and what readiness must find in an answer."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from cloud_init.bundle import shipped_registry
from huddle.registry.prompts import read_system_prompt
from plan.model import FleetPlan, ServedModel


@dataclass(frozen=True)
class PromptFile:
    """A prompt in the bundle. The hash is of the stripped text: what X-Huddle-Prompt-SHA256 is made from."""

    path: str
    content: bytes

    @property
    def sha256(self) -> str:
        """Hex digest of the text."""
        return sha256(self.content.strip()).hexdigest()


def of_model(served: ServedModel) -> PromptFile | None:
    """The stack's own prompt for a served name, else the registry's, else none."""
    text = served.system_prompt
    if text is None:
        known = shipped_registry.load()
        shipped = read_system_prompt(known, known.resolve(served.name))
        text = shipped.text if shipped else None
    return None if text is None else _file(f"prompts/models/{served.name}.txt", text)


def of_product(product_id: str, text: str | None) -> PromptFile | None:
    """A product's prompt, which comes before the model's."""
    return None if text is None else _file(f"prompts/products/{product_id}.txt", text)


def all_prompts(plan: FleetPlan) -> list[PromptFile]:
    """Every prompt file of a stack."""
    found = [
        *(of_model(served) for served in plan.serving.models),
        *(of_product(product.id, product.system_prompt) for product in plan.products),
    ]
    return [prompt for prompt in found if prompt is not None]


def _file(path: str, text: str) -> PromptFile:
    return PromptFile(path, f"{text.strip()}\n".encode())
