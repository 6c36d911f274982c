package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/sim"
)

const (
	localhost = "127.0.0.1"
	localUser = "simrun"
	// startPatience bounds the wait for a server to accept connections.
	startPatience = 30 * time.Second
	// recoveryPatience bounds it for a server that says that it is starting up.
	recoveryPatience = 5 * time.Minute
	// cannotConnectNow is the SQLSTATE of a server that starts up or shuts down.
	cannotConnectNow = "57P03"
	// room is what a cluster needs on disk, with some write-ahead log.
	room = 200 << 20
	// socketPathMax is how long the path of a Unix socket may be.
	socketPathMax = 107
)

// A cluster is a private server and its files.
type cluster struct {
	run      *proc.Run
	bin      binaries
	settings map[string]string
	durable  bool
	hba      string
	dir      string // data and sockets are below it
	data     string
	sockets  string
	port     int
	freePort func() (int, error)
	logPath  string
	log      *os.File

	changing sync.Mutex // held by what starts and stops it
	child    atomic.Pointer[proc.Child]
}

func (s *Server) startLocal(ctx context.Context, o Options) error {
	bin, err := findBinaries()
	if err != nil {
		return err
	}
	if o.Run == nil {
		return errors.New("start Postgres: Options.Run is missing")
	}
	if _, uid, _, _ := proc.Unprivileged(); uid == 0 {
		return &sim.EnvironmentError{Problem: "Postgres refuses to run as root, and there is no user postgres or nobody to run it as: create one, or start simrun as an ordinary user"}
	}
	c := &cluster{run: o.Run, bin: bin, settings: o.Settings, durable: o.Durable, hba: hba, freePort: proc.FreePort}
	if _, err := c.config(superuser); err != nil {
		return err
	}
	if err = c.prepare(ctx, o.LogDir); err == nil {
		err = c.launch(ctx)
	}
	if err != nil {
		return environment("Postgres could not be started", errors.Join(err, c.stop()))
	}
	s.local, s.host, s.port, s.user = c, localhost, c.port, localUser
	if err := s.initLocal(ctx); err != nil {
		return environment("Postgres could not be set up", errors.Join(err, s.Stop()))
	}
	return nil
}

// prepare makes the directories, the cluster's files and the log.
func (c *cluster) prepare(ctx context.Context, logDir string) (err error) {
	if err := checkRoom(c.run.Dir()); err != nil {
		return err
	}
	if c.dir, err = c.run.Mkdir("postgres-" + randomName()); err != nil {
		return err
	}
	c.data, c.sockets = filepath.Join(c.dir, "data"), filepath.Join(c.dir, "s")
	if longest := filepath.Join(c.sockets, ".s.PGSQL.65535"); len(longest) > socketPathMax {
		return &sim.EnvironmentError{Problem: fmt.Sprintf("the path %s is too long for a Unix socket: set TMPDIR to a directory with a shorter path", c.sockets)}
	}
	sockets, err := filepath.Rel(c.run.Dir(), c.sockets)
	if err != nil {
		return err
	}
	if _, err := c.run.Mkdir(sockets); err != nil {
		return err
	}
	if logDir == "" {
		logDir = c.dir
	}
	if err := os.MkdirAll(logDir, 0o755); err != nil {
		return logError(logDir, err)
	}
	c.logPath = filepath.Join(logDir, "postgres.log")
	// Opened here and handed down: the user whom Postgres runs as may have no right to write there.
	if c.log, err = os.OpenFile(c.logPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644); err != nil {
		return logError(logDir, err)
	}
	return makeCluster(ctx, c.run, c.bin, c.dir)
}

func logError(dir string, err error) error {
	return &sim.EnvironmentError{Problem: "the log of Postgres cannot be written in " + dir + ": choose another directory for the output", Err: err}
}

// launch starts the server on a free port, on another one when somebody took the port meanwhile.
func (c *cluster) launch(ctx context.Context) error {
	for try := 1; ; try++ {
		port, err := c.freePort()
		if err != nil {
			return err
		}
		c.port = port
		if err = c.start(ctx); err == nil || try == 5 || !proc.PortTaken(port) {
			return err
		}
	}
}

