"""JSON schemas, regular expressions and grammars of a request, judged before the engine compiles them.

A few bytes can ask for any amount of memory and time: `"minItems": 1000000000` ended the engine (vLLM 0.26.0 and
0.32.0). The bounds are settings (`limits.schema_*` and others); docs/reference/wrapper.md lists them.
A schema is looked at wherever it stands: every object inside of a judged field counts as one, but for what is data
(`enum`, `const`, `default`, `examples`) and for the names in `properties` and the like.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, TypeAlias

from huddle.wrapper.body.ambiguity import is_ambiguous_grammar, is_ambiguous_regex
from huddle.wrapper.body.caps import Caps
from huddle.wrapper.body.compile_cost import Cost
from huddle.wrapper.body.effort import MOST_NS, Signs
from huddle.wrapper.body.grammars import rules_of, says_nothing
from huddle.wrapper.body.lark import from_lark, is_lark
from huddle.wrapper.body.strictjson import parse_object, serialise
from huddle.wrapper.errors import RequestError, bad_request

_ROOTS: Final = frozenset({"schema", "json_schema", "parameters", "json"})  # where `#` of a reference starts again
_TEXTS: Final = frozenset({"json", "structural_tag"})  # may be JSON inside of a text
_GRAMMARS: Final = frozenset({"regex", "grammar", "pattern", "whitespace_pattern"})
_DATA: Final = frozenset({"const", "default", "examples", "example", "enum", "choice"})
_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_PROPERTIES: Final = frozenset({"properties", "patternProperties"})
_CHOICES: Final = frozenset({"enum", "choice"})
_ALTERNATIVES: Final = frozenset({"anyOf", "oneOf", "allOf"})
_ITEMS: Final = frozenset({"minItems", "maxItems", "minContains", "maxContains", "minProperties", "maxProperties"})
_LENGTHS: Final = frozenset({"minLength", "maxLength"})
_VALUES: Final = frozenset({"multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_VALUE_MAX: Final = 2**64  # a whole number above it has more digits than a machine's integer
_PROPERTY_COUNTS: Final = frozenset({"minProperties", "maxProperties"})
_FOREIGN_REFERENCES: Final = frozenset({"$dynamicRef", "$recursiveRef"})
# Steps that take nothing of the text: a reference that comes back to itself by these alone never ends.
_SAME_PLACE: Final = frozenset({"$ref", "anyOf", "oneOf", "allOf", "not", "if", "then", "else"})
_JUDGED_TEXTS: Final = _GRAMMARS | _TEXTS | _FOREIGN_REFERENCES | {"$ref"}
_COUNTED: Final = _PROPERTIES | _CHOICES | _ALTERNATIVES
_NUMBERS: Final = _ITEMS | _LENGTHS | _VALUES
_WHERE_MAX: Final = 160
_HUGE: Final = 10**9


Place: TypeAlias = "str | tuple[Place, str | int]"
"""Where something stands: a field's name, or what it stands in and the key or index there."""


def judge(name: str, value: Any, caps: Caps, body_bytes: int) -> float:
    """Judge a field that may hold schemas, expressions or grammars. Raises `RequestError` (400) with field and bound.

    Returns the estimated seconds that the engine compiles (`compile_cost`).
    `body_bytes` is the size of the whole request: where it is small, this field need not be measured.
    """
    if value is None:
        return 0.0
    if not isinstance(value, dict | list):
        raise bad_request("invalid_type", f"'{name}' must be an object or a list", name)
    if body_bytes > caps.schema_bytes and (size := len(serialise(value))) > caps.schema_bytes:
        raise _over(name, f"has {size} bytes", caps.schema_bytes)
    judging = _Judge(caps, value)
    judging.walk(value, name, 0)
    try:
        if judging.same_place:
            TopologicalSorter(judging.same_place).prepare()
    except CycleError:
        raise bad_request("invalid_schema", f"'{name}' has a '$ref' that comes back to itself", name) from None
    return judging.cost.seconds


