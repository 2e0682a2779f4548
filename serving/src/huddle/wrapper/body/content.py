"""Messages, content parts, tools and media of a request: known shapes only, nothing that makes the engine fetch.

The engine reads more from a part than its `type` says (a part without a type but with `image_url` is fetched, a `uuid`
names another request's cached image), so parts are rebuilt from the keys that belong to their type.
"""

import re
from binascii import a2b_base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from huddle.media_urls import folded
from huddle.wrapper.body import images, items
from huddle.wrapper.body.caps import Caps
from huddle.wrapper.errors import RequestError, bad_request

ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
# The keys of a part besides `type`, and the key whose value names the medium.
_PARTS: Final[dict[str, tuple[frozenset[str], str | None]]] = {
    "text": (frozenset({"text"}), None),
    "input_text": (frozenset({"text"}), None),
    "output_text": (frozenset({"text"}), None),
    "refusal": (frozenset({"refusal"}), None),
    "thinking": (frozenset({"thinking"}), None),
    "image_url": (frozenset({"image_url"}), "image_url"),
    "input_image": (frozenset({"image_url", "detail"}), "image_url"),
    "audio_url": (frozenset({"audio_url"}), "audio_url"),
    "video_url": (frozenset({"video_url"}), "video_url"),
    "input_audio": (frozenset({"input_audio"}), None),
}
_TEXT_KEYS: Final = frozenset({"text", "refusal", "thinking"})
_INPUT_ROLES: Final = ("user", "assistant", "system", "developer")
# The parts of an item of /v1/responses, and what the engine's models call them there.
_INPUT_PARTS: Final = {"input_text": "input_text", "text": "input_text", "input_image": "input_image"}
_OUTPUT_PARTS: Final = {"output_text": "output_text", "text": "output_text", "refusal": "refusal"} | {
    "input_text": "input_text"
}
_DETAILS: Final = ("auto", "low", "high", "original")
# What one reader of URLs takes for something else than another: steps up, coded dots and slashes, backslashes, spaces.
_NOT_NORMAL: Final = re.compile(r"/\.{1,2}(?=[/?#;]|$)|%(?:2e|2f|5c|25|0)|[\\ ]", re.IGNORECASE)
_TEMPLATE_SWITCHES: Final = frozenset({"enable_thinking", "thinking", "preserve_thinking"})


@dataclass(slots=True)
class _Media:
    """What the parts of one request hold so far."""

    count: int = 0
    pixels: int = 0


