package netfault

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-aafb3a99/simrun/internal/proc"
	"github.com/seed-aafb3a99/simrun/sim/pg"
)

// What the tests that need real servers start them in, and the Postgres they share.
var (
	servers  *proc.Run
	postgres *pg.Server
)

// The server is started before the tests, so that the goroutines that watch over it are not taken for leaks of theirs.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "25"); err != nil { // before the command line is read: it has the last word
		panic(err)
	}
	var err error
	if servers, err = proc.NewRun(); err == nil {
		postgres, err = pg.Start(context.Background(), pg.Options{Run: servers, Backend: pg.Local})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent(), goleak.Cleanup(func(code int) {
		if err := errors.Join(postgres.Stop(), servers.Close()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
		os.Exit(code)
	}))
}

// patience is how long a test waits for something that is bound to happen. It only delays a failure.
const patience = 20 * time.Second

// A bench is a link to a server of the test's own, which hands out the server's end of each connection.
type bench struct {
	*Link
	t        *testing.T
	accepted chan *net.TCPConn
}

func setup(t *testing.T) *bench {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b := &bench{t: t, accepted: make(chan *net.TCPConn, 100)}
	go func() {
		defer close(b.accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b.accepted <- c.(*net.TCPConn)
		}
	}()
	b.Link, err = New(t.Name(), l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, b.Close())
		require.Zero(t, b.Open())
		u, d := b.Held()
		require.Zero(t, u)
		require.Zero(t, d)
		l.Close()
		for c := range b.accepted {
			c.Close()
		}
	})
	return b
}

// connect opens a connection through the link and returns both ends of it.
func (b *bench) connect() (client, server *net.TCPConn) {
	b.t.Helper()
	client = b.dial()
	return client, b.accept()
}

// established is connect for a connection that the link, too, knows to be open on both sides.
func (b *bench) established() (client, server *net.TCPConn) {
	client, server = b.connect()
	send(b.t, client, "hello")
	receive(b.t, server, "hello")
	return client, server
}

func (b *bench) dial() *net.TCPConn {
	b.t.Helper()
	c, err := net.Dial("tcp", b.Addr())
	require.NoError(b.t, err)
	b.t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

func (b *bench) accept() *net.TCPConn {
	b.t.Helper()
	select {
	case c := <-b.accepted:
		b.t.Cleanup(func() { c.Close() })
		return c
	case <-time.After(patience):
		b.t.Fatal("no connection reached the server")
		return nil
	}
}

func send(t *testing.T, c net.Conn, s string) {
	t.Helper()
	_, err := io.WriteString(c, s)
	require.NoError(t, err)
}

// receive reads exactly the bytes of want.
func receive(t *testing.T, c net.Conn, want string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	got := make([]byte, len(want))
	n, err := io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, want, string(got[:n]))
}

// ended reads until the end and tells how the peer ended the connection.
func ended(t *testing.T, c net.Conn) How {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	_, err := io.Copy(io.Discard, c)
	switch {
	case err == nil:
		return FIN
	case errors.Is(err, syscall.ECONNRESET):
		return RST
	}
	t.Fatalf("the connection has not ended: %v", err)
	return 0
}

// eventually waits until a condition that is bound to hold does.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not reached: %s", what)
		}
	}
}
