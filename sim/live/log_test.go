package live

import (
	"bytes"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func dsnWith(password string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword("me", password), Host: "127.0.0.1:5432", Path: "/simrun_1", RawQuery: "sslmode=disable"}
	return u.String()
}

// A password is in no log and no sentence, in whichever form and pieces a program writes it.
func TestThePasswordIsNotLogged(t *testing.T) {
	t.Parallel()
	for _, password := range []string{"correct-horse", "a b&c/d+e", "p%25@:?#"} {
		var b bytes.Buffer
		dsn := dsnWith(password)
		l := newLifeLog(&b, "r1", dsn)
		said := "start line: " + dsn + "\npassword is " + password + "\nescaped " + url.QueryEscape(password) + " " + url.PathEscape(password) + "\n"
		for _, c := range []byte(said) {
			_, err := l.Write([]byte{c})
			require.NoError(t, err)
		}
		for _, form := range []string{password, url.QueryEscape(password), url.PathEscape(password)} {
			require.NotContains(t, b.String(), form)
			require.NotContains(t, l.tail(), form)
		}
		require.Equal(t, 5, strings.Count(b.String(), "(password)")+1, b.String())
		require.Contains(t, b.String(), "r1: start line: postgres://me:(password)@127.0.0.1:5432/")
	}
}

func TestTheLastLinesOfALog(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	l := newLifeLog(&b, "r1#2", dsnWith("x"))
	require.Equal(t, "; it wrote nothing", l.tail())
	_, _ = l.Write([]byte("one\ntwo\n\nthree\r\nfo"))
	_, _ = l.Write([]byte("ur\x1b[2J\nfive"))
	require.Equal(t, "; it wrote last: two | three | four\uFFFD[2J | five", l.tail())
	require.Equal(t, "r1#2: one\nr1#2: two\nr1#2: \nr1#2: three\nr1#2: four\x1b[2J\nr1#2: five\n", b.String())
}

// A program that fills its log fills no disk, and one that writes no line's end no memory.
func TestALogWithoutEnd(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	l := newLifeLog(&b, "r1", dsnWith("x"))
	chunk := bytes.Repeat([]byte("x"), 1<<16)
	for range maxLog/len(chunk) + 10 {
		n, err := l.Write(chunk)
		require.NoError(t, err)
		require.Equal(t, len(chunk), n, "a program does not notice")
		require.Less(t, len(l.part), maxLogLine)
	}
	require.Less(t, b.Len(), maxLog+maxLogLine)
	require.Contains(t, b.String(), "the rest is left out")
	_, _ = l.Write([]byte("\nthe end\n"))
	require.Contains(t, l.tail(), "the end")
}

// A program finds its database by libpq's variables as well, and nothing in its environment leads past the proxies.
func TestTheEnvironmentOfAProgram(t *testing.T) {
	t.Parallel()
	env := programEnv([]string{"PATH=/bin", "PGHOST=elsewhere", "PGSERVICE=mine", "SIMRUN_DSN=postgres://u:p@elsewhere/db", "LANG=C"}, dsnWith("a b"))
	require.Equal(t, []string{"PATH=/bin", "LANG=C", "PGHOST=127.0.0.1", "PGPORT=5432", "PGUSER=me", "PGDATABASE=simrun_1", "PGPASSWORD=a b", "PGSSLMODE=disable"}, env)
}
