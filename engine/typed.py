"""Prompts that the user types: held until a backend has loaded, answered in text, remembered."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from engine.backend import Cancel
from engine.errors import EngineError
from engine.events import TextOut
from engine.ledger import Entry
from engine.replies import Reply
from engine.request import (
    GREEDY,
    BackendName,
    FinishReason,
    Request,
    RequestId,
    SamplingParams,
)
from engine.step_report import StepReport
from engine.text import Message

if TYPE_CHECKING:
    from engine.core import Core


class TypedPrompts:
    """`replies` are those still being written; `held` the prompts that came before any backend had loaded."""

    def __init__(self, core: "Core") -> None:
        self._core = core
        self.replies: dict[RequestId, Reply] = {}
        self.held: dict[RequestId, Callable[[], None]] = {}
        self._count = 0

    def chat(
        self,
        request_id: RequestId,
        messages: Sequence[Message],
        sampling: SamplingParams,
        only: BackendName | None,
    ) -> None:
        """A typed prompt. What is wrong with it comes back as the reply's error."""
        core = self._core
        if not core.router.alive() and core.loading:
            self.held[request_id] = lambda: self.chat(request_id, messages, sampling, only)
            return
        self._count += 1
        core.calibrator.pause()
        core.bursts.outsider()
        message, prompt = "", tuple[int, ...]()
        try:
            reply = core.conversations.open(messages, sampling)
            prompt = reply.prompt
            self.replies[request_id] = reply
        except EngineError as error:
            message = str(error)
        request = Request(request_id, prompt, sampling, core.clock.now_s())
        core.submit(request, self._count, None, only, message)

    def release(self) -> None:
        """A backend has loaded: what was held goes to it."""
        held, self.held = self.held, {}
        for go in held.values():
            go()

    def drop_all(self, reason: FinishReason, message: str) -> None:
        for request_id in list(self.held):
            self.drop(request_id, reason, message)

    def drop(self, request_id: RequestId, reason: FinishReason, message: str = "") -> None:
        """A prompt that waited for the first backend ends before it was tokenised."""
        del self.held[request_id]
        self._count += 1
        request = Request(request_id, (), GREEDY, self._core.clock.now_s())
        self._core.end(self._core.enter(request, self._count, None), reason, message)

    def take(self, report: StepReport) -> None:
        """Turn the tokens of a step into text, and end the replies that a stop string ends."""
        core = self._core
        for request_id, token in report.tokens:
            reply = self.replies.get(request_id)
            entry = core.ledger.entries.get(request_id)
            if reply is None or entry is None or not entry.is_at(report.backend):
                continue  # no prompt of the user, or it was moved to another backend
            if token in core.conversations.codec.eos_ids:
                continue
            text, stopped = reply.push(token)
            if text:
                core.publish(TextOut(request_id, text))
            if stopped and entry.reason is None:
                core.supervisor.send(entry.backend, Cancel(request_id))
                core.end(entry, FinishReason.STOP)
            elif stopped:  # complete with the very last token: it ends with the step
                entry.reason = FinishReason.STOP

    def ended(self, entry: Entry) -> None:
        """The rest of its text, and what the conversation keeps of it."""
        reply = self.replies.pop(entry.request.id, None)
        if reply is None:
            return
        if entry.reason is not FinishReason.ERROR and (text := reply.finish()):
            self._core.publish(TextOut(entry.request.id, text))
        if entry.reason in (FinishReason.STOP, FinishReason.LENGTH) and not reply.stops.stopped:
            self._core.conversations.keep(reply, entry.tokens)
