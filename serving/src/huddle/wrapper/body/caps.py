"""The bounds on what a request may ask for. Settings (`limits`) set those that have one there."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caps:
    """The largest values that a client may ask for."""

    sequences: int = 512
    n: int = 8
    output_tokens: int = 32_768
    messages: int = 1_024
    inputs: int = 2_048
    prompt_copies_bytes: int = 2 * 1024 * 1024
    media: int = 16
    media_bytes: int = 4 * 1024 * 1024
    media_pixels: int = 50_000_000
    tools: int = 128
    stop: int = 16
    logprobs: int = 20
    list_items: int = 1_024
    depth: int = 64
    schema_bytes: int = 262_144
    schema_depth: int = 64
    schema_objects: int = 10_000
    schema_properties: int = 3_000
    schema_choices: int = 4_000
    schema_alternatives: int = 3_000
    schema_items: int = 10_000
    schema_items_total: int = 100_000
    schema_nested_items: int = 1_000_000
    schema_length: int = 100_000
    schema_repetitions: int = 10_000
    grammar_characters: int = 65_536
    grammar_repetitions: int = 1_000
    compile_s: float = 60
    string_bytes: int = 64 * 1024
