#!/usr/bin/env bash
# A replica in shell (bash 5), with psql. It works in the very session that holds the lock.
trap '' PIPE # to write to a psql that has gone is an error, and not the end
read -r start
field() { sed -nE "s/.*\"$1\":\"?([^\",}]*).*/\1/p" <<<"$start"; } # intervals come twice, the second time in seconds
key=$(field key) retry=$(field retry) tick=$(field tick) deadline=$(field beat_deadline) ttl=$(field ttl)
me=r$(field replica)/$(field incarnation)/lease

# report writes an event with the instant at which it happened.
report() { echo "{\"unix_ns\":${EPOCHREALTIME/[.,]/}000,$1}" >&3; }

# pause waits, and sets order when there is one. The end of standard input is an order too: simrun has gone.
pause() {
	order=
	if read -r -t "$1" line; then
		case $line in *step-down*) order=step-down ;; *) order=stop ;; esac
	elif [ $? -le 128 ]; then
		order=stop
	fi
	[ -z "$order" ]
}

# ask runs a statement and sets answer. It gives up after a while: who gets no answer may have lost the lock long ago.
ask() {
	answer=
	printf '%s;\n\\echo .\n' "$1" 2>/dev/null >&9 || return 1
	while read -r -t "$deadline" line <&8; do
		[ "$line" = . ] && return 0
		answer+=$line$'\n'
	done
	return 1
}

# acquire returns when the session holds the lock; it is false when there is an order, or the session is lost.
acquire() {
	while :; do
		report "\"kind\":\"attempt\",\"op\":\"begin\",\"session\":\"$session\""
		ask "SELECT pg_try_advisory_lock($key)" || answer=error
		case $answer in t*) answer=acquired ;; f*) answer=busy ;; esac
		report "\"kind\":\"attempt\",\"op\":\"end\",\"answer\":\"$answer\",\"session\":\"$session\""
		[ "$answer" = acquired ] && return 0
		[ "$answer" = busy ] && pause "$retry" || return 1
	done
}

# work publishes what is due. Publishing a row is a line in the ledger, in the same transaction.
work() {
	ask "SELECT id, schedule_no FROM data_rows WHERE status = 'scheduled' AND scheduled_publish_at <= now() ORDER BY 1 LIMIT 25" || return 1
	local due=$answer row unit what
	while IFS='|' read -r row unit; do
		[ -n "$row" ] || continue
		what="\"row\":$row,\"unit\":$unit,\"session\":\"$session\""
		report "\"kind\":\"effect\",\"op\":\"begin\",$what"
		if ! ask "WITH published AS (UPDATE data_rows SET status = 'published' WHERE id = $row AND status = 'scheduled' RETURNING *)
			INSERT INTO simrun.ledger (kind, role, key, row_id, unit) SELECT 'effect', 'publish', $key, id, schedule_no FROM published"; then
			report "\"kind\":\"effect\",\"op\":\"end\",\"outcome\":\"unknown\",$what" # the answer may have been lost, and not the commit
			return 1
		fi
		report "\"kind\":\"effect\",\"op\":\"end\",\"outcome\":\"done\",$what"
	done <<<"$due"
}

release() {
	report "\"kind\":\"unlock\",\"op\":\"begin\",\"session\":\"$session\""
	ask "SELECT pg_advisory_unlock($key)" || answer=error
	case $answer in t*) answer=unlocked ;; f*) answer="not held" ;; esac
	report "\"kind\":\"unlock\",\"op\":\"end\",\"answer\":\"$answer\",\"session\":\"$session\""
}

echo '{"hello":1}' >&3
n=0
until [ "$order" = stop ]; do
	n=$((n + 1)) order=
	session=$me/$n
	# The address is in libpq's variables, put there by simrun; by its name the judges know whose session it is.
	coproc PSQL { PGAPPNAME=$session exec psql -XqAt -v ON_ERROR_STOP=1; }
	psql=$PSQL_PID
	exec 8<&"${PSQL[0]}" 9>&"${PSQL[1]}"
	# So that the server does not keep the lock for a client that is cut off.
	# A session that gave no answer is not used: the answer may yet come, and would be taken for that to the next question.
	if case $ttl in -*) ;; *) ask "SET idle_session_timeout = '${ttl}s'" ;; esac && acquire; then
		report "\"kind\":\"lead\",\"session\":\"$session\""
		while work && pause "$tick"; do :; done
		report '"kind":"end"'
		report '"kind":"idle"'
		[ -n "$order" ] && release
	fi
	kill -9 "$psql" 2>/dev/null # at once, whatever state it is in: with the session goes the lock
	wait "$psql" 2>/dev/null
	[ "$order" = stop ] || pause "$retry"
done
