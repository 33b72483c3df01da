"""Conversations on disk, written as they happen: one SQLite file, so that no kill loses a reply. No Qt."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from app.series.conversation import Conversation, Exchange, title_of, unfinished
from engine.errors import ConfigError, EngineError
from engine.paths import make_folder

VERSION = 2
BUSY_S = 2.0  # another window may be writing
SCHEMA = """
CREATE TABLE IF NOT EXISTS conversations (
  key INTEGER PRIMARY KEY, title TEXT NOT NULL, system TEXT NOT NULL DEFAULT '',
  created_s REAL NOT NULL, updated_s REAL NOT NULL);
CREATE TABLE IF NOT EXISTS exchanges (
  row INTEGER PRIMARY KEY, conversation INTEGER NOT NULL REFERENCES conversations(key) ON DELETE CASCADE,
  prompt TEXT NOT NULL, reply TEXT NOT NULL DEFAULT '', done INTEGER NOT NULL DEFAULT 0,
  rank INTEGER, backend TEXT NOT NULL DEFAULT '', figures TEXT NOT NULL DEFAULT '',
  note TEXT NOT NULL DEFAULT '', problem TEXT NOT NULL DEFAULT '', tokens INTEGER NOT NULL DEFAULT 0,
  thought_tokens INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS exchanges_of ON exchanges(conversation);
"""
OLDER = {  # from each older version to the next one
    1: "ALTER TABLE exchanges ADD COLUMN thought_tokens INTEGER NOT NULL DEFAULT 0",
}
KEPT = ("reply", "done", "rank", "backend", "figures", "note", "problem", "tokens", "thought_tokens")
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
            self._db.create_function("folded", 1, str.casefold, deterministic=True)
            with self._db:
                self._bring_up_to_date()
        except ConfigError:
            self._db.close()
            raise
        except sqlite3.Error as error:
            raise ConfigError(f"{path} cannot be used ({error}): conversations are not kept.") from error

    def _bring_up_to_date(self) -> None:
        db = self._db
        db.execute("BEGIN IMMEDIATE")  # another window may begin at the same time
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise ConfigError(
                f"{self.path} was written by another version of Offramp: conversations are not kept. "
                "Move the file away to begin a new one."
            )
        for statement in SCHEMA.split(";"):
            db.execute(statement)
        for older in range(version or VERSION, VERSION):
            db.execute(OLDER[older])
        db.execute(f"PRAGMA user_version = {VERSION}")

    def close(self) -> None:
        self._db.close()

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with self._db:
                return work(self._db)
        except sqlite3.Error as error:
            raise ConfigError(f"The conversation was not saved ({error}): free some space.") from error

    def begin(self, conversation: Conversation, exchange: Exchange, gone: Sequence[Exchange] = ()) -> None:
        """Keep a prompt, and its conversation if this is the first. `gone` make room in the same moment."""

        def work(db: sqlite3.Connection) -> tuple[int, int]:
            now = time.time()
            key = conversation.key or self._insert(db, conversation, now)
            db.execute(
                "UPDATE conversations SET updated_s = ?, system = ? WHERE key = ?",
                (now, conversation.system, key),
            )
            db.executemany("DELETE FROM exchanges WHERE row = ?", [(e.row,) for e in gone if e.row])
            return key, self._add(db, key, exchange)

        conversation.title = conversation.title or title_of(exchange.prompt)
        conversation.key, exchange.row = self._do(work)

    @staticmethod
    def _insert(db: sqlite3.Connection, conversation: Conversation, now: float) -> int:
        made = db.execute(
            "INSERT INTO conversations (title, system, created_s, updated_s) VALUES (?, ?, ?, ?)",
            (conversation.title, conversation.system, now, now),
        )
        return made.lastrowid or 0

    @staticmethod
    def _add(db: sqlite3.Connection, key: int, exchange: Exchange) -> int:
        columns = ("conversation", "prompt", *KEPT)
        made = db.execute(
            f"INSERT INTO exchanges ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
            (key, exchange.prompt, *(getattr(exchange, name) for name in KEPT)),
        )
        return made.lastrowid or 0

    def add_whole(self, conversation: Conversation) -> int:
        """Keep a conversation with all its exchanges, as a new one. Returns its key."""

        def work(db: sqlite3.Connection) -> tuple[int, list[int]]:
            key = self._insert(db, conversation, time.time())
            return key, [self._add(db, key, exchange) for exchange in conversation.exchanges]

        conversation.key, rows = self._do(work)
        for exchange, row in zip(conversation.exchanges, rows, strict=True):
            exchange.row = row
        return conversation.key

    def keep(self, exchange: Exchange) -> None:
        """The reply as far as it has come."""
        if exchange.row:
            values = (*(getattr(exchange, name) for name in KEPT), exchange.row)
            sets = ", ".join(f"{name} = ?" for name in KEPT)
            self._do(lambda db: db.execute(f"UPDATE exchanges SET {sets} WHERE row = ?", values))

    def listed(self, search: str = "") -> list[Listed]:
        """Newest first; with `search` those whose title, prompts or replies hold the words."""
        found = self._do(
            lambda db: db.execute(
                "SELECT c.key, c.title, c.updated_s, COUNT(e.row) FROM conversations c"
                " LEFT JOIN exchanges e ON e.conversation = c.key"
                " WHERE :words = '' OR instr(folded(c.title), :words) OR EXISTS (SELECT 1 FROM exchanges x"
                " WHERE x.conversation = c.key AND (instr(folded(x.prompt), :words)"
                " OR instr(folded(x.reply), :words)))"
                " GROUP BY c.key ORDER BY c.updated_s DESC, c.key DESC LIMIT 500",
                {"words": search.strip().casefold()},
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
                f"SELECT row, prompt, {', '.join(KEPT)} FROM exchanges WHERE conversation = ? ORDER BY row",
                (key,),
            ).fetchall()
        )
        exchanges = []
        for row, prompt, *values in rows:
            kept = dict(zip(KEPT, values, strict=True))
            exchanges.append(Exchange(prompt, 0, row=row, **{**kept, "done": bool(kept["done"])}))
        unfinished(exchanges)
        return Conversation(key, head[0], head[1], exchanges)

    def rename(self, key: int, title: str) -> None:
        title = title.strip()
        if title:
            self._do(lambda db: db.execute("UPDATE conversations SET title = ? WHERE key = ?", (title, key)))

    def set_system(self, key: int, system: str) -> None:
        self._do(lambda db: db.execute("UPDATE conversations SET system = ? WHERE key = ?", (system, key)))

    def delete(self, key: int) -> None:
        self._do(lambda db: db.execute("DELETE FROM conversations WHERE key = ?", (key,)))


def open_store(path: Path | None) -> tuple[ChatStore, str]:
    """The store, or one in memory and the reason why."""
    try:
        return ChatStore(path), ""
    except EngineError as error:
        return ChatStore(None), str(error)
