-- The database's clock in virtual time. A sequence keeps it, since reading one is cheap, is no part of a transaction and
-- sees what the control connection has just written, on every route.
CREATE SCHEMA simclock;
CREATE SEQUENCE simclock.clock MINVALUE 0;
SELECT setval('simclock.clock', 0);
-- The bodies are parsed once, here, and not with every query that calls them.
CREATE FUNCTION simclock.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
    RETURN timestamptz 'epoch' + pg_catalog.pg_sequence_last_value('simclock.clock'::regclass) * interval '1 microsecond';
CREATE FUNCTION simclock.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
    RETURN timestamptz 'epoch' + pg_catalog.pg_sequence_last_value('simclock.clock'::regclass) * interval '1 microsecond';
-- simclock.began is set in a transaction that has lasted for some virtual time.
CREATE FUNCTION simclock.transaction_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
    RETURN timestamptz 'epoch' + coalesce(nullif(pg_catalog.current_setting('simclock.began', true), '')::bigint,
           pg_catalog.pg_sequence_last_value('simclock.clock'::regclass)) * interval '1 microsecond';
CREATE FUNCTION simclock.now() RETURNS timestamptz LANGUAGE sql STABLE
    RETURN timestamptz 'epoch' + coalesce(nullif(pg_catalog.current_setting('simclock.began', true), '')::bigint,
           pg_catalog.pg_sequence_last_value('simclock.clock'::regclass)) * interval '1 microsecond';
GRANT USAGE ON SCHEMA simclock TO PUBLIC;
GRANT SELECT, USAGE, UPDATE ON SEQUENCE simclock.clock TO PUBLIC;
-- Sessions of the engine's own come and go as it likes, and those kept for later are what earlier runs left: code that counts sessions, or ends
-- some of them, does not see them.
CREATE VIEW simclock.pg_stat_activity AS SELECT * FROM pg_catalog.pg_stat_activity
    WHERE datname IS DISTINCT FROM current_database() OR coalesce(application_name, '') NOT IN ('simrun control', 'simrun ledger', 'simrun/warm');
GRANT SELECT ON simclock.pg_stat_activity TO PUBLIC
