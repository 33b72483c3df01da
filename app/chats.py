"""Conversations on disk, written as they happen: one SQLite file, so that no kill loses a reply. No Qt."""

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from app.series.conversation import Conversation, Exchange, title_of, unfinished
from engine.errors import ConfigError, EngineError
from engine.paths import make_folder

VERSION = 1
BUSY_S = 2.0  # another window may be writing
SCHEMA = """
CREATE TABLE IF NOT EXISTS conversations (
  key INTEGER PRIMARY KEY, title TEXT NOT NULL, system TEXT NOT NULL DEFAULT '',
  created_s REAL NOT NULL, updated_s REAL NOT NULL);
CREATE TABLE IF NOT EXISTS exchanges (
  row INTEGER PRIMARY KEY, conversation INTEGER NOT NULL REFERENCES conversations(key) ON DELETE CASCADE,
  prompt TEXT NOT NULL, reply TEXT NOT NULL DEFAULT '', done INTEGER NOT NULL DEFAULT 0,
  rank INTEGER, backend TEXT NOT NULL DEFAULT '', figures TEXT NOT NULL DEFAULT '',
  note TEXT NOT NULL DEFAULT '', problem TEXT NOT NULL DEFAULT '', tokens INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS exchanges_of ON exchanges(conversation);
"""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Listed:
    key: int
    title: str
    updated_s: float
    count: int


class ChatStore:
    """Every call is one short transaction. Raises `ConfigError` where the disk does not play along."""

    def __init__(self, path: Path | None) -> None:
        """`path` None keeps everything in memory only."""
        self.path = path
        try:
            if path is not None:
                make_folder(path.parent)
            self._db = sqlite3.connect(str(path) if path else ":memory:", timeout=BUSY_S)
            self._db.execute("PRAGMA foreign_keys = ON")
            # WAL with NORMAL: a commit is a write without waiting for the disk; a killed process loses
            # nothing, a power cut at most the last words.
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, VERSION):
                self._db.close()
                raise ConfigError(
                    f"{path} was written by another version of Offramp: conversations are not kept. "
                    "Move the file away to begin a new one."
                )
            with self._db:
                self._db.executescript(SCHEMA)
                self._db.execute(f"PRAGMA user_version = {VERSION}")
        except sqlite3.Error as error:
            raise ConfigError(f"{path} cannot be used ({error}): conversations are not kept.") from error

    def close(self) -> None:
        self._db.close()

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with self._db:
                return work(self._db)
        except sqlite3.Error as error:
            raise ConfigError(f"The conversation was not saved ({error}): free some space.") from error

    def begin(self, conversation: Conversation, exchange: Exchange) -> None:
        """Keep a prompt, and its conversation if this is the first."""

        def work(db: sqlite3.Connection) -> None:
            now = time.time()
            if not conversation.key:
                conversation.title = conversation.title or title_of(exchange.prompt)
                conversation.key = db.execute(
                    "INSERT INTO conversations (title, system, created_s, updated_s) VALUES (?, ?, ?, ?)",
                    (conversation.title, conversation.system, now, now),
                ).lastrowid
            db.execute(
                "UPDATE conversations SET updated_s = ?, system = ? WHERE key = ?",
                (now, conversation.system, conversation.key),
            )
            exchange.row = db.execute(
                "INSERT INTO exchanges (conversation, prompt) VALUES (?, ?)",
                (conversation.key, exchange.prompt),
            ).lastrowid

        self._do(work)

    def keep(self, exchange: Exchange) -> None:
        """The reply as far as it has come."""
        e = exchange
        if e.row:
            values = (e.reply, e.done, e.rank, e.backend, e.figures, e.note, e.problem, e.tokens, e.row)
            self._do(
                lambda db: db.execute(
                    "UPDATE exchanges SET reply = ?, done = ?, rank = ?, backend = ?, figures = ?, note = ?,"
                    " problem = ?, tokens = ? WHERE row = ?",
                    values,
                )
            )

    def drop(self, exchanges: list[Exchange]) -> None:
        rows = [(e.row,) for e in exchanges if e.row]
        self._do(lambda db: db.executemany("DELETE FROM exchanges WHERE row = ?", rows))

    def listed(self, search: str = "") -> list[Listed]:
        """Newest first; with `search` those whose title, prompts or replies hold the words."""
        like = "%" + search.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
        found = self._do(
            lambda db: db.execute(
                "SELECT c.key, c.title, c.updated_s, COUNT(e.row) FROM conversations c"
                " LEFT JOIN exchanges e ON e.conversation = c.key"
                " WHERE c.title LIKE :like ESCAPE '\\' OR EXISTS (SELECT 1 FROM exchanges x WHERE"
                " x.conversation = c.key AND (x.prompt LIKE :like ESCAPE '\\'"
                " OR x.reply LIKE :like ESCAPE '\\'))"
                " GROUP BY c.key ORDER BY c.updated_s DESC, c.key DESC LIMIT 500",
                {"like": like},
            ).fetchall()
        )
        return [Listed(*row) for row in found]

    def load(self, key: int) -> Conversation | None:
        head = self._do(
            lambda db: db.execute("SELECT title, system FROM conversations WHERE key = ?", (key,)).fetchone()
        )
        if head is None:
            return None
        rows = self._do(
            lambda db: db.execute(
                "SELECT prompt, reply, done, rank, backend, figures, note, problem, tokens, row"
                " FROM exchanges WHERE conversation = ? ORDER BY row",
                (key,),
            ).fetchall()
        )
        exchanges = [Exchange(p, 0, r, bool(d), rank, b, f, n, x, "", t, row)
                     for p, r, d, rank, b, f, n, x, t, row in rows]  # fmt: skip
        unfinished(exchanges)
        return Conversation(key, head[0], head[1], exchanges)

    def rename(self, key: int, title: str) -> None:
        title = title.strip()
        if title:
            self._do(lambda db: db.execute("UPDATE conversations SET title = ? WHERE key = ?", (title, key)))

    def delete(self, key: int) -> None:
        self._do(lambda db: db.execute("DELETE FROM conversations WHERE key = ?", (key,)))


def open_store(path: Path | None) -> tuple[ChatStore, str]:
    """The store, or one in memory and the reason why."""
    try:
        return ChatStore(path), ""
    except EngineError as error:
        return ChatStore(None), str(error)