// start starts the server on its port and waits until it accepts connections.
func (c *cluster) start(ctx context.Context) error {
	for name, text := range map[string]string{"postgresql.conf": c.conf(), "pg_hba.conf": c.hba} {
		if err := c.run.WriteFile(filepath.Join(c.data, name), []byte(text)); err != nil {
			return err
		}
	}
	offset, err := c.log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	child, err := c.run.Start(proc.Spec{
		Name: "Postgres", Path: c.bin.path("postgres"), Args: []string{"-D", c.data},
		Env: serverEnv(), Dir: c.data, Stdout: c.log, Stderr: c.log, Unprivileged: true,
	})
	if err != nil {
		return err
	}
	c.child.Store(child)
	if err := c.ready(ctx, child); err != nil {
		if words := c.lastWords(offset); words != "" {
			err = fmt.Errorf("%w; the end of its log: %s", err, words)
		}
		return errors.Join(err, c.halt())
	}
	return nil
}

// ready waits until the server accepts connections. One that says that it is still replaying its log after a crash gets more time.
func (c *cluster) ready(ctx context.Context, child *proc.Child) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	patience := time.AfterFunc(startPatience, cancel)
	defer patience.Stop()
	cfg, err := c.config(superuser)
	if err != nil {
		return err
	}
	for limit := time.Now().Add(recoveryPatience); ; {
		conn, err := pgx.ConnectConfig(ctx, cfg)
		if err == nil {
			return conn.Close(ctx)
		}
		if hasCode(err, cannotConnectNow) && time.Now().Before(limit) {
			patience.Reset(startPatience)
		}
		select {
		case <-child.Done():
			return fmt.Errorf("the server ended (%v)", child.Err())
		case <-ctx.Done():
			return fmt.Errorf("the server does not accept connections: %w", err)
		case <-time.After(4 * time.Millisecond):
		}
	}
}

// lastWords are the last lines of the log from offset on.
func (c *cluster) lastWords(offset int64) string {
	f, err := os.Open(c.logPath)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.NewSectionReader(f, offset, 1<<16))
	return lastLines(string(b))
}

// config is for a connection as superuser, by the Unix socket.
func (c *cluster) config(database string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(fmt.Sprintf("host=%s port=%d user=%s dbname=%s sslmode=disable", c.sockets, c.port, superuser, superuser))
	if err != nil {
		return nil, &sim.EnvironmentError{Problem: "one of the environment variables PG... cannot be used: correct or unset it", Err: err}
	}
	cfg.Database = database
	cfg.RuntimeParams = map[string]string{} // nothing from the user's PGOPTIONS and the like
	cfg.ValidateConnect, cfg.AfterConnect = nil, nil
	return cfg, nil
}

// hba lets everybody in by the socket, whose directory only the server's user and root can enter. Over TCP, where every
// user of the machine can knock, it trusts only a role without rights outside its databases.
const hba = `local all all trust
host all ` + localUser + ` 127.0.0.1/32 trust
host all all all reject
`

// conf is the whole postgresql.conf. Nothing in it changes what a statement means; it makes a throwaway server quick and
// quiet.
func (c *cluster) conf() string {
	settings := map[string]string{
		"listen_addresses":        localhost,
		"port":                    fmt.Sprint(c.port),
		"unix_socket_directories": c.sockets,
		"unix_socket_permissions": "0700",
		"cluster_name":            "simrun",
		"max_connections":         "100",
		"shared_buffers":          "32MB",
		"huge_pages":              "off",
		// In the data directory, so that a killed server leaves nothing in /dev/shm.
		"dynamic_shared_memory_type": "mmap",
		// Whoever looks at pg_locks walks through these tables, and the code under test often does.
		"max_locks_per_transaction":      "20",
		"max_pred_locks_per_transaction": "10",
		// The order of commits, for whoever wants to compare it with the ledger's.
		"track_commit_timestamp": "on",
		// No work that starts by itself.
		"autovacuum":                      "off",
		"checkpoint_timeout":              "1d",
		"max_wal_size":                    "2GB",
		"jit":                             "off",
		"max_parallel_workers_per_gather": "0",
		"timezone":                        "UTC",
		"log_timezone":                    "UTC",
		"lc_messages":                     "C",
		"logging_collector":               "off",
		"log_destination":                 "stderr",
		"log_line_prefix":                 "%m [%p] %q%d %a ",
		"log_lock_waits":                  "on",
		"log_checkpoints":                 "off",
	}
	if !c.durable {
		// Never synchronous_commit=off: it would lose acknowledged commits when the server crashes, which the code
		// under test has a right not to see. Without fsync only a crash of the machine loses something.
		settings["fsync"] = "off"
		settings["full_page_writes"] = "off"
	}
	if c.bin.major >= 18 {
		settings["io_method"] = "sync" // no worker processes
	}
	maps.Copy(settings, c.settings)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	return b.String()
}

