// Package connect is how code under test reaches its database through a sim.Env: each connection has a session name of
// its own, is dialled the way the engine wants, and speaks the way the route can bear.
package connect

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/seed-aafb3a99/simrun/sim"
)

// Config is the configuration of one new connection for a use. Ask for a new one for each connection: its
// application_name is the session's name.
func Config(env *sim.Env, use string) (*pgx.ConnConfig, error) {
	cfg, err := base(env)
	if err != nil {
		return nil, err
	}
	name(env, use, cfg)
	return cfg, nil
}

// Connect opens one connection for a use.
func Connect(ctx context.Context, env *sim.Env, use string) (*pgx.Conn, error) {
	cfg, err := Config(env, use)
	if err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, cfg)
}

// PoolConfig is the configuration of a pool for a use. Each of its connections gets a session name of its own.
func PoolConfig(env *sim.Env, use string) (*pgxpool.Config, error) {
	pool, err := pgxpool.ParseConfig(env.DSN)
	if err != nil {
		return nil, hide(err)
	}
	cfg, err := base(env)
	if err != nil {
		return nil, err
	}
	pool.ConnConfig = cfg
	pool.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		name(env, use, c)
		return nil
	}
	return pool, nil
}

// DB is a database/sql pool for a use. Each of its connections gets a session name of its own.
func DB(env *sim.Env, use string) (*sql.DB, error) {
	cfg, err := base(env)
	if err != nil {
		return nil, err
	}
	return stdlib.OpenDB(*cfg, stdlib.OptionBeforeConnect(func(_ context.Context, c *pgx.ConnConfig) error {
		name(env, use, c)
		return nil
	})), nil
}

func base(env *sim.Env) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(env.DSN)
	if err != nil {
		return nil, hide(err)
	}
	// A pooler refuses startup parameters that it does not know, and they may have come from this process's environment.
	delete(cfg.RuntimeParams, "options")
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = env.Intervals.BeatDeadline.D()
	}
	if env.ExecMode != "" {
		mode, ok := modes[env.ExecMode]
		if !ok {
			return nil, fmt.Errorf("connect: %q is not a default_query_exec_mode of pgx", env.ExecMode)
		}
		cfg.DefaultQueryExecMode = mode
	}
	if env.Dial != nil {
		cfg.DialFunc = env.Dial
		// The engine knows the address as it stands in the DSN; a look-up would leave its world.
		cfg.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	}
	return cfg, nil
}

var modes = map[string]pgx.QueryExecMode{
	"cache_statement": pgx.QueryExecModeCacheStatement,
	"cache_describe":  pgx.QueryExecModeCacheDescribe,
	"describe_exec":   pgx.QueryExecModeDescribeExec,
	"exec":            pgx.QueryExecModeExec,
	"simple_protocol": pgx.QueryExecModeSimpleProtocol,
}

func name(env *sim.Env, use string, cfg *pgx.ConnConfig) {
	cfg.RuntimeParams["application_name"] = env.SessionName(use)
}

// hide keeps an address that cannot be parsed, and its password, out of logs: pgx quotes it.
func hide(err error) error {
	var parse *pgconn.ParseConfigError
	if errors.As(err, &parse) {
		return errors.New("connect: the address of the database cannot be parsed (it is not shown: it may hold a password)")
	}
	return fmt.Errorf("connect: %w", err)
}
