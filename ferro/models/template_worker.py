"""The process in which a chat template runs: it reads the template, then answers requests.

Requests and answers are JSON, so that nothing but text comes back. It imports nothing heavy.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any

from ferro.models.template_traits import traits
from ferro.models.templating import BadTemplate, Template, TemplateFailed

MOST_MEMORY = 1 << 30


def limit_memory() -> None:
    """Bounds the memory of this process, where the system can."""
    try:
        import resource
    except ImportError:
        return
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    wanted = MOST_MEMORY if most == resource.RLIM_INFINITY else min(MOST_MEMORY, most)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, most))


def opened(source: str) -> tuple[Template | None, dict[str, Any]]:
    """The template and what is told of it: its traits or what is wrong with it."""
    try:
        return Template(source), {"traits": asdict(traits(source))}
    except BadTemplate as error:
        return None, {"bad": str(error)}


def rendered(template: Template, request: dict[str, Any]) -> dict[str, str]:
    """The text of a request (``variables``, ``now``) or the message of its failure."""
    try:
        return {"text": template.render(request["variables"], request["now"])}
    except TemplateFailed as error:
        return {"failed": str(error)}


def serve(channel: Connection) -> None:
    """Until the other end is closed."""
    limit_memory()
    channel.send_bytes(b"{}")
    template, told = opened(json.loads(channel.recv_bytes())["source"])
    send(channel, told)
    while template is not None:
        answer = rendered(template, json.loads(channel.recv_bytes()))
        send(channel, answer)


def send(channel: Connection, answer: dict[str, Any]) -> None:
    """An answer, lone surrogates and all."""
    channel.send_bytes(json.dumps(answer, ensure_ascii=False).encode("utf-8", "surrogatepass"))


if __name__ == "__main__":
    try:
        serve(Connection(int(sys.argv[1])))
    except (EOFError, OSError):
        pass
