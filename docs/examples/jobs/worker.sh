#!/bin/sh
# A worker that does what it has not done yet, as long as it holds the lock: one psql, fed for ever. It reports nothing but its hello:
# what it did is read from its tables, and who led from pg_locks.
read -r start
number() { printf %s "$start" | sed "s/.*\"$1\":\([0-9]*\).*/\1/"; }
export PGAPPNAME="r$(number replica)/$(number incarnation)/effect/1"
echo '{"hello":1}' >&3
{
	echo "SELECT pg_advisory_lock($1);"
	while sleep 0.05; do
		echo "INSERT INTO done (job) SELECT id FROM jobs WHERE due <= now() AND NOT EXISTS (
			SELECT FROM done WHERE job = id AND worker = current_setting('application_name'));"
	done
} | psql -XqAt >/dev/null &
read -r order # to stop: the processes of a replica end with it
