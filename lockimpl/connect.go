package lockimpl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// ErrNoCancel is why a connection of ConnectOnce does not ask the server to cancel anything.
var ErrNoCancel = errors.New("a lease cancels nothing")

// ConnectOnce connects, and never opens another connection for this one. It is for Config.Connect.
//
// When a connection of pgx breaks, or is closed under a statement, pgx opens a second one and asks for that statement to be
// cancelled, by the way that has just been given up and for up to 15 s. A lease has no use for it: its statements are short and
// bounded on the server (StatementTimeout), and closing the socket ends the session. And it is not without risk: in reports of
// PgBouncer 1.18 and 1.19 the pooler ended as a whole beside cancel requests of clients that had gone (its issues 822, 847 and 904).
func ConnectOnce(ctx context.Context, cfg *pgx.ConnConfig) (*pgx.Conn, error) {
	cfg = cfg.Copy()
	dial := cfg.DialFunc
	var connected atomic.Bool
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if connected.Load() {
			return nil, ErrNoCancel
		}
		return dial(ctx, network, address)
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	connected.Store(true)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return conn, nil
}
