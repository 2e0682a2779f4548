"""What clients may ask an engine to compile, one thing each: what it cannot, and what it can.

Of an engine that chooses its compiler by the first request (vLLM 0.26.0 without our option), most of REFUSED were a 500
or a 400 without a field, and some made it answer 500 to everybody from then on.
"""

from typing import Any


def answer(schema: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


def structured(**held: Any) -> dict[str, Any]:
    return {"structured_outputs": held}


def tool(schema: Any, choice: Any = "required", **more: Any) -> dict[str, Any]:
    function = {"name": "f", "parameters": schema, **more}
    return {"tools": [{"type": "function", "function": function}], "tool_choice": choice}


TEXT = {"type": "string"}
ODD = {"type": "object", "properties": {"a": {"type": "odd"}}}
REFUSED: dict[str, dict[str, Any]] = {
    "a property that is false": answer({"properties": {"a": False}}),
    "false for what matches a pattern": answer({"type": "object", "patternProperties": {"^a": False}}),
    "patterns as names": answer({"type": "object", "patternProperties": {"^a": TEXT}}),
    "a multiple": answer({"type": "integer", "multipleOf": 3}),
    "a list of items": answer({"type": "array", "items": [TEXT]}),
    "required in a property": answer({"properties": {"a": {"type": "object", "required": True}}}),
    "an odd type": answer(ODD),
    "a decimal minimum": answer({"type": "integer", "minimum": 0.5}),
    "a bound of more than 64 bits": answer({"type": "integer", "maximum": 1e20}),
    "no number between": answer({"type": "integer", "minimum": 3, "maximum": 1}),
    "a word boundary in a pattern": answer({"type": "string", "pattern": r"\ba"}),
    "items that nothing describes": answer({"type": "array", "minItems": 1}),
    "a reference into a list": answer(
        {"properties": {"a": {"anyOf": [TEXT]}, "b": {"$ref": "#/properties/a/anyOf/0"}}}
    ),
    "a schema in a text": structured(json='{"type": "integer", "minimum": 0.5}'),
    **{
        f"regex {regex!r}": structured(regex=regex)
        for regex in ("(?i)abc", "(?=a)b", r"\bword\b", r"\p{L}+", r"(a)\1", "(a", "[z-a]", "a{3,1}", "{a", "a\0b")
    },
    **{
        f"grammar {grammar!r}": structured(grammar=grammar)
        for grammar in (
            *("root ::= a", 'a ::= "x"', 'root ::= "a"\nroot ::= "b"', "root ::=", 'root ::= ("a"', 'root ::= "a'),
            *(r"root ::= [\d]", "root ::= 'a'", 'root ::= "a"{3,2}', '"a"\nroot ::= "a"', "root ::= []"),
            *("start: foo", "start: /[a-z]+/", "start: start", 'start: %json {"type": "object"}', "{{{"),
        )
    },
    "a choice with an end of line": structured(choice=["a", "b\nc"]),
    "a tool that is required": tool(ODD),
    "a tool that is named": tool(ODD, {"type": "function", "function": {"name": "f"}}),
    "a tool that is strict": tool(ODD, "auto", strict=True),
    "a blank among bad words": {"bad_words": ["a", " "]},
}
SERVED: dict[str, dict[str, Any]] = {
    "a property that is true": answer({"properties": {"a": True}}),
    "no more properties": answer({"type": "object", "additionalProperties": False}),
    "a type that is not read": answer({"const": 1, "type": "odd"}),
    "a whole number with a point": answer({"type": "integer", "minimum": 1.0}),
    "flags before a pattern": answer({"type": "string", "pattern": "(?i)abc"}),
    "a list of items that are described": answer({"type": "array", "prefixItems": [TEXT], "minItems": 1}),
    "itself": answer({"type": "object", "properties": {"c": {"type": "array", "items": {"$ref": "#"}}}}),
    "a regex": structured(regex=r"(?:a|b)+?(?<name>x)[^\s-]{2,}\.(c|)$"),
    "a grammar": structured(grammar='root ::= a-b [^a-z\\]]+ ("x" | ())* # "\na-b ::= "y"{1, 2} |\n "\\n"'),
    "Lark": structured(grammar='// it\n?start: a | \'b\'\n  | "c"\na: ("x" start)+'),
    "choices": structured(choice=["", 'a"b', "a\\b", "a\tb"]),
    "a tool that may be called": tool(ODD, "auto"),
    "a tool that is not strict": tool(ODD, "required", strict=False),
    "bad words": {"bad_words": ["a", " a", "\u200b"]},
}
