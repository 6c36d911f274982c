package virtual

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed-aafb3a99/simrun/pgbouncer"
	"github.com/seed-aafb3a99/simrun/sim"
)

// A poolerState is a PgBouncer of the engine's, and what the engine asks its console.
//
// Sessions behind it are found by application_name: the pids it tells are its own invention. A step is over when the
// server session it ran in is idle again and linked to nobody, or waits for a lock.
type poolerState struct {
	eng     *Engine
	p       *pgbouncer.Pooler
	opts    pgbouncer.Options
	console *link // for SHOW
	dirty   bool  // it was reloaded in a run
}

const aDay = "86400"

// enterRoute starts the route's pooler, or makes the one there forget the last run: which server session a client gets
// depends on what the pool went through before.
func (e *Engine) enterRoute(ctx context.Context, run sim.Run) error {
	e.pool = nil
	if !run.Route.Pooled() {
		if !e.db.pooled {
			return nil
		}
		e.db.pooled = false
		return e.forget(ctx) // a lock stranded in the pool would keep anybody from leading on the direct route
	}
	e.db.pooled = true
	host, port := e.server.HostPort()
	o := pgbouncer.Options{
		Run: e.run, Mode: run.Route.PoolMode(), PoolSize: run.Scenario.Pool.Size, RoundRobin: run.Scenario.Pool.RoundRobin,
		Host: host, Port: port, User: e.server.User(), Password: e.server.Password(), LogDir: e.cfg.LogDir,
		Settings: map[string]string{
			"stats_users": e.server.User(),
			// These count real time, of which a run takes more or less: a server session that has been idle for half a minute
			// is tested before it is used again, and so takes another place in the pool.
			"server_check_delay": aDay, "server_idle_timeout": "0", "server_lifetime": aDay,
		},
	}
	key := fmt.Sprintf("%s-%d-%t", o.Mode, o.PoolSize, o.RoundRobin)
	o.Name = "pgbouncer-" + key
	p := e.poolers[key]
	if p == nil {
		b, err := pgbouncer.Start(ctx, o)
		if err != nil {
			var u *pgbouncer.UnavailableError
			if errors.As(err, &u) {
				return &sim.EnvironmentError{Problem: u.Problem, Err: u.Err}
			}
			return fmt.Errorf("start PgBouncer: %w", err)
		}
		p = &poolerState{eng: e, p: b, opts: o}
		e.poolers[key] = p
	}
	e.pool = p
	if p.dirty {
		if err := p.p.Reload(ctx, o); err != nil {
			return err
		}
		p.dirty = false
	}
	return e.forget(ctx)
}

// forget ends every server session of the database's pools, those of other poolers too.
func (e *Engine) forget(ctx context.Context) error {
	name := e.db.name
	for _, p := range e.poolers {
		pools, err := p.show("SHOW POOLS")
		if err != nil {
			return err
		}
		for _, r := range pools {
			if r["database"] != name || r["sv_active"]+r["sv_idle"]+r["sv_used"]+r["sv_tested"]+r["sv_login"]+r["cl_active"]+r["cl_waiting"] == "0000000" {
				continue
			}
			for _, cmd := range []string{"KILL ", "RESUME "} {
				if _, err := p.p.Admin(ctx, cmd+name); err != nil {
					return fmt.Errorf("empty the pool: %w", err)
				}
			}
		}
	}
	for began := now(); ; nap(200 * time.Microsecond) {
		rows, err := e.ask("sessions")
		if err != nil {
			return err
		}
		left := 0
		for _, r := range rows {
			if !strings.HasPrefix(r[2], "simrun ") && r[2] != warmName {
				left++
			}
		}
		if left == 0 {
			return nil
		}
		if now()-began > patience {
			return errors.New("the pool's server sessions do not end")
		}
	}
}

// size is how many server sessions the pool may have.
func (p *poolerState) size() int {
	if p.opts.PoolSize == 0 {
		return 20
	}
	return p.opts.PoolSize
}

