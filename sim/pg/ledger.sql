-- The ledger of what was committed. Rows are written by the code under test's callbacks (effects) and by a trigger on
-- lock_terms (terms); who wrote them is taken from the session, not from what the code says.
CREATE SCHEMA IF NOT EXISTS simrun;
CREATE SEQUENCE IF NOT EXISTS simrun.commit_order;

-- A logged table: an unlogged one is emptied by a crash. No unique rule: a duplicate is what we are looking for. No time
-- in a default: it would be bound to the real clock for ever, whatever search_path a session has.
CREATE TABLE IF NOT EXISTS simrun.ledger (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    position bigint,                                   -- in commit order; set at commit
    xid      xid8   NOT NULL DEFAULT pg_current_xact_id(),
    pid      int    NOT NULL DEFAULT pg_backend_pid(),
    app      text   NOT NULL DEFAULT current_setting('application_name'),
    kind     text   NOT NULL,                          -- effect or term
    role     text,
    key      bigint,
    row_id   bigint,
    unit     bigint,
    term     bigint,
    token    bigint,
    at       timestamptz
);

-- clock_timestamp is not qualified here, so that a session whose search_path names another clock first uses that one.
CREATE OR REPLACE FUNCTION simrun.stamp() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.at := clock_timestamp();
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER stamp BEFORE INSERT ON simrun.ledger FOR EACH ROW EXECUTE FUNCTION simrun.stamp();

-- Runs as the last thing before the commit. The lock is held until the commit is visible, so the next transaction takes
-- its number after this one has committed. It is of the two-number kind, which no lease uses; and it is the last lock a
-- transaction takes, so it closes no circle of waiting.
CREATE OR REPLACE FUNCTION simrun.number_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1936289138, 1);
    UPDATE simrun.ledger SET position = nextval('simrun.commit_order') WHERE id = NEW.id;
    RETURN NULL;
END $$;
DROP TRIGGER IF EXISTS number_commit ON simrun.ledger;
CREATE CONSTRAINT TRIGGER number_commit AFTER INSERT ON simrun.ledger
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION simrun.number_commit();

CREATE OR REPLACE FUNCTION simrun.note_term() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' OR NEW.term IS DISTINCT FROM OLD.term OR NEW.token IS DISTINCT FROM OLD.token THEN
        INSERT INTO simrun.ledger(kind, key, term, token) VALUES ('term', NEW.key, NEW.term, NEW.token);
    END IF;
    RETURN NULL;
END $$;
DO $$
BEGIN
    -- A table of that name that is somebody else's has other columns.
    IF (SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('lock_terms') AND attname IN ('key', 'term', 'token')) = 3 THEN
        CREATE OR REPLACE TRIGGER simrun_note_term AFTER INSERT OR UPDATE ON lock_terms FOR EACH ROW EXECUTE FUNCTION simrun.note_term();
    END IF;
END $$;

-- The code under test may use a role of its own.
GRANT USAGE ON SCHEMA simrun TO PUBLIC;
GRANT INSERT, SELECT, UPDATE (position) ON simrun.ledger TO PUBLIC;
GRANT USAGE ON SEQUENCE simrun.commit_order TO PUBLIC;
