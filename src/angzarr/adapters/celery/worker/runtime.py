"""The interface of a worker's Angzarr app to Celery's hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from celery import Celery

if TYPE_CHECKING:
    from datetime import timedelta

    from angzarr.adapters.celery.claim_batch import ClaimBatch
    from angzarr.adapters.celery.publish.body_offloader import BodyOffloader
    from angzarr.adapters.celery.publish.routing import CeleryRouting
    from angzarr.adapters.celery.worker.consumer_state import ConsumerState
    from angzarr.adapters.celery.worker.settlement import Settlement
    from angzarr.adapters.celery.worker.supervised import SupervisedProcess
    from angzarr.adapters.celery.worker.worker import Stopping
    from angzarr.delivery.executor import DeliveryExecutor
    from angzarr.delivery.handlers import Handler, Handlers, Subscription
    from angzarr.delivery.schedule import OpenSchedule
    from angzarr.events.event import Message
    from angzarr.runtime.json_bounds import Bounds

#: Where an app keeps its runtime; no user's code has this name.
ATTRIBUTE: Final = "_runtime"


class WorkerRuntime(Protocol):
    """The parts of the app that a worker's consumer, tasks, transports and steps use."""

    movement: ConsumerState
    #: This process, where it is one of several under a supervisor.
    supervised: SupervisedProcess | None

    @property
    def prefix(self) -> str:
        """The prefix of the names of all keys and queues of the app."""

    @property
    def bounds(self) -> Bounds:
        """The bounds of a message."""

    @property
    def redis_transport(self) -> str:
        """Whose transport for Redis the app uses."""

    @property
    def amqp_queues(self) -> str:
        """The setting that says whether queues on RabbitMQ are guarded."""

    @property
    def soft_shutdown_timeout(self) -> timedelta | None:
        """The grace that the settings name; None if they name none."""

    @property
    def handlers(self) -> Handlers:
        """The handlers of the app."""

    @property
    def routes(self) -> Mapping[str, Sequence[Subscription]]:
        """Handlers that this process need not import, by event type or domain."""

    @property
    def routing(self) -> CeleryRouting:
        """Which queue a task is sent to."""

    @property
    def broker_url(self) -> str:
        """The broker's URL."""

    @property
    def claims_url(self) -> str:
        """The URL of the claim store."""

    @property
    def stopping(self) -> Stopping:
        """The stop of this worker."""

    @property
    def owner(self) -> str:
        """The name of this process tree in claims."""

    @property
    def executor(self) -> Callable[[], DeliveryExecutor]:
        """Gives what carries out the deliveries of this process."""

    @property
    def offloader(self) -> Callable[[], BodyOffloader | None]:
        """Gives what stores bodies that are too large for the broker; None: there is no store."""

    @property
    def schedule(self) -> OpenSchedule:
        """Where messages wait."""

    @property
    def settlement(self) -> Settlement:
        """Settles deliveries that no child process can settle."""

    @property
    def claim_batch(self) -> ClaimBatch:
        """Claims a fetch at once, and completes in batches."""

    def owner_lease(self) -> str:
        """The key of this process tree's lease."""

    def holding(self) -> Callable[[Handler], str | None]:
        """A function that says why a handler is held back at this moment."""

    def run_eagerly(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run *task* for ``apply()`` and ``task_always_eager``."""

    def check_worker(self, pool: str, limits: Sequence[float | None] | None = ()) -> None:
        """Refuse to start where messages would be lost; None: the pool keeps any time limit."""

    def begin_work(self, pool: str = "") -> None:
        """Take the owner lease, before the pool starts."""

    def end_work(self) -> None:
        """End the lease and every thread of a worker."""

    def claim_fetched(self, messages: Sequence[Any]) -> None:
        """Claim *messages*, just fetched."""

    def reread(
        self, queue: str, identity: bytes, make: Callable[[], Any], keep_packed: Callable[[], Any]
    ) -> Any:
        """The message that *make* makes of one delivered before."""

    def stop_settling(self, patience: float = 0.0) -> None:
        """Settle the due steps, then nothing more."""

    def keep_settling(self) -> None:
        """See that the threads run that settle what no child will."""

    def bury(self, message: Message, error: Exception, code: str) -> str:
        """Make a dead letter of *message*, which cannot run, and return its id."""

    def lay_defaults(self) -> None:
        """Put our defaults for Celery under what the user says."""


def runtime_of(app: Celery) -> WorkerRuntime:
    """The runtime of *app*, which is one of ours."""
    found: WorkerRuntime = getattr(app, ATTRIBUTE)
    return found


def is_ours(app: Celery) -> bool:
    """True if *app* is an Angzarr app."""
    return hasattr(app, ATTRIBUTE)
