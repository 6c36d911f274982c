package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/pgbouncer"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/live"
	"github.com/seed-aafb3a99/simrun/sim/pg"
)

// A world is all that a run starts outside itself: directories, servers, engines.
type world struct {
	run       *proc.Run
	pool      []executor
	postgres  string
	pgbouncer string
	backend   string
}

// newWorld starts n engines, each with a server of its own unless one was given.
func newWorld(ctx context.Context, f runFlags, out *outDir, n int) (_ *world, err error) {
	w := &world{pgbouncer: "not found"}
	if f.postgres != "dsn" {
		forgetPG()
	}
	if w.run, err = proc.NewRun(); err != nil {
		return nil, &sim.EnvironmentError{Problem: "no private directory for this run", Err: err}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if v, err := pgbouncer.Installed(); err == nil {
		w.pgbouncer = v
	}
	for i := range n {
		x, err := w.executor(ctx, f, out, fmt.Sprintf("worker%d", i+1), i+1)
		if err != nil {
			return nil, err
		}
		w.pool = append(w.pool, x)
	}
	return w, nil
}

// forgetPG keeps a user's PGOPTIONS, PGSERVICE and their like away from a server that is ours: libpq's variables are about the
// user's own servers, and every driver in every replica would obey them.
func forgetPG() {
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "PG") {
			os.Unsetenv(name)
		}
	}
}

// executor starts one engine, the number-th, whose logs go to a folder of that name.
func (w *world) executor(ctx context.Context, f runFlags, out *outDir, name string, number int) (executor, error) {
	logs := filepath.Join(out.logs(), name)
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, &sim.EnvironmentError{Problem: "the folder for logs cannot be made", Err: err}
	}
	if f.engine == "virtual" {
		x, err := newRemote(ctx, w.run, workerSetup{Postgres: f.postgres, Logs: logs})
		if err != nil {
			return nil, err
		}
		w.postgres, w.backend = x.postgres, x.backend
		return x, nil
	}
	server, err := pg.Start(ctx, pg.Options{Run: w.run, Backend: f.postgres, DSN: os.Getenv("SIMRUN_DSN"), LogDir: logs})
	if err != nil {
		return nil, err
	}
	w.postgres, w.backend = server.Version(), server.Backend()
	engine, err := live.New(ctx, live.Config{Run: w.run, Server: server, TimeScale: f.timeScale, LogDir: logs})
	if err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return &local{engine: engine, lookup: implementation, end: server.Stop}, nil
}

// close ends everything, whatever fails on the way.
func (w *world) close() error {
	var errs []error
	for _, x := range w.pool {
		errs = append(errs, x.close())
	}
	return errors.Join(append(errs, w.run.Close())...)
}

// sayGiven says that a given server is used, to whoever has not asked for it.
func (w *world) sayGiven(to io.Writer, asked string) {
	if asked == pg.Auto && w.backend == pg.DSN {
		fmt.Fprintln(to, "this is the server of SIMRUN_DSN, which is set: --postgres local starts one for this run")
	}
}