@dataclass(slots=True)
class _Judge:
    """One walk over a field; counts are for the whole field."""

    caps: Caps
    root: Any
    objects: int = 0
    properties: int = 0
    choices: int = 0
    alternatives: int = 0
    items: int = 0
    repetitions: int = 0
    effort_ns: int = 0  # of reading the schemas that stand in texts
    cost: Cost = field(default_factory=Cost)
    nested: dict[int, int] = field(default_factory=dict)  # by a walked schema's id: how many items it allows, at most
    same_place: dict[int, list[int]] = field(default_factory=dict)
    parsed: list[Any] = field(default_factory=list)  # kept, so that their ids stay theirs

    def walk(self, node: dict[str, Any] | list[Any], where: Place, depth: int, parent: int | None = None) -> int:
        """Judge `node` and return how many items it allows along the path that allows most.

        `parent` is the schema that describes the same place of the text as this one.
        """
        if depth > self.caps.schema_depth:
            raise _over(where, f"is {depth} levels deep", self.caps.schema_depth)
        if isinstance(node, list):
            self.objects = self._total(where, "objects and lists", self.objects + 1, self.caps.schema_objects)
            return self._walk_each(enumerate(node), where, depth + 1, parent)
        key = id(node)
        if parent is not None:
            self.same_place.setdefault(parent, []).append(key)
        if key in self.nested:  # walked, or being walked: a loop by way of items or properties is a tree
            return self.nested[key]
        self.nested[key] = 1
        self.objects = self._total(where, "objects and lists", self.objects + 1, self.caps.schema_objects)
        repeats, inside, root = 1, 1, self.root
        for name, value in node.items():
            kind = type(value)
            if kind is str:
                child = self._text(name, value, (where, name))
                if child is None:
                    continue
            elif kind is dict or kind is list:
                if name in _COUNTED:
                    self._count(name, value, (where, name))
                if name in _DATA:
                    continue
                child = value
            else:
                if name == "additionalProperties" and value is True:
                    self.cost.free_keys()
                if name in _NUMBERS and (kind is int or kind is float):
                    repeats = max(repeats, self._number(node, name, value, (where, name)))
                continue
            if name == "additionalProperties":
                self.cost.free_keys()
            if name in _ROOTS or name in _TEXTS:
                self.root = child
            place = key if name in _SAME_PLACE else None
            if name in _NAMED and kind is dict:
                found = self._walk_each(child.items(), (where, name), depth + 1, None)
            else:
                found = self.walk(child, (where, name), depth + 1, place)
            inside = max(inside, found)
            self.root = root
        if repeats > 1:
            self.items = self._total(where, "items", self.items + repeats, self.caps.schema_items_total)
        allowed = self.nested[key] = repeats * inside
        if allowed > self.caps.schema_nested_items:
            raise _over(where, f"allows {allowed} items by nested bounds", self.caps.schema_nested_items)
        return allowed

    def _walk_each(
        self, children: Iterable[tuple[str | int, Any]], where: Place, depth: int, parent: int | None
    ) -> int:
        inside = 1
        for name, child in children:
            if type(child) is dict or type(child) is list:
                inside = max(inside, self.walk(child, (where, name), depth, parent))
        return inside

    def _text(self, name: str, text: str, at: Place) -> dict[str, Any] | None:
        """Judge a text; returns the schema that it names or holds."""
        if name not in _JUDGED_TEXTS:
            if name == "format":
                self.cost.format(text)
            elif name == "const":
                self.cost.texts([text])
            return None
        if name == "$ref":
            return self._target(text, at)
        if name in _TEXTS:
            return self._parsed(text, at)
        if name in _FOREIGN_REFERENCES:
            raise _invalid(at, "is not accepted; use '$ref'")
        self._grammar(at, text, regex=name != "grammar")
        return None

    def _number(self, node: dict[str, Any], name: str, number: float, at: Place) -> int:
        """Judge a number; returns how often it lets what is inside be repeated."""
        if name in _ITEMS:
            _at_most(at, number, self.caps.schema_items)
            self._property_choices(node, name, int(number), at)
            return int(number)
        if name in _LENGTHS:
            _at_most(at, number, self.caps.schema_length)
            self.cost.length(max(number, 0))
        elif isinstance(number, int) and abs(number) > _VALUE_MAX:
            raise bad_request("value_too_large", f"'{_place(at)}' has too many digits", _field(at))
        return 1

    def _count(self, name: str, value: list[Any] | dict[str, Any], at: Place) -> None:
        size = len(value)
        if name in _PROPERTIES:
            self.cost.properties(value)
            self.properties = self._total(at, "properties", self.properties + size, self.caps.schema_properties)
            if name == "patternProperties":
                for pattern in value:
                    self._grammar(at, str(pattern), regex=True)
            return
        if name in _CHOICES:
            self.cost.texts(value)
            self.choices = self._total(at, "choices", self.choices + size, self.caps.schema_choices)
        else:
            self.cost.alternatives(size)
            made = self.alternatives + size
            self.alternatives = self._total(at, "alternatives", made, self.caps.schema_alternatives)

    def _property_choices(self, node: dict[str, Any], name: str, number: int, at: Place) -> None:
        """Which properties are there is a choice of its own: compiling takes the square of their number, and more."""
        own = node.get("properties")
        if name in _PROPERTY_COUNTS and isinstance(own, dict):
            made = len(own) * number
            if made > self.caps.grammar_repetitions:
                raise _over(at, f"times its properties is {made}", self.caps.grammar_repetitions)
            self._repeated(at, made)

    def _grammar(self, at: Place, text: str, *, regex: bool) -> None:
        """Judge a regular expression or a grammar by its size and its repetitions."""
        if len(text) > self.caps.grammar_characters:
            raise _over(at, f"has {len(text)} characters", self.caps.grammar_characters)
        compiled = text if regex or not is_lark(text) else from_lark(text)
        if compiled is None:
            raise _invalid(at, "is in a form that the engine cannot compile: write its rules as 'root ::= …'")
        if not regex and says_nothing(rules := rules_of(compiled)):
            raise _invalid(at, "derives no text at all: a rule only leads back to itself")
        if is_ambiguous_regex(text) if regex else is_ambiguous_grammar(rules):
            raise _invalid(at, "repeats what repeats itself: put something between that must stand there")
        count = _repetitions(text, self.caps.schema_depth) if regex else _largest_product(text)
        if count is None:
            raise _over(at, "nests its groups too deeply", self.caps.schema_depth)
        if count > self.caps.grammar_repetitions:
            many = "too many" if count > _HUGE else str(count)
            raise _over(at, f"asks for {many} repetitions", self.caps.grammar_repetitions)
        (self.cost.expression if regex else self.cost.grammar)(compiled, count)
        self._repeated(at, count)

    def _repeated(self, at: Place, count: int) -> None:
        most = self.caps.schema_repetitions
        self.repetitions = self._total(at, "repetitions", self.repetitions + count, most)

    @staticmethod
    def _total(at: Place, what: str, count: int, most: int) -> int:
        if count > most:
            raise _over(at, f"brings the {what} to {count}", most)
        return count

    def _target(self, reference: str, at: Place) -> dict[str, Any] | None:
        """What a `$ref` names: a JSON pointer into the same schema. None for `true` and `false`."""
        place: Any = self.root
        steps = reference.split("/")
        if steps[0] != "#":
            raise _invalid(at, "must begin with '#/'")
        for step in steps[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(place, dict) and name in place:
                place = place[name]
            elif isinstance(place, list) and _INDEX.fullmatch(name) and int(name) < len(place):
                place = place[int(name)]
            else:
                raise _invalid(at, "names a place that is not there")
        if not isinstance(place, dict | bool):
            raise _invalid(at, "names something that is no schema")
        return place if isinstance(place, dict) else None

    def _parsed(self, text: str, at: Place) -> dict[str, Any]:
        if len(text) > self.caps.schema_bytes:
            raise _over(at, f"has {len(text)} characters", self.caps.schema_bytes)
        signs = Signs(text.encode(errors="replace"))
        self.effort_ns += signs.most_ns_in_texts
        if self.effort_ns > MOST_NS:
            raise bad_request("value_too_large", f"'{_place(at)}' brings too many values in texts", _field(at))
        try:
            value = parse_object(signs, self.caps.depth)
        except RequestError:
            raise _invalid(at, "is not a JSON object") from None
        self.parsed.append(value)
        return value


def _repetitions(regex: str, depth: int) -> int | None:
    """How many repetitions the counts of an expression make, nested ones multiplied; None: nested too deeply.

    Doubtful brackets are read in the way that finds more, since dialects differ.
    """
    total, last, around = 0, 0, list[int]()  # of this group, of its last element; of the groups around
    for token in _REGEX_TOKEN.finditer(regex):
        if token[0] == "(":
            around.append(total + last)
            total = last = 0
            if len(around) > depth:
                return None
        elif token[0] == ")":
            total, last = around.pop() if around else 0, total + last
        elif (counts := token["counts"]) is not None:
            last = max(last, 1) * max(_number(part) for part in counts.split(","))
        elif token[0][0] not in "*+?":
            total, last = total + last, 0
    return total + last + sum(around)


def _largest_product(grammar: str) -> int:
    """What a grammar's counts make at most, whatever rule refers to which: their product."""
    product = 1
    for found in _GRAMMAR_COUNT.finditer(grammar):
        product = min(product * _number(found[1]), _HUGE**2)
    return product


def _number(digits: str) -> int:
    digits = digits.strip()
    return max(int(digits), 1) if digits.isdigit() and len(digits) < 10 else (_HUGE**2 if digits else 1)


_INDEX: Final = re.compile(r"[0-9]{1,6}")
_REGEX_TOKEN: Final = re.compile(
    r"\\.|\[\^?(?:\\.?|[^\]\\])*(?:\]|\Z)|[()]|\{(?P<counts>[\d\s,]*)\}|[*+?]+|[^\\\[(){*+?]+|.", re.DOTALL
)
_GRAMMAR_COUNT: Final = re.compile(r"[{,]\s*(\d+)")  # {m}, {m,n}


def _at_most(at: Place, number: float, most: int) -> None:
    if number < 0:
        raise bad_request("invalid_value", f"'{_place(at)}' is below 0", _field(at))
    if number > most:
        raise _over(at, f"is {number}" if number < _HUGE**2 else "is a huge number", most)


def _over(at: Place, what: str, most: int) -> RequestError:
    return bad_request("value_too_large", f"'{_place(at)}' {what}; at most {most} is allowed here", _field(at))


def _invalid(at: Place, what: str) -> RequestError:
    return bad_request("invalid_schema", f"'{_place(at)}' {what}", _field(at))


def _steps(at: Place) -> list[str | int]:
    steps: list[str | int] = []
    while isinstance(at, tuple):
        at, step = at
        steps.append(step)
    return [at, *reversed(steps)]


def _place(at: Place) -> str:
    """A place, written as clients write it."""
    steps = _steps(at)
    text = str(steps[0]) + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps[1:])
    return text if len(text) <= _WHERE_MAX else f"{text[:_WHERE_MAX]}…"


def _field(at: Place) -> str:
    """The request's own field, which is what `param` names."""
    return str(_steps(at)[0])