@dataclass(frozen=True, slots=True)
class Checker:
    """Checks one request's content against caps and the media policy."""

    caps: Caps
    media_url_prefixes: tuple[str, ...]

    def messages(self, value: Any) -> list[dict[str, Any]]:
        """The messages of a chat. Raises `RequestError`."""
        if not isinstance(value, list) or not value:
            raise bad_request("invalid_messages", "'messages' must be a list with at least one message", "messages")
        if len(value) > self.caps.messages:
            raise _too_many("messages", len(value), self.caps.messages)
        media = _Media()
        return [self._message(message, f"messages[{i}]", media) for i, message in enumerate(value)]

    def input_items(self, value: Any) -> Any:
        """The `input` of /v1/responses: a text, or a list of items. Raises `RequestError`."""
        if isinstance(value, str):
            return value
        if not isinstance(value, list) or not value:
            raise bad_request("invalid_input", "'input' must be a text or a list with at least one item", "input")
        if len(value) > self.caps.messages:
            raise _too_many("input", len(value), self.caps.messages)
        media = _Media()
        return [self._input_item(item, f"input[{i}]", media) for i, item in enumerate(value)]

    def tools(self, value: Any, *, flat: bool) -> Any:
        """The tools of a request: functions, which the client itself carries out. Raises `RequestError`.

        On `/v1/responses` they are flat: the function's keys stand beside its type.
        """
        if value is None or value == []:  # an empty list is sent by accident; the engine would refuse it
            return None
        if not isinstance(value, list) or not all(isinstance(tool, dict) for tool in value):
            raise bad_request("invalid_type", "'tools' must be a list of objects", "tools")
        if len(value) > self.caps.tools:
            raise _too_many("tools", len(value), self.caps.tools)
        made = []
        for i, tool in enumerate(value):
            if tool.get("type") != "function":
                raise bad_request("tool_not_allowed", f"'tools[{i}].type' must be 'function'", "tools")
            shape = items.RESPONSES_TOOL if flat else items.CHAT_TOOL
            made.append({"type": "function", **shape(tool, f"tools[{i}]", self.caps)})
        return made

    def template_switches(self, value: Any) -> Any:
        """`chat_template_kwargs`: a few switches; other names could replace what the template is given."""
        if value is None:
            return None
        if not isinstance(value, dict):
            raise bad_request("invalid_type", "'chat_template_kwargs' must be an object", "chat_template_kwargs")
        for name, switch in value.items():
            if name not in _TEMPLATE_SWITCHES or not isinstance(switch, bool):
                message = (
                    f"'chat_template_kwargs' may only hold {', '.join(sorted(_TEMPLATE_SWITCHES))} as true or false"
                )
                raise bad_request("field_not_allowed", message, "chat_template_kwargs")
        return value

    def _message(self, message: Any, where: str, media: _Media) -> Any:
        if not isinstance(message, dict):
            raise bad_request("invalid_messages", f"'{where}' must be an object", where)
        role = message.get("role")
        if not isinstance(role, str) or role not in ROLES:
            raise bad_request("invalid_role", f"'{where}.role' must be one of {', '.join(sorted(ROLES))}", where)
        content = message.get("content")
        if len(message) > 2 or "content" not in message:  # more than role and content
            made = items.MESSAGE(message, where, self.caps)
            message = {"role": role, **({"content": content} if "content" in message else {}), **made}
        if isinstance(content, list):
            return {**message, "content": self._parts(content, f"{where}.content", media)}
        if content is None and role not in ("assistant", "tool", "function"):
            raise bad_request("invalid_content", f"'{where}.content' is missing", where)
        if content is not None and not isinstance(content, str):
            raise bad_request("invalid_content", f"'{where}.content' must be a text or a list of parts", where)
        return message

    def _input_item(self, item: Any, where: str, media: _Media) -> dict[str, Any]:
        if not isinstance(item, dict):
            raise bad_request("invalid_input", f"'{where}' must be an object", where)
        kind = item.get("type") or "message"
        if not isinstance(kind, str) or kind not in items.ITEMS:
            raise bad_request("invalid_input", f"'{where}.type' must be one of {', '.join(sorted(items.ITEMS))}", where)
        made: dict[str, Any] = items.ITEMS[kind](item, where, self.caps)
        if kind == "message":
            made = self._role_and_content(item, made, where, media)
        elif kind == "function_call_output":
            made["output"] = self._text_or_parts(item.get("output"), f"{where}.output", media, _INPUT_PARTS)
        return {"type": kind, **made}

    def _role_and_content(
        self, item: dict[str, Any], made: dict[str, Any], where: str, media: _Media
    ) -> dict[str, Any]:
        role = item.get("role")
        if not isinstance(role, str) or role not in _INPUT_ROLES:
            raise bad_request("invalid_role", f"'{where}.role' must be one of {', '.join(_INPUT_ROLES)}", where)
        kinds = _OUTPUT_PARTS if role == "assistant" else _INPUT_PARTS
        content = self._text_or_parts(item.get("content"), f"{where}.content", media, kinds)
        return {"role": role, "content": content, **made}

    def _text_or_parts(self, value: Any, where: str, media: _Media, kinds: Mapping[str, str]) -> Any:
        if isinstance(value, str):
            return value
        if not isinstance(value, list) or not value:
            raise bad_request("invalid_content", f"'{where}' must be a text or a list of parts", where)
        return [_as_item(part, f"{where}[{i}]", kinds) for i, part in enumerate(self._parts(value, where, media))]

    def _parts(self, parts: Sequence[Any], where: str, media: _Media) -> list[Any]:
        if len(parts) > self.caps.list_items:
            raise _too_many(f"parts in '{where}'", len(parts), self.caps.list_items)
        checked: list[Any] = []
        for i, part in enumerate(parts):
            at = f"{where}[{i}]"
            if isinstance(part, str):
                checked.append({"type": "text", "text": part})
                continue
            kind = part.get("type") if isinstance(part, dict) else None
            if not isinstance(kind, str) or kind not in _PARTS:
                raise bad_request("invalid_content", f"'{at}.type' must be one of {', '.join(_PARTS)}", at)
            keys, medium = _PARTS[kind]
            kept = {key: value for key, value in part.items() if key in keys}
            for key in keys & _TEXT_KEYS:
                if not isinstance(kept.get(key), str):
                    raise bad_request("invalid_content", f"'{at}.{key}' must be a text", at)
            if medium is not None or kind == "input_audio":
                media.count += 1
                if media.count > self.caps.media:
                    raise _too_many("images, sounds and films", media.count, self.caps.media)
            if medium is not None:
                kept[medium] = self._medium(kept.get(medium), f"{at}.{medium}", media, image=medium == "image_url")
            checked.append({"type": kind, **kept})
        return checked

    def _medium(self, value: Any, where: str, media: _Media, *, image: bool) -> Any:
        """A medium's URL, alone or in an object: the data itself, or a place that the operator has listed."""
        url = value.get("url") if isinstance(value, dict) else value
        if not isinstance(url, str):
            raise bad_request("invalid_content", f"'{where}' must hold a URL", where)
        if url[:5].lower() == "data:":
            if image:
                self._image(url[5:], where, media)
        elif not self._may_be_fetched(url):
            raise bad_request("media_url_not_allowed", f"'{where}' must be a data: URL; nothing is fetched", where)
        return {"url": url, **({"detail": value["detail"]} if "detail" in value else {})} if value is not url else url

    def _image(self, data_url: str, where: str, media: _Media) -> None:
        """Bound what an image unpacks to. The bytes say what it is, as they do to the engine; the media type does not.

        What stands before the comma must be what vLLM 0.26.0 accepts there: a media type and `;base64`.
        """
        head, _, data = data_url.partition(",")
        size = len(data) // 4 * 3 - data[-2:].count("=")
        if size > self.caps.media_bytes:
            raise _too_many(f"bytes in '{where}'", size, self.caps.media_bytes)
        try:
            found = images.pixels(a2b_base64(data, strict_mode=True)) if head.partition(";")[2] == "base64" else None
        except ValueError:
            found = None
        if found is None:
            raise bad_request("invalid_content", f"'{where}' must be a PNG, JPEG, GIF or WebP image in base64", where)
        media.pixels += found
        if media.pixels > self.caps.media_pixels:
            raise _too_many("pixels in the images of one request", media.pixels, self.caps.media_pixels)

    def _may_be_fetched(self, url: str) -> bool:
        """Whether a URL lies under a prefix however the engine reads it: one that is not in normal form does not."""
        normal = url.isascii() and url.isprintable() and _NOT_NORMAL.search(url) is None
        return normal and any(folded(url).startswith(prefix) for prefix in self.media_url_prefixes)


def _as_item(part: dict[str, Any], where: str, kinds: Mapping[str, str]) -> dict[str, Any]:
    """A part as the engine's models of `/v1/responses` want it: whole, and of a kind that stands there."""
    kind = kinds.get(part["type"])
    if kind is None:
        raise bad_request("invalid_content", f"'{where}.type' must be one of {', '.join(kinds)}", where)
    if kind == "refusal":  # alone, it makes vLLM 0.26.0 say 500; to the model it is what was said
        return {"annotations": [], "text": part["refusal"], "type": "output_text"}
    needed: dict[str, Any] = {"annotations": []} if kind == "output_text" else {}
    if kind == "input_image":
        needed = {"detail": "auto"}
        if not isinstance(part["image_url"], str):
            raise bad_request("invalid_content", f"'{where}.image_url' must be a text", where)
        if "detail" in part and part["detail"] not in _DETAILS:
            raise bad_request("invalid_value", f"'{where}.detail' must be one of {', '.join(_DETAILS)}", where)
    return {**needed, **part, "type": kind}


def _too_many(what: str, count: int, limit: int) -> RequestError:
    return bad_request("value_too_large", f"{count} {what}; at most {limit} are allowed here")
