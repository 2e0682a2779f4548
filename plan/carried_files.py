"""What a bundle carries for the served models: the engine's options, prompts and chat templates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

from huddle import engine
from huddle.errors import Fault, InputError
from huddle.registry import Model, Registry
from huddle.registry.prompts import find_chat_template, read_system_prompt
from plan.settings.service import Serving


def checks(serving: Serving, registry: Registry) -> Iterator[Callable[[], object]]:
    """A step for each file that must be there; each raises InputError. Unknown names are left to the rules."""
    served = [one for one in registry.served if one.name in serving.models]
    for one in served:
        if serving.models[one.name].system_prompt is None:
            yield partial(read_system_prompt, registry, one)
    for model in {one.model.name: one.model for one in served}.values():
        yield partial(engine.refuse_options, registry, model)
        yield partial(_refuse_template, registry, model)


def _refuse_template(registry: Registry, model: Model) -> None:
    """Parse a model's chat template, which its engine would do minutes later; raises InputError."""
    path = find_chat_template(registry, model)
    if path is None:
        return
    try:
        Environment(extensions=["jinja2.ext.loopcontrols", _Generation]).parse(path.read_text(encoding="utf-8"))  # noqa: S701 - nothing is rendered
    except TemplateSyntaxError as error:
        said = f"the chat template of {model.name!r} is not Jinja: {error.message}"
        raise InputError(Fault(f"{path}:{error.lineno}", "", said)) from None


class _Generation(Extension):
    """The tag that transformers adds to Jinja, around what the model said."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Everything up to the end tag."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
