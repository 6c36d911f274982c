package netfault

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"
)

// Whatever is done to a link in whatever order, and however much is under way: what heals loses nothing, what was cut has
// ended, and nothing is left over.
func TestAnyFaultsInAnyOrder(t *testing.T) {
	t.Parallel()
	echo := echoServer(t)
	rapid.Check(t, func(t *rapid.T) {
		l, err := New("chaos", echo)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			up, down := l.Held()
			if l.Open() != 0 || up != 0 || down != 0 {
				t.Fatalf("left over: %d connections, %d and %d bytes", l.Open(), up, down)
			}
		}()
		var cut atomic.Bool
		var clients errgroup.Group
		sizes := rapid.SliceOfN(rapid.IntRange(1, 200_000), 1, 3).Draw(t, "clients")
		for i, size := range sizes {
			clients.Go(func() error { return chat(l.Addr(), byte(i), size, &cut) })
		}

		dirs := rapid.SampledFrom([]Direction{Up, Down, Both})
		steps := map[string]func(*rapid.T){
			"hold": func(t *rapid.T) { l.Set(dirs.Draw(t, "dir"), Hold) },
			"pass": func(t *rapid.T) { l.Set(dirs.Draw(t, "dir"), Pass) },
			"delay": func(t *rapid.T) {
				l.Delay(dirs.Draw(t, "dir"), time.Duration(rapid.IntRange(0, 3).Draw(t, "ms"))*time.Millisecond)
			},
			"slow":  func(t *rapid.T) { l.Slow(dirs.Draw(t, "dir"), rapid.SampledFrom([]int64{0, 100, 1e6}).Draw(t, "rate")) },
			"limit": func(t *rapid.T) { l.Limit(rapid.SampledFrom([]int64{1, 1000, 1 << 20}).Draw(t, "bytes")) },
			"trap":  func(t *rapid.T) { l.Trap(Before, "x", 1).Release() },
			"refuse": func(t *rapid.T) {
				cut.Store(true) // for those that were still to be accepted
				if err := errors.Join(l.Refuse(true), l.Refuse(false)); err != nil {
					t.Fatal(err)
				}
			},
			"half-open": func(t *rapid.T) {
				if _, err := l.HalfOpen(rapid.Bool().Draw(t, "on")); err != nil {
					t.Fatal(err)
				}
			},
			"cut": func(t *rapid.T) {
				cut.Store(true)
				l.Cut(rapid.SampledFrom([]How{FIN, RST}).Draw(t, "how"))
			},
			"wait": func(t *rapid.T) { time.Sleep(time.Duration(rapid.IntRange(0, 2000).Draw(t, "us")) * time.Microsecond) },
		}
		t.Repeat(steps)

		l.Set(Both, Pass)
		l.Delay(Both, 0)
		l.Slow(Both, 0)
		if _, err := l.HalfOpen(false); err != nil {
			t.Fatal(err)
		}
		if err := clients.Wait(); err != nil {
			t.Fatal(err)
		}
	})
}

// chat sends bytes to an echo server, ten times, and expects them back. It may fail only when connections were cut or
// refused, which cut tells.
func chat(addr string, id byte, size int, cut *atomic.Bool) error {
	for round := range byte(10) {
		if err := exchange(addr, bytes.Repeat([]byte{id, round}, size/2+1)); err != nil && !cut.Load() {
			return fmt.Errorf("client %d, round %d: %w", id, round, err)
		}
	}
	return nil
}

func exchange(addr string, what []byte) error {
	c, err := dialUnlessRefused(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	var both errgroup.Group
	both.Go(func() error { _, err := c.Write(what); return err })
	got := make([]byte, len(what))
	_, err = io.ReadFull(c, got)
	if err := errors.Join(err, both.Wait()); err != nil {
		return err
	}
	if !bytes.Equal(what, got) {
		return errors.New("other bytes came back")
	}
	return nil
}

// dialUnlessRefused tries again for as long as the port is refused.
func dialUnlessRefused(addr string) (net.Conn, error) {
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil || time.Now().After(end) {
			return c, err
		}
	}
}

func echoServer(t testing.TB) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var conns errgroup.Group
	conns.Go(func() error {
		for {
			c, err := l.Accept()
			if err != nil {
				return nil
			}
			conns.Go(func() error {
				defer c.Close()
				io.Copy(c, onlyReader{c})
				return nil
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		conns.Wait()
	})
	return l.Addr().String()
}

// onlyReader keeps io.Copy from splicing the sockets in the kernel, which is nothing a database does.
type onlyReader struct{ io.Reader }
