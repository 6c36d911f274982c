package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/seed-aafb3a99/simrun/internal/probe"
	"github.com/spf13/cobra"
)

func probeCommand() *cobra.Command {
	var asJSON bool
	var wait time.Duration
	c := &cobra.Command{
		Use:   "probe [SERVICE]",
		Short: "Say whether a database's address is safe for a session lock: direct, or pooled by session, transaction or statement",
		Long: `Say whether the address in SIMRUN_DSN, or a service of pg_service.conf, is safe for a session lock, and what stands in between: nothing, or a
pooler that pools sessions, transactions or statements. Give it the very address, user and database that the lock's holder uses.

It is made for production: two short connections that create nothing, take no lock, set nothing and end nobody's session. What it must leave for a
moment, a LISTEN on a channel of random name, it takes back. Behind a statement pooler the pooler gives up one server connection over it, and
only one that holds no lock, listener, cursor, prepared statement or temporary table of anybody.

Exit status: 0 stable, 1 unstable, 2 inconclusive, 6 unreachable. A password on the command line is refused.`,
		Example: `  SIMRUN_DSN=postgres://app@db.example:6432/app simrun probe
  simrun probe production --json        the service [production] of ~/.pg_service.conf`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("name one service, or none to use SIMRUN_DSN")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if wait < 50*time.Millisecond || wait > time.Minute {
				return usagef("--wait must be from 50ms to 1m")
			}
			cfg, err := probeAddress(args)
			if err != nil {
				return err
			}
			return runProbe(cmd.Context(), cmd.OutOrStdout(), cfg, wait, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	c.Flags().DurationVar(&wait, "wait", 3*time.Second, "how long to wait for each answer, and for a notification that may not come")
	return c
}

// probeAddress is where to connect. Errors do not quote what may hold a password.
func probeAddress(args []string) (*pgx.ConnConfig, error) {
	if len(args) == 0 {
		dsn := os.Getenv("SIMRUN_DSN")
		if dsn == "" {
			return nil, usagef("there is no address: put it in SIMRUN_DSN, or name a service of pg_service.conf")
		}
		cfg, err := pgx.ParseConfig(dsn)
		if err != nil {
			return nil, usagef("SIMRUN_DSN is no address of a Postgres server, or names a service or file that is not there: write postgres://user@host:5432/database")
		}
		return cfg, nil
	}
	service := args[0]
	if strings.ContainsAny(service, "=@/: '\\") {
		return nil, usagef("an address is not taken on the command line, where everybody could read its password: put it in SIMRUN_DSN, or name a service of pg_service.conf")
	}
	cfg, err := pgx.ParseConfig("service=" + service)
	if err != nil {
		return nil, usagef("there is no usable service %q in %s", service, cmp.Or(os.Getenv("PGSERVICEFILE"), "~/.pg_service.conf"))
	}
	return cfg, nil
}

// probed is what probe --json prints.
type probed struct {
	*probe.Finding
	Host     string `json:"host"`
	Port     uint16 `json:"port"`
	Database string `json:"database"`
	User     string `json:"user"`
}

func runProbe(ctx context.Context, w io.Writer, cfg *pgx.ConnConfig, wait time.Duration, asJSON bool) error {
	f := probe.Run(ctx, cfg, wait)
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		if err := enc.Encode(probed{f, cfg.Host, cfg.Port, cmp.Or(cfg.Database, cfg.User), cfg.User}); err != nil {
			return fmt.Errorf("print the finding: %w", err)
		}
	} else {
		printFinding(w, cfg, f)
	}
	status := map[probe.Verdict]int{probe.Stable: exitOK, probe.Unstable: exitViolated, probe.Unreachable: exitEnvironment}
	if s, known := status[f.Verdict]; !known {
		return statusError{exitInconclusive}
	} else if s != exitOK {
		return statusError{s}
	}
	return nil
}

func printFinding(w io.Writer, cfg *pgx.ConnConfig, f *probe.Finding) {
	what := map[probe.Verdict]string{
		probe.Stable:       "stable: a session keeps its backend, so a session lock may be trusted",
		probe.Unstable:     "unstable: a session does not keep its backend; a session lock protects nothing here",
		probe.Inconclusive: "inconclusive: whether a session keeps its backend could not be found out",
		probe.Unreachable:  "unreachable: nobody could be asked",
	}[f.Verdict]
	fmt.Fprintln(w, what)
	path := map[string]string{
		probe.Direct: "direct, no pooler", probe.Session: "session pooling", probe.Transaction: "transaction pooling", probe.Statement: "statement pooling",
	}[f.Pooling]
	at := fmt.Sprintf("%s:%d, database %s, user %s", cfg.Host, cfg.Port, cmp.Or(cfg.Database, cfg.User), cfg.User)
	if f.Server != "" {
		at += ", Postgres " + f.Server
	}
	fmt.Fprintf(w, "  path      %s\n  at        %s\n", cmp.Or(path, "not known"), at)
	for _, s := range f.Why {
		fmt.Fprintf(w, "  why       %s\n", s)
	}
	for _, s := range f.NotTold {
		fmt.Fprintf(w, "  not told  %s\n", s)
	}
	fmt.Fprintf(w, "  took      %.3fs\n", f.Seconds)
}
