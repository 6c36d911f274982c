#!/bin/sh
# Installs what simrun needs and this machine lacks, from the distribution's packages: Postgres (14 or later) and
# PgBouncer, and when asked with --browser what the tests need besides: Chromium to look at the report, Python for an
# example. It says what it does first; where it may not install, it says in one sentence what to install. Nothing is
# started: no cluster on 5432, no pooler on 6432.
set -eu

have_postgres() {
	[ -n "${SIMRUN_PG_BIN:-}" ] && return 0
	for d in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin; do [ -x "$d/postgres" ] && return 0; done
	command -v postgres >/dev/null 2>&1 && command -v initdb >/dev/null 2>&1
}
have_pgbouncer() { [ -n "${SIMRUN_PGBOUNCER:-}" ] || [ -x /usr/sbin/pgbouncer ] || command -v pgbouncer >/dev/null 2>&1; }
have_browser() { command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1; }

for tool in go cc; do
	command -v "$tool" >/dev/null 2>&1 || { echo "simrun needs '$tool': install Go 1.26 or later and a C compiler (apt-get install gcc)." >&2; exit 6; }
done
missing=
have_postgres || missing="$missing postgresql"
have_pgbouncer || missing="$missing pgbouncer"
if [ "${1:-}" = --browser ]; then
	have_browser || missing="$missing chromium"
	command -v python3 >/dev/null 2>&1 || missing="$missing python3"
	command -v psql >/dev/null 2>&1 || missing="$missing postgresql-client"
fi
[ -n "$missing" ] || exit 0

sudo=
if [ "$(id -u)" != 0 ]; then
	if command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then sudo="sudo -n"; else
		echo "simrun needs$missing: run 'sudo apt-get install$missing', or point SIMRUN_PG_BIN and SIMRUN_PGBOUNCER at them." >&2
		exit 6
	fi
fi
command -v apt-get >/dev/null 2>&1 || { echo "simrun needs$missing and finds no apt-get: install them, or point SIMRUN_PG_BIN and SIMRUN_PGBOUNCER at them." >&2; exit 6; }

echo "Installing$missing with apt-get (no server is started) ..." >&2
conf=/etc/postgresql-common/createcluster.d/simrun.conf
policy=/usr/sbin/policy-rc.d
made_policy=
cleanup() { $sudo rm -f "$conf"; [ -z "$made_policy" ] || $sudo rm -f "$policy"; }
trap cleanup EXIT
$sudo mkdir -p "$(dirname "$conf")"
echo "create_main_cluster = false" | $sudo tee "$conf" >/dev/null
if [ ! -e "$policy" ]; then
	printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
	$sudo chmod 755 "$policy"
	made_policy=1
fi
log=$(mktemp)
if ! { $sudo apt-get update -qq && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing; } >"$log" 2>&1; then
	tail -20 "$log" >&2
	echo "apt-get could not install$missing: install them by hand and try again." >&2
	exit 6
fi
rm -f "$log"