// free is how many server sessions of the database's pools are nobody's, or may still begin.
func (p *poolerState) free() (int, error) {
	pools, err := p.show("SHOW POOLS")
	if err != nil {
		return 0, err
	}
	n := p.size()
	for _, r := range pools {
		if r["database"] == p.eng.db.name {
			active, _ := strconv.Atoi(r["sv_active"])
			n -= active
		}
	}
	return n, nil
}

func (p *poolerState) address() string {
	host, port := p.p.HostPort()
	return net.JoinHostPort(host, strconv.Itoa(port))
}

func (p *poolerState) close() error {
	if p.console != nil {
		p.console.close()
	}
	return p.p.Stop()
}

// closePools is for when the database goes away.
func (e *Engine) closePools() {
	for key, p := range e.poolers {
		_ = p.close() // what is left of it dies with the run
		delete(e.poolers, key)
	}
	e.pool = nil
}

// show asks the console, by column name.
func (p *poolerState) show(cmd string) (rows []map[string]string, err error) {
	for try := 0; ; try++ {
		if p.console == nil {
			s := startup{head: []byte{0, 3, 0, 0}, params: []string{"user", p.opts.User, "database", "pgbouncer"}}
			if p.console, err = p.eng.openLink(p.address(), s, "simrun console"); err != nil {
				return nil, fmt.Errorf("connect to PgBouncer's console: %w", err)
			}
		}
		b, err := p.console.roundTrip(message('Q', cmd), 1)
		if err != nil {
			p.console.close()
			p.console = nil
			if try == 0 {
				continue // it was restarted
			}
			return nil, fmt.Errorf("PgBouncer's console, %s: %w", cmd, err)
		}
		return namedRows(b)
	}
}

func namedRows(b []byte) (rows []map[string]string, err error) {
	var cols []column
	for {
		t, body, rest, ok := nextMessage(b, false)
		if !ok {
			return rows, err
		}
		b = rest
		switch t {
		case 'T':
			cols = describe(body)
		case 'E':
			err = &serverError{field(body, 'C'), field(body, 'M')}
		case 'D':
			row := map[string]string{}
			for i, v := range columns(body) {
				if i < len(cols) {
					row[cols[i].name] = string(v)
				}
			}
			rows = append(rows, row)
		}
	}
}

// pooledWaits adds to what Postgres says those who wait for a server session of a full pool.
func (e *Engine) pooledWaits() (waits, error) {
	rows, err := e.ask("sessions")
	if err != nil {
		return nil, err
	}
	e.appNames = map[int]string{}
	for _, r := range rows {
		pid, _ := strconv.Atoi(r[0])
		e.appNames[pid] = r[2]
	}
	ws := e.waitsOf(rows)
	pools, err := e.pool.show("SHOW POOLS")
	if err != nil {
		return nil, err
	}
	for _, p := range pools {
		// A pool that is not full may be about to open a session, which shows in no column yet.
		if active, _ := strconv.Atoi(p["sv_active"]); p["database"] != e.db.name || p["cl_waiting"] == "0" || active < e.pool.size() {
			continue
		}
		clients, err := e.pool.show("SHOW CLIENTS")
		if err != nil {
			return nil, err
		}
		for _, c := range clients {
			if name := c["application_name"]; c["state"] == "waiting" && c["database"] == e.db.name {
				ws[name] = waiter{name: name, by: []int{0}}
			}
		}
	}
	return ws, nil
}

// pooledPID is the server process that works for g's session, or did last.
func (e *Engine) pooledPID(g *gate) int {
	if g.parked != 0 {
		return g.serverPID
	}
	rows, err := e.ask("sessions")
	if err != nil {
		return 0
	}
	for _, r := range rows {
		if r[2] == g.name {
			pid, _ := strconv.Atoi(r[0])
			return pid
		}
	}
	return 0
}

// pooledExists reports whether the session's client is still known to the pooler, or a server session is still busy on
// its behalf: with its statement, or with being reset.
func (e *Engine) pooledExists(name string) (bool, error) {
	why, err := e.pooledRemains(name)
	return why != "", err
}

