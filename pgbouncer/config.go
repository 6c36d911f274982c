package pgbouncer

import (
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

type account struct{ user, password string }

func newAdmin() account { return account{"simrun_console", randomText()} }

func randomText() string { return strings.ToLower(rand.Text()) }

func (p *Pooler) configPath() string { return filepath.Join(p.dir, "pgbouncer.ini") }
func (p *Pooler) usersPath() string  { return filepath.Join(p.dir, "userlist.txt") }

// configure writes its files, readable only for the user it runs as.
func (p *Pooler) configure(o Options) error {
	users := ""
	for _, a := range []account{p.admin, {o.User, o.Password}} {
		users += quoted(a.user) + " " + quoted(a.password) + "\n"
	}
	if err := o.Run.WriteFile(p.usersPath(), []byte(users)); err != nil {
		return err
	}
	return o.Run.WriteFile(p.configPath(), []byte(p.ini(o)))
}

// ini is its configuration. What matters to the code under test is PgBouncer's default unless Options say otherwise.
func (p *Pooler) ini(o Options) string {
	settings := map[string]string{
		"listen_addr":        localhost,
		"listen_port":        fmt.Sprint(p.port),
		"unix_socket_dir":    "",
		"auth_file":          p.usersPath(),
		"auth_type":          "trust",
		"admin_users":        p.admin.user,
		"pool_mode":          o.Mode,
		"default_pool_size":  fmt.Sprint(o.PoolSize),
		"server_round_robin": "0",
		"max_client_conn":    "500",
		// The default is 15 s: after a restart of Postgres it would refuse everybody for so long, and all a failover
		// would show is this number.
		"server_login_retry": "0.1",
	}
	if o.RoundRobin {
		settings["server_round_robin"] = "1"
	}
	if o.Password != "" {
		// The list holds the password itself, which serves whatever the server behind asks for.
		settings["auth_type"] = "md5"
	}
	maps.Copy(settings, o.Settings)
	var b strings.Builder
	fmt.Fprintf(&b, "[databases]\n* = host='%s' port=%d\n\n[pgbouncer]\n", strings.ReplaceAll(o.Host, "'", "''"), o.Port)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s = %s\n", name, settings[name])
	}
	return b.String()
}

// quoted is a word of userlist.txt.
func quoted(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

// lastWords are the last lines of the log from offset on.
func (p *Pooler) lastWords(offset int64) string {
	f, err := os.Open(p.logPath)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.NewSectionReader(f, offset, 1<<16))
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}
