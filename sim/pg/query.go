package pg

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-aafb3a99/simrun/sim"
)

// ledgerColumns are what a ledger query may yield.
var ledgerColumns = []string{"kind", "app", "role", "key", "row_id", "unit", "term", "token", "at"}

// queryTime is how long a ledger query may take.
const queryTime = 30 * time.Second

// CheckLedgerQuery asks the server what a ledger query would yield, without running it. The error says in a sentence what is wrong.
func CheckLedgerQuery(ctx context.Context, conn *pgx.Conn, sql string) error {
	_, err := prepareLedgerQuery(ctx, conn, sql)
	return err
}

func prepareLedgerQuery(ctx context.Context, conn *pgx.Conn, sql string) (*pgconn.StatementDescription, error) {
	d, err := conn.Prepare(ctx, "", sql) // one statement, which is not run
	if err != nil {
		return nil, fmt.Errorf("the ledger query: %w", Located(err, "ledger", sql))
	}
	if len(d.ParamOIDs) > 0 {
		return nil, errors.New("the ledger query takes parameters ($1); it is given none")
	}
	var names []string
	for _, f := range d.Fields {
		name := f.Name
		switch {
		case !slices.Contains(ledgerColumns, name):
			return nil, fmt.Errorf("the ledger query yields a column %s; the ledger has %s", name, strings.Join(ledgerColumns, ", "))
		case slices.Contains(names, name):
			return nil, fmt.Errorf("the ledger query yields the column %s twice", name)
		case name == "at" && f.DataTypeOID != pgtype.TimestamptzOID:
			return nil, errors.New("the ledger query's column at is no timestamp with time zone: say in which zone it is, for example at AT TIME ZONE 'UTC'")
		}
		names = append(names, name)
	}
	for _, must := range []string{"row_id", "at"} {
		if !slices.Contains(names, must) {
			return nil, fmt.Errorf("the ledger query yields no column %s", must)
		}
	}
	return d, nil
}

// QueryLedger is ReadLedger for code that does not write to simrun.ledger: sql, a query over its own tables, yields columns of the ledger
// by their names, row by row in commit order. row_id and at must be there; a missing kind is effect, a missing unit 1. It is run once,
// in a transaction that can change nothing.
func QueryLedger(ctx context.Context, conn *pgx.Conn, sql string, start time.Time) (events []sim.Event, err error) {
	d, err := prepareLedgerQuery(ctx, conn, sql)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sql, pgx.QueryExecModeExec)
		if err != nil {
			return Located(err, "ledger", sql)
		}
		events, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (sim.Event, error) {
			return ledgerRow(row, d.Fields, start)
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the ledger query: %w", err)
	}
	for i := range events {
		events[i].Commit = int64(i + 1)
	}
	return events, nil
}

func ledgerRow(row pgx.CollectableRow, fields []pgconn.FieldDescription, start time.Time) (sim.Event, error) {
	var kind, app, role *string
	var key, id, unit, term, token *int64
	var at *time.Time
	into := map[string]any{"kind": &kind, "app": &app, "role": &role, "key": &key, "row_id": &id, "unit": &unit, "term": &term, "token": &token, "at": &at}
	var dest []any
	for _, f := range fields {
		dest = append(dest, into[f.Name])
	}
	e := sim.Event{Source: sim.FromLedger, Op: sim.OpCommit, Kind: sim.EvEffect, Unit: 1}
	if err := row.Scan(dest...); err != nil {
		return e, err
	}
	if kind != nil {
		e.Kind = sim.EventKind(*kind)
	}
	switch {
	case e.Kind != sim.EvEffect && e.Kind != sim.EvTerm:
		return e, fmt.Errorf("a row is neither effect nor term but %q", e.Kind)
	case at == nil:
		return e, errors.New("a row has no time (at is null)")
	case id == nil && e.Kind == sim.EvEffect:
		return e, errors.New("an effect has no row_id")
	}
	e.At = sim.Duration(at.Sub(start))
	e.Session, e.Role, e.Key, e.Row, e.Term = value(app), value(role), value(key), value(id), value(term)
	if unit != nil {
		e.Unit = *unit
	}
	if token != nil {
		e.Token = strconv.FormatInt(*token, 10)
	}
	e.Replica, e.Incarnation, _, _ = sim.ParseSession(e.Session)
	return e, nil
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Located is an error of the server's with the place in sql that it is about: file:line:column. Other errors are returned as they are.
func Located(err error, file, sql string) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return err
	}
	text := fmt.Sprintf("%s (SQLSTATE %s)", pgErr.Message, pgErr.Code)
	if pgErr.Hint != "" {
		text += "; " + pgErr.Hint
	}
	runes := []rune(sql)
	if pgErr.Position < 1 || int(pgErr.Position) > len(runes)+1 {
		return &locatedError{file + ": " + text, err}
	}
	before := string(runes[:pgErr.Position-1])
	line := strings.Count(before, "\n") + 1
	column := len([]rune(before[strings.LastIndexByte(before, '\n')+1:])) + 1
	return &locatedError{fmt.Sprintf("%s:%d:%d: %s", file, line, column, text), err}
}

// A locatedError says what the server said with the place in the user's file.
type locatedError struct {
	text string
	err  error
}

func (e *locatedError) Error() string { return e.text }

func (e *locatedError) Unwrap() error { return e.err }
