"""Publisher: sends the stream, each event until the broker confirmed it, and remembers what was.

It sends by the same doors as an application would; what is garbage it sends raw. An event whose
publishing failed is sent again under the same id, so it may reach the broker twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from angzarr.errors import BrokerUnavailable, PublishError
from angzarr.events.event import task_id_for
from angzarr.events.message import Message
from chaos.fates import LIMITED, MAIN, PAIR, QUEUE, STEPS
from chaos.fleet import NotRunning
from chaos.garbage import raw
from chaos.stream import Planned

#: Seconds between two tries.
PAUSE = 0.3
#: Events that a flood sends again, and how often each.
FLOOD, TIMES = 20, 8


class Publisher:
    """Sends with *module* (the app under test) to the broker itself."""

    def __init__(self, module: Any, push_raw: Callable[[bytes], None]) -> None:
        self._module = module
        self._push_raw = push_raw
        #: Confirmed, in order; when each was first sent; how many sends were confirmed in all.
        self.published: list[Planned] = []
        self.sent_at: dict[str, float] = {}
        self.sends = 0
        #: Event id → what the app said when it would not send it.
        self.refused: dict[str, str] = {}
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, stream: Sequence[Planned]) -> None:
        """Begin to send *stream*, each event at its time."""
        began = time.monotonic()
        self._thread = threading.Thread(target=self._run, args=(stream, began), daemon=True)
        self._thread.start()

    def finish(self, patience: float) -> None:
        """Wait until all is sent; raises NotRunning if it takes longer than *patience*."""
        assert self._thread is not None
        self._thread.join(patience)
        if self._thread.is_alive():
            self._over.set()
            raise NotRunning(f"the stream was not published within {patience:.0f} s more")

    def flood(self, target: int) -> int:
        """Send some of what was confirmed again and again, under the same ids; return how often."""
        known = [one for one in self.published if not one.fate.raw and not one.fate.lethal]
        again = [known[(target + i) % len(known)] for i in range(FLOOD if known else 0)] * TIMES
        for one in again:
            self._until_confirmed(one)
        return len(again)

    def _run(self, stream: Sequence[Planned], began: float) -> None:
        for planned in stream:
            self._over.wait(max(0.0, began + planned.at - time.monotonic()))
            self.sent_at[planned.id] = time.monotonic()
            confirmed = all(self._until_confirmed(planned) for _ in range(planned.copies))
            if confirmed:
                self.published.append(planned)

    def _until_confirmed(self, planned: Planned) -> bool:
        """Send one message; return False if it is refused, or the run is over before."""
        while not self._over.is_set():
            try:
                self._send(planned)
            except (PublishError, BrokerUnavailable, OSError):
                self._over.wait(PAUSE)
            except Exception as error:
                self.refused[planned.id] = repr(error)
                return False
            else:
                self.sends += 1
                return True
        return False

    def _send(self, planned: Planned) -> None:
        if planned.fate.raw:
            self._send_raw(planned)
        elif planned.fate.handlers == STEPS:
            first, second = (
                self._module.app.tasks[name].si(planned.id).set(task_id=task_id)
                for name, task_id in planned.pairs
            )
            (first | second).apply_async()
        elif planned.fate.name == "unknown":
            name = planned.fate.handlers[0]
            self._module.app.send_task(name, [planned.data], task_id=planned.id)
        else:
            self._publish(planned)

    def _publish(self, planned: Planned) -> None:
        options: dict[str, Any] = {}
        if planned.delay:
            options["countdown"] = planned.delay
        if planned.fate.name == "expired":
            options["expires"] = datetime.now(UTC) - timedelta(seconds=5)
        if planned.fate.name == "revoked":
            self._module.app.control.revoke(task_id_for(planned.id, MAIN))
        self._module.app.publish(self._event(planned), id=planned.id, **options)

    def _event(self, planned: Planned) -> object:
        module, handlers = self._module, planned.fate.handlers
        if handlers == PAIR:
            return module.PairTrial(**planned.data)
        if handlers == (LIMITED,):
            return module.LimitedTrial(**planned.data)
        return (module.LethalTrial if planned.fate.lethal else module.Trial)(**planned.data)

    def _send_raw(self, planned: Planned) -> None:
        wrong = raw(planned.kind, planned.id)
        if wrong.envelope:
            self._push_raw(wrong.body)
            return
        message = Message(
            body=wrong.body, headers=wrong.headers, content_type=wrong.content_type,
            content_encoding=wrong.content_encoding, queue=QUEUE,
        )  # fmt: skip
        self._module.app.open_publisher().publish(message)