// pooledRemains says what there still is of a session, "" when nothing is.
func (e *Engine) pooledRemains(name string) (why string, err error) {
	clients, err := e.pool.show("SHOW CLIENTS")
	if err != nil {
		return "", err
	}
	for _, c := range clients {
		if c["application_name"] == name {
			return "its client is " + c["state"], nil
		}
	}
	pools, err := e.pool.show("SHOW POOLS")
	if err != nil {
		return "", err
	}
	for _, p := range pools {
		if p["database"] == e.db.name && (p["sv_tested"] != "0" || p["sv_login"] != "0") {
			return p["sv_tested"] + " server sessions are being reset, " + p["sv_login"] + " begin", nil
		}
	}
	rows, err := e.ask("sessions")
	if err != nil {
		return "", err
	}
	for _, r := range rows {
		if r[2] == name && r[3] != "idle" {
			return "its server session is " + r[3], nil
		}
	}
	return "", nil
}

// awaitQuiet waits until what one session has told others has arrived where it goes: a notification behind a pooler that gives
// every transaction another session. There may be no client to hear of it; but until the server session has passed it on and the
// pooler has thrown it away, the next client of that session might. The server process has a signal pending until it begins to
// work on it, and then sleeps again; and the console answers after the pooler has read what came before.
func (w *world) awaitQuiet() {
	w.awaitRest(false)
	w.awaitPooler()
}

// awaitStopped waits until every session that a statement has ended is over, its locks are free and its last word is on its way,
// and until every statement that was cancelled has been answered.
func (w *world) awaitStopped() {
	for began := now(); w.err == nil; nap(50 * time.Microsecond) {
		// First that no signal is pending, and then what the server says: who has begun to end does not wait for its client any more,
		// nor for a lock.
		w.awaitRest(true)
		rows, err := w.eng.ask("moving")
		if err != nil {
			w.fail(err)
			return
		}
		rows = slices.DeleteFunc(rows, func(r []string) bool {
			pid, _ := strconv.Atoi(r[0])
			return w.eng.server.Owned() && processState(pid) == 'T' // it goes on when its turn comes; see freeze
		})
		if len(rows) == 0 {
			break
		}
		if now()-began > patience {
			w.fail(fmt.Errorf("a server process that was told to end, or to give up its statement, does not"))
		}
	}
	w.awaitPooler()
}

// awaitPooler waits until the pooler has read what came before.
func (w *world) awaitPooler() {
	if w.eng.pool != nil {
		_, err := w.eng.pool.show("SHOW VERSION")
		w.fail(err)
	}
}

// awaitRest waits until no server process of an idle session, or of any, has a signal to work on.
func (w *world) awaitRest(busy bool) {
	if !w.eng.server.Owned() {
		nap(5 * time.Millisecond) // a process of another machine cannot be looked at
		return
	}
	rows, err := w.eng.ask("sessions")
	if err != nil {
		w.fail(err)
		return
	}
	for _, r := range rows {
		if !busy && !strings.HasPrefix(r[3], "idle") || strings.HasPrefix(r[2], "simrun ") {
			continue
		}
		for began := now(); !atRest(r[0]) && now()-began < time.Second; {
			nap(50 * time.Microsecond)
		}
	}
}

// atRest reports whether a process of ours sleeps and has no signal pending, or has been stopped, or is gone.
func atRest(pid string) bool {
	state, pending := signals(pid)
	return state == 0 || state == 'T' || state == 'S' && pending == 0
}

// signalled reports whether one of these signals is pending.
func signalled(pid int, sigs ...syscall.Signal) bool {
	_, pending := signals(itoa(pid))
	return slices.ContainsFunc(sigs, func(s syscall.Signal) bool { return pending&(1<<(s-1)) != 0 })
}

// signals are the state of a process, as in /proc/PID/stat, and the set of its pending signals. The state of one that is gone is 0.
func signals(pid string) (state byte, pending uint64) {
	b, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(b)) {
		switch key, v, _ := strings.Cut(line, ":"); key {
		case "State":
			state = strings.TrimSpace(v)[0]
		case "SigPnd", "ShdPnd":
			n, _ := strconv.ParseUint(strings.TrimSpace(v), 16, 64)
			pending |= n
		}
	}
	return state, pending
}
