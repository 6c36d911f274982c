#!/usr/bin/env python3
"""A replica in Python, with its standard library and psql. It works in the very session that holds the lock."""
import json, os, select, subprocess, sys, time

start = json.loads(sys.stdin.readline())
key, seconds = start["role"]["key"], start["seconds"]
reports = os.fdopen(3, "w", buffering=1)  # each line at once: a kill loses nothing


def report(kind, **event):
    print(json.dumps({"kind": kind, "unix_ns": time.time_ns(), **event}), file=reports)


class Lost(Exception):
    """The session is gone, or does not answer."""


class Session:
    """One connection: a psql that is written to and read from. Its address is in libpq's variables, put there by simrun."""

    def __init__(self, n):
        self.name = f"r{start['replica']}/{start['incarnation']}/lease/{n}"  # by it the judges know whose session it is
        self.psql = subprocess.Popen(["psql", "-XqAt", "-v", "ON_ERROR_STOP=1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     bufsize=0, env={**os.environ, "PGAPPNAME": self.name})

    def ask(self, sql):
        """The rows of the answer. It gives up after a while: who gets no answer may have lost the lock long ago."""
        try:
            self.psql.stdin.write(f"{sql};\n\\echo .\n".encode())
        except BrokenPipeError:
            raise Lost
        answer, until = b"", time.monotonic() + seconds["beat_deadline"]
        while not answer.endswith(b".\n"):
            ready, _, _ = select.select([self.psql.stdout], [], [], max(0, until - time.monotonic()))
            more = os.read(self.psql.stdout.fileno(), 65536) if ready else b""
            if not more:
                raise Lost
            answer += more
        return [line.split("|") for line in answer.decode().splitlines()[:-1]]

    def close(self):
        self.psql.kill()  # at once, whatever state it is in: with the session goes the lock
        self.psql.wait()


class Order(Exception):
    """stop or step-down."""


def wait(s):
    if select.select([0], [], [], s)[0]:
        line = sys.stdin.readline()
        raise Order(json.loads(line)["order"] if line else "stop")  # no line: simrun has gone


def acquire(session):
    while True:
        report("attempt", op="begin", session=session.name)
        try:
            got = session.ask(f"SELECT pg_try_advisory_lock({key})") == [["t"]]
        except Lost:
            report("attempt", op="end", answer="error", session=session.name)
            raise
        report("attempt", op="end", answer="acquired" if got else "busy", session=session.name)
        if got:
            return
        wait(seconds["retry"])


def work(session):
    """Publishes what is due. Publishing a row is a line in the ledger, in the same transaction."""
    due = session.ask("SELECT id, schedule_no FROM data_rows WHERE status = 'scheduled' AND scheduled_publish_at <= now() ORDER BY 1 LIMIT 25")
    for row, unit in due:
        what = {"row": int(row), "unit": int(unit), "session": session.name}
        report("effect", op="begin", **what)
        try:
            session.ask(f"""WITH published AS (UPDATE data_rows SET status = 'published' WHERE id = {row} AND status = 'scheduled' RETURNING *)
                INSERT INTO simrun.ledger (kind, role, key, row_id, unit) SELECT 'effect', 'publish', {key}, id, schedule_no FROM published""")
        except Lost:
            report("effect", op="end", outcome="unknown", **what)  # the answer may have been lost, and not the commit
            raise
        report("effect", op="end", outcome="done", **what)


def lead(session):
    report("lead", session=session.name)
    try:
        while True:
            work(session)
            wait(seconds["tick"])
    finally:
        report("end")
        report("idle")


def release(session):
    report("unlock", op="begin", session=session.name)
    held = session.ask(f"SELECT pg_advisory_unlock({key})") == [["t"]]
    report("unlock", op="end", answer="unlocked" if held else "not held", session=session.name)


def compete(n):
    session = Session(n)
    try:
        if seconds["ttl"] > 0:  # so that the server does not keep the lock for a client that is cut off
            session.ask(f"SET idle_session_timeout = '{seconds['ttl'] * 1000:.0f}ms'")
        acquire(session)
        try:
            lead(session)
        except Order:
            release(session)
            raise
    finally:
        session.close()


print('{"hello":1}', file=reports)
n = 0
while True:
    n += 1
    try:
        compete(n)
    except Lost:
        print("lost a session", file=sys.stderr)
    except Order as order:
        if str(order) == "stop":
            break
    try:
        wait(seconds["retry"])
    except Order as order:
        if str(order) == "stop":
            break