// serverEnv is the environment of Postgres' own programs: nothing of the user's PG... variables reaches them.
func serverEnv() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
}

// initLocal makes the role that the code under test connects as, and learns the version.
func (s *Server) initLocal(ctx context.Context) error {
	return s.admin.do(ctx, s, func(conn *pgx.Conn) error {
		if err := s.readVersion(ctx, conn); err != nil {
			return err
		}
		// It may look at all sessions and locks, as monitoring does, and has no other rights.
		_, err := conn.Exec(ctx, "CREATE ROLE "+localUser+" LOGIN IN ROLE pg_monitor")
		return err
	})
}

// stop ends the server and removes its files.
func (c *cluster) stop() error {
	c.changing.Lock()
	defer c.changing.Unlock()
	err := c.halt()
	if c.dir != "" {
		err = errors.Join(err, os.RemoveAll(c.dir))
	}
	if c.log != nil {
		c.log.Close()
		c.log = nil
	}
	return err
}

// halt ends the server at once: its files are about to be removed.
func (c *cluster) halt() error { return c.shutdown(unix.SIGQUIT, time.Second) }

// shutdown asks the server to end and kills it, and whatever it left, when it does not within the patience.
func (c *cluster) shutdown(sig syscall.Signal, patience time.Duration) error {
	child := c.child.Load()
	if child == nil {
		return nil
	}
	if err := child.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-child.Done():
	case <-t.C: // a backend that was stopped by a fault keeps the postmaster waiting
		if err := child.Kill(); err != nil {
			return err
		}
	}
	if err := c.run.KillWithin(c.data); err != nil {
		return err
	}
	c.child.Store(nil)
	// A killed server leaves it, and the next one would ask whether the pid in it lives.
	if err := os.Remove(filepath.Join(c.data, "postmaster.pid")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (c *cluster) restart(ctx context.Context, mode string) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	if c.child.Load() == nil {
		return errors.New("it was stopped")
	}
	var err error
	switch mode {
	case "fast":
		err = c.shutdown(unix.SIGINT, 20*time.Second)
	case "immediate":
		err = c.shutdown(unix.SIGQUIT, 10*time.Second)
	default:
		return fmt.Errorf("there is no such mode: use fast or immediate")
	}
	if err != nil {
		return err
	}
	return c.start(ctx)
}

// checkRoom says in a sentence when there is too little room for a cluster.
func checkRoom(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("ask for the free room in %s: %w", dir, err)
	}
	if free := st.Bavail * uint64(st.Bsize); free < room {
		return noRoom(dir, fmt.Errorf("only %d MB are free", free>>20))
	}
	return nil
}

func noRoom(dir string, err error) error {
	return &sim.EnvironmentError{
		Problem: fmt.Sprintf("there is no room for a Postgres server in %s, it needs %d MB: free some, or set TMPDIR to a directory with room", filepath.Dir(dir), room>>20),
		Err:     err,
	}
}

// environment makes an error into a *sim.EnvironmentError, if it is not one already.
func environment(problem string, err error) error {
	var env *sim.EnvironmentError
	if errors.As(err, &env) {
		return err
	}
	var cannot *proc.Error
	if errors.As(err, &cannot) {
		return &sim.EnvironmentError{Problem: cannot.Problem, Err: cannot.Err}
	}
	return &sim.EnvironmentError{Problem: problem, Err: err}
}
