"""How events reach those who listen: bounded rings that the engine fills and each reader drains."""

from collections import deque

from engine.events import Event


class Subscription:
    """A bounded ring between the engine's thread and one reader. Appending never blocks."""

    def __init__(self, capacity: int) -> None:
        self._ring: deque[Event] = deque(maxlen=capacity)
        self.pushed = 0
        self.drained = 0

    def push(self, event: Event) -> None:
        self._ring.append(event)
        self.pushed += 1

    def drain(self, most: int = 1_000_000) -> list[Event]:
        """Take up to `most` events, oldest first. Safe from another thread than the pusher's."""
        out: list[Event] = []
        try:
            while len(out) < most:
                out.append(self._ring.popleft())
        except IndexError:
            pass
        self.drained += len(out)
        return out

    @property
    def dropped(self) -> int:
        """Events that the ring had to give up because nobody drained it."""
        return max(0, self.pushed - self.drained - len(self._ring))


class EventHub:
    """Hands every event to every subscription."""

    def __init__(self) -> None:
        self._subscriptions: tuple[Subscription, ...] = ()

    def subscribe(self, capacity: int = 65_536) -> Subscription:
        subscription = Subscription(capacity)
        self._subscriptions = (*self._subscriptions, subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        self._subscriptions = tuple(s for s in self._subscriptions if s is not subscription)

    def publish(self, event: Event) -> None:
        for subscription in self._subscriptions:
            subscription.push(event)
