package pg

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-aafb3a99/simrun/sim"
)

//go:embed ledger.sql
var ledgerSQL string

// InstallLedger makes the schema simrun with the ledger in the connection's database, and has the bumps of lock_terms
// written to it if that table is there: call it after the migrations, and again if more come. The role must own the
// database (or be allowed to create schemas) and lock_terms.
//
// The callback that makes an effect writes, in the transaction of the effect,
//
//	INSERT INTO simrun.ledger(kind, role, key, row_id, unit, term) VALUES ('effect', $1, $2, $3, $4, $5)
//
// Transactions that write to the ledger commit one after the other.
func InstallLedger(ctx context.Context, conn *pgx.Conn) error {
	// One simple query is one transaction.
	if _, err := conn.PgConn().Exec(ctx, ledgerSQL).ReadAll(); err != nil {
		return fmt.Errorf("install the ledger: %w", err)
	}
	return nil
}

// ReadLedger reads what was committed, in commit order, as events whose At is an offset from start. Rows of
// transactions that are still open are not seen: read it after every session of the code under test has ended.
func ReadLedger(ctx context.Context, conn *pgx.Conn, start time.Time) ([]sim.Event, error) {
	rows, err := conn.Query(ctx, `SELECT kind, app, coalesce(role, ''), coalesce(key, 0), coalesce(row_id, 0), coalesce(unit, 0),
		coalesce(term, 0), token, at, position IS NOT NULL FROM simrun.ledger ORDER BY position`)
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	n := int64(0)
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (sim.Event, error) {
		n++
		e := sim.Event{Source: sim.FromLedger, Op: sim.OpCommit, Commit: n}
		var token *int64
		var at time.Time
		var numbered bool
		if err := row.Scan(&e.Kind, &e.Session, &e.Role, &e.Key, &e.Row, &e.Unit, &e.Term, &token, &at, &numbered); err != nil {
			return e, err
		}
		if e.Kind != sim.EvEffect && e.Kind != sim.EvTerm {
			return e, fmt.Errorf("row %d is neither effect nor term but %q", n, e.Kind)
		}
		if !numbered { // somebody switched the triggers off
			return e, fmt.Errorf("row %d has no place in the order of commits", n)
		}
		e.At = sim.Duration(at.Sub(start))
		e.Replica, e.Incarnation, _, _ = sim.ParseSession(e.Session)
		if token != nil {
			e.Token = strconv.FormatInt(*token, 10)
		}
		return e, nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	return events, nil
}
