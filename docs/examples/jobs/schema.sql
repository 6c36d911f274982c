CREATE TABLE jobs (id bigint PRIMARY KEY, due timestamptz NOT NULL);

CREATE TABLE done (
    job      bigint NOT NULL REFERENCES jobs,
    worker   text NOT NULL DEFAULT current_setting('application_name'),
    finished timestamptz NOT NULL DEFAULT clock_timestamp()
);
