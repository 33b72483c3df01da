"""One program of the machine measures at a time: two at once would measure each other."""

from filelock import FileLock, Timeout

from engine.paths import cache_dir, make_folder


class MachineLock:
    """Held from the first `hold` that succeeds until `release`; both may be called as often as one likes."""

    def __init__(self) -> None:
        self._lock: FileLock | None = None

    def hold(self) -> bool:
        """False while another program holds it; never waits."""
        if self._lock is None:
            lock = FileLock(make_folder(cache_dir()) / "calibration.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                return False
            self._lock = lock
        return True

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
