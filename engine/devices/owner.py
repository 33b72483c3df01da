"""The one thread that may use a device. No torch here."""

import threading


class Owner:
    """Belongs to the thread that makes it. Two threads on Metal abort the whole process (pytorch#197805), and
    on any device the thread count and the grad mode are each thread's own: so a foreign call is refused."""

    def __init__(self, what: str) -> None:
        self._what, self._thread = what, threading.current_thread()

    def check(self) -> None:
        """Raise `RuntimeError` in any other thread."""
        caller = threading.current_thread()
        if caller is not self._thread:
            raise RuntimeError(
                f"{self._what} is used only in the thread that made it: "
                f"'{caller.name}' called what belongs to '{self._thread.name}'"
            )
