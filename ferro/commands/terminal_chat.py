"""A chat at the terminal: lines in, answers out, the conversation kept."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ferro.commands.generate import show, summary
from ferro.report import emit, note

if TYPE_CHECKING:
    from ferro.models.chat import ChatTemplate
    from ferro.models.completion import Options
    from ferro.models.generation import Generation, Stream

PROMPT, MORE = "> ", "... "
HELP = """\
/help          this list
/reset         begin a new conversation
/system TEXT   begin a new one with this system message (without TEXT: with none)
/again         another answer to the last message
/stats         tokens and speed of the last answer
/quit          leave (Ctrl-D does the same)
A line that ends in \\ goes on. Ctrl-C stops an answer; twice, it leaves."""


class TerminalChat:
    """One conversation with one model."""

    def __init__(
        self,
        stream: Stream,
        template: ChatTemplate,
        options: Options,
        system: str | None = None,
        stats: bool = False,
    ) -> None:
        """``stats``: a line about every answer."""
        self._stream, self._template = stream, template
        self._options, self._system, self._stats = options, system, stats
        self._last: Generation | None = None
        self.messages: list[dict[str, Any]] = []
        self.reset()

    def run(self) -> None:
        """Until the user leaves."""
        with suppress(ImportError):
            import readline  # noqa: F401 (gives ``input`` a history and editing)
        note("/help shows the commands")
        interrupted = False
        while True:
            try:
                line = read_line()
            except EOFError:
                emit("")
                return
            except KeyboardInterrupt:
                emit("")
                if interrupted:
                    return
                interrupted = True
                note("Ctrl-C once more leaves")
                continue
            interrupted = False
            try:
                if not self.take(line):
                    return
            except KeyboardInterrupt:
                emit("")
                return

    def take(self, line: str) -> bool:
        """Obey a command or answer a message; False to leave."""
        word, _, rest = line.strip().partition(" ")
        if not word:
            return True
        if not word.startswith("/"):
            self.ask(line)
            return True
        if word in ("/quit", "/exit", "/bye"):
            return False
        commands: dict[str, Callable[[], None]] = {
            "/reset": lambda: self.begin(self._system),
            "/again": self.again,
            "/stats": self.tell,
            "/help": lambda: note(HELP),
            "/system": lambda: self.begin(rest.strip() or None),
        }
        if word in commands:
            commands[word]()
        else:
            note(f"there is no {word}: /help shows the commands")
        return True

    def reset(self) -> None:
        """Begin anew, with the system message that there is."""
        self.messages = []
        if self._system is not None:
            self.messages.append({"role": "system", "content": self._system})

    def begin(self, system: str | None) -> None:
        """Begin anew with this system message, and say so."""
        self._system = system
        self.reset()
        which = "no system message" if system is None else f"the system message: {system}"
        note(f"a new conversation, with {which}")

    def ask(self, text: str) -> None:
        """Answer a message of the user. One that cannot be answered is as if it had not been."""
        self.messages.append({"role": "user", "content": text})
        if not self._answer():
            self.messages.pop()

    def again(self) -> None:
        """Answer the last message once more, otherwise."""
        if not self.messages or self.messages[-1]["role"] != "assistant":
            note("there is no answer yet")
            return
        before = self.messages.pop()
        options = self._options
        self._options = replace(options, stream=options.stream + 1)
        if not self._answer():
            self.messages.append(before)

    def tell(self) -> None:
        note(summary(self._last) if self._last else "there is no answer yet")

    def _answer(self) -> bool:
        """Answer what was said last; False if that cannot be."""
        from ferro.models.completion import BadRequest
        from ferro.models.conversation import Conversation
        from ferro.models.renderer import TemplateError

        try:
            prompt = self._template.render(Conversation(self.messages))
            ids = self._stream.model.tokenizer.encode(prompt)
            generation = self._stream.complete(ids, self._options)
        except (TemplateError, BadRequest) as error:
            note(f"{error} (/reset begins a new conversation)")
            return False
        self._last = generation
        pieces: list[str] = []
        with stoppable() as stop:
            for piece in generation:
                pieces.append(piece)
                show([piece])
                if stop:
                    break
        show(["\n"])
        self.messages.append({"role": "assistant", "content": "".join(pieces)})
        if self._stats:
            self.tell()
        return True


@contextmanager
def stoppable() -> Iterator[list[int]]:
    """Within it the first Ctrl-C only fills the list: a pass on a device must not be cut in two.
    The next one raises KeyboardInterrupt."""
    signals: list[int] = []

    def note_it(number: int, _: Any) -> None:
        if signals:
            raise KeyboardInterrupt
        signals.append(number)

    before = signal.signal(signal.SIGINT, note_it)
    try:
        yield signals
    finally:
        signal.signal(signal.SIGINT, before)


def read_line() -> str:
    """What the user types, with the lines that go on from it. Raises EOFError."""
    line = input(PROMPT)
    while line.endswith("\\"):
        line = f"{line[:-1]}\n{input(MORE)}"
    return line
