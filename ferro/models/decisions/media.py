"""Images and sounds of a request: data URLs beside the state and in its chat messages."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ferro.models.decisions.errors import DecisionError

MOST_MEDIA = 8
_KINDS = ("data:image/", "data:audio/", "data:video/")
_BASE64 = re.compile("[A-Za-z0-9+/]*")


@dataclass(frozen=True)
class Medium:
    """The bytes of a file; what it is, is told by its beginning, not by its URL."""

    data: bytes

    @property
    def sounds(self) -> bool:
        """Whether it is WAV, MP3 or FLAC."""
        start = self.data[:12]
        if len(start) < 12:
            return False
        wav = start[:4] == b"RIFF" and start[8:] == b"WAVE"
        mp3 = start[:3] == b"ID3" or (start[0] == 0xFF and start[1] & 0xE0 == 0xE0)
        return wav or mp3 or start[:4] == b"fLaC"


class Media:
    """Collects the media of a request, in their order."""

    def __init__(self) -> None:
        self.found: list[Medium] = []

    def take(self, body: Mapping[str, Any]) -> Any:
        """Find all media of a request; its state without them. Raises DecisionError."""
        videos = body.get("videos")
        if videos is not None and videos not in ([], {}):
            raise DecisionError('"videos" is not supported')
        for name in ("files", "images"):
            listed = body.get(name)
            if listed is None:
                continue
            if not isinstance(listed, list | tuple):
                raise DecisionError(f'"{name}" must be an array')
            for url in listed:
                self._add(_decoded(url))
        state = self._state(body.get("state"))
        sounds = sum(medium.sounds for medium in self.found)
        if sounds and len(self.found) > 1:
            raise DecisionError("the media must be images, or one audio clip alone")
        return state

    def _state(self, state: Any) -> Any:
        if isinstance(state, list | tuple):
            return [self._message(message) for message in state]
        if isinstance(state, Mapping) and isinstance(state.get("messages"), list | tuple):
            return {**state, "messages": [self._message(each) for each in state["messages"]]}
        return state

    def _message(self, message: Any) -> Any:
        content = message.get("content") if isinstance(message, Mapping) else None
        if not isinstance(content, list | tuple):
            return message
        return {**message, "content": [part for part in content if not self._took(part)]}

    def _took(self, part: Any) -> bool:
        """Whether a part of a message is a medium, which then is taken."""
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "image_url" and "image_url" in part:
            given = part["image_url"]
            if isinstance(given, Mapping) and "url" in given:
                given = given["url"]
            self._add(_decoded(given))
            return True
        if kind == "input_audio" and "input_audio" in part:
            self._add(_decoded_sound(part["input_audio"]))
            return True
        return False

    def _add(self, data: bytes) -> None:
        if len(self.found) >= MOST_MEDIA:
            raise DecisionError(f"too many media files, the maximum is {MOST_MEDIA}")
        self.found.append(Medium(data))


def _decoded(url: Any) -> bytes:
    """The bytes of a data URL."""
    if not isinstance(url, str) or not url.startswith("data:"):
        raise DecisionError(
            "media must be data URLs (data:image/...;base64,... or data:audio/...;base64,...)"
        )
    head, *rest = url.split(",")
    if len(rest) != 1:
        raise DecisionError("Invalid uri-encoded base64 value: a data URL has one comma")
    if not head.startswith(_KINDS):
        raise DecisionError(f"Invalid uri format: {head[:80]}")
    if not head.endswith("base64"):
        raise DecisionError("uri must be base64 encoded")
    return _bytes(rest[0])


def _decoded_sound(given: Any) -> bytes:
    """The bytes of ``input_audio``: base64, or a data URL."""
    text = None
    if isinstance(given, Mapping):
        text = given.get("data", given.get("url"))
    if not isinstance(text, str):
        raise DecisionError('"input_audio" must have "data": base64, or a data URL')
    if text.startswith(("http", "file://")):
        raise DecisionError('"input_audio" must be base64 or a data URL, not an address')
    if text.startswith("data:"):
        return _decoded(text)
    data = _bytes(text)
    if not data:
        raise DecisionError("Invalid base64 value")
    return data


def _bytes(text: str) -> bytes:
    """What base64 says up to where it ends; llama.cpp reads no further either."""
    match = _BASE64.match(text)
    assert match is not None
    whole = match[0][: len(match[0]) - (len(match[0]) % 4 == 1)]
    return base64.b64decode(whole + "=" * (-len(whole) % 4))
