package pg

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Session is a client's session as the server sees it.
type Session struct {
	AppName string
	PID     uint32
	Start   time.Time // with PID it names the session for good: a pid may be given to another backend
	State   string    // active, idle, idle in transaction, ...
	Wait    string    // what it waits for, such as Lock/advisory; "" when it does not
}

// Sessions lists the client sessions in a database that this run made, the oldest first.
func (s *Server) Sessions(ctx context.Context, database string) (all []Session, err error) {
	err = s.admin.do(ctx, s, func(conn *pgx.Conn) error {
		all, err = sessions(ctx, conn, database)
		return err
	})
	return all, err
}

func sessions(ctx context.Context, conn *pgx.Conn, database string) ([]Session, error) {
	rows, err := conn.Query(ctx, `SELECT application_name, pid, backend_start, coalesce(state, ''),
			coalesce(wait_event_type || '/' || wait_event, '')
		FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend' AND pid <> pg_backend_pid()
		ORDER BY backend_start, pid`, database)
	if err != nil {
		return nil, fmt.Errorf("list the sessions of %s: %w", database, err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (v Session, err error) {
		return v, row.Scan(&v.AppName, &v.PID, &v.Start, &v.State, &v.Wait)
	})
	if err != nil {
		return nil, fmt.Errorf("list the sessions of %s: %w", database, err)
	}
	return all, nil
}

// TerminateSession ends all sessions of a name in a database that this run made. gone is true when there was one and the
// server shows no trace of any of them any more, neither the session nor a lock of it; it is false, with no error, when
// there was none.
func (s *Server) TerminateSession(ctx context.Context, database, appName string) (gone bool, err error) {
	if appName == "" || !s.owns(database) {
		return false, fmt.Errorf("end session %q in %q: only named sessions in this run's own databases are ended", appName, database)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err = s.admin.do(ctx, s, func(conn *pgx.Conn) error {
		gone, err = terminate(ctx, conn, database, appName)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("end session %s: %w", appName, err)
	}
	return gone, nil
}

func terminate(ctx context.Context, conn *pgx.Conn, database, appName string) (bool, error) {
	var pids []uint32
	var starts []time.Time
	err := conn.QueryRow(ctx, `WITH victims AS MATERIALIZED (
			SELECT pid, backend_start, pg_terminate_backend(pid) AS sent
			FROM pg_stat_activity WHERE datname = $1 AND application_name = $2 AND backend_type = 'client backend')
		SELECT coalesce(array_agg(pid), '{}'), coalesce(array_agg(backend_start), '{}') FROM victims`,
		database, appName).Scan(&pids, &starts)
	if err != nil || len(pids) == 0 {
		return false, err
	}
	for {
		var left bool
		// A backend lets go of its locks before it takes itself off the list, but both are looked at: this is the proof.
		err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity a
				JOIN unnest($1::int[], $2::timestamptz[]) v(pid, start) ON a.pid = v.pid AND a.backend_start = v.start)
			OR EXISTS (SELECT FROM pg_locks l WHERE l.pid = ANY ($1::int[])
				AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = l.pid))`, pids, starts).Scan(&left)
		if err != nil {
			return false, fmt.Errorf("see whether it is gone: %w", err)
		}
		if !left {
			return true, nil
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("it is still there: %w", ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// A Holder is the session that holds an advisory lock.
type Holder struct {
	Key     int64
	AppName string // "" when the server does not show it to us, or the session has none
	PID     uint32
	Start   time.Time
}

// holdersSQL reads a session-level or transaction-level lock on a 64-bit key: objsubid 1, as opposed to 2 for a pair of
// ints. A key in another database is another lock, hence the filter.
const holdersSQL = `SELECT (l.classid::bigint << 32) | l.objid::bigint, coalesce(a.application_name, ''), l.pid, coalesce(a.backend_start, 'epoch')
	FROM pg_locks l LEFT JOIN LATERAL pg_stat_get_activity(l.pid) a ON true
	WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted AND l.mode = 'ExclusiveLock'
	AND l.database = (SELECT oid FROM pg_database WHERE datname = $1)
	AND (l.classid::bigint << 32) | l.objid::bigint = ANY ($2::bigint[])
	ORDER BY 1, 3`

// Holders says who holds each of the advisory locks on keys in a database; a key that nobody holds is left out. The
// connection, to whichever database, must not be in a transaction: there the list of sessions is frozen at its first
// reading while the locks move on.
func Holders(ctx context.Context, conn *pgx.Conn, database string, keys ...int64) ([]Holder, error) {
	if conn.PgConn().TxStatus() != 'I' {
		return nil, errors.New("ask who holds a lock: the connection is in a transaction")
	}
	rows, err := conn.Query(ctx, holdersSQL, database, keys)
	if err != nil {
		return nil, fmt.Errorf("ask who holds a lock: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h Holder, err error) {
		return h, row.Scan(&h.Key, &h.AppName, &h.PID, &h.Start)
	})
	if err != nil {
		return nil, fmt.Errorf("ask who holds a lock: %w", err)
	}
	return all, nil
}
