package netfault

import (
	"bytes"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPass(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, server := b.connect()
	send(t, client, "ping")
	receive(t, server, "ping")
	send(t, server, "pong!")
	receive(t, client, "pong!")
	require.Equal(t, 1, b.Open())
	require.Zero(t, b.Over())
	eventually(t, "both counted", func() bool { u, d := b.Passed(); return u == 4 && d == 5 })

	client.Close()
	require.Equal(t, FIN, ended(t, server))
	eventually(t, "nothing open", func() bool { return b.Open() == 0 })
	require.Equal(t, 1, b.Over())
}

// An end arrives at the other side as it was made.
func TestEndsAreRelayed(t *testing.T) {
	t.Parallel()
	for _, how := range []How{FIN, RST} {
		for _, dir := range []Direction{Up, Down} {
			b := setup(t)
			from, to := b.connect()
			if dir == Down {
				from, to = to, from
			}
			send(t, from, "last words")
			receive(t, to, "last words")
			closeSocket(from, how)
			require.Equal(t, how, ended(t, to))
			eventually(t, "nothing open", func() bool { return b.Open() == 0 })
		}
	}
}

// A client that is found dead by writing to it: its end is held behind its bytes all the same, what the server goes on to
// send is thrown away, and the reset arrives as one, though the kernel reports it only once.
func TestDeadClientBehindAHold(t *testing.T) {
	t.Parallel()
	for _, serverLeaves := range []bool{false, true} {
		b := setup(t)
		b.Limit(1)
		client, server := b.connect()
		b.Set(Up, Hold)
		send(t, client, strings.Repeat("unread", 50_000))
		eventually(t, "the link reads no more", func() bool { u, _ := b.Held(); return u > 0 })
		closeSocket(client, RST)
		for range 100 { // does not wait for the client
			_, err := server.Write(make([]byte, 64<<10))
			require.NoError(t, err)
		}
		eventually(t, "thrown away", func() bool { _, d := b.Dropped(); return d > 60*64<<10 })
		if serverLeaves { // nobody is left to hold anything for
			b.Set(Both, Hold)
			require.NoError(t, server.CloseWrite())
			eventually(t, "nothing open", func() bool { return b.Open() == 0 })
			continue
		}
		require.Equal(t, 1, b.Open())
		b.Set(Up, Pass)
		require.Equal(t, RST, ended(t, server))
		eventually(t, "nothing open", func() bool { return b.Open() == 0 })
	}
}

func TestHold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, server := b.connect()
	b.Set(Both, Hold)
	send(t, client, "to the server")
	send(t, server, "to the client...")
	eventually(t, "bytes held", func() bool { u, d := b.Held(); return u == 13 && d == 16 })
	u, d := b.Passed()
	require.Zero(t, u+d)

	b.Set(Up, Pass) // one at a time
	receive(t, server, "to the server")
	u, d = b.Held()
	require.Zero(t, u)
	require.EqualValues(t, 16, d)
	b.Set(Down, Pass)
	receive(t, client, "to the client...")
}

// From the moment Set returns no byte passes, on a connection that was idle until then.
func TestSetTakesEffectAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, server := b.connect()
	for range 300 {
		before, _ := b.Passed()
		b.Set(Up, Hold)
		send(t, client, "x")
		eventually(t, "held", func() bool {
			held, _ := b.Held()
			now, _ := b.Passed()
			require.Equal(t, before, now, "a byte passed")
			return held == 1
		})
		b.Set(Up, Pass)
		receive(t, server, "x")
		eventually(t, "counted", func() bool { now, _ := b.Passed(); return now == before+1 })
	}
	for range 10 {
		b.established()
	}
	for i := range 100 {
		b.Set(Both, []Mode{Hold, Pass}[i%2])
		b.mu.Lock()
		all := b.obeyed(b.settings.version)
		b.mu.Unlock()
		require.True(t, all, "Set returned before all gates knew")
	}
}

// The end of a stream is held too: the server does not hear that the client has left.
func TestHoldKeepsTheEnd(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{Hold, Drop} {
		b := setup(t)
		client, server := b.connect()
		b.Set(Both, mode)
		client.Close()
		<-b.only().pipes[up].sourceEnded // the link has seen it
		require.Equal(t, 1, b.Open())
		b.Set(Both, mode) // a round through the gates
		nothingComes(t, server)
		b.Set(Both, Pass)
		require.Equal(t, FIN, ended(t, server))
	}
}

// What is held comes through whole, however much it is; the sender has to wait when the link is full.
func TestHoldIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Limit(64 << 10)
	client, server := b.connect()
	b.Set(Up, Hold)
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // 16 MiB, more than the kernel's buffers
	wrote := make(chan error, 1)
	go func() { _, err := client.Write(big); client.CloseWrite(); wrote <- err }()
	eventually(t, "limit reached", func() bool { u, _ := b.Held(); return u >= 64<<10 })
	b.Set(Up, Hold) // a round through the gates
	u, _ := b.Held()
	require.Less(t, u, int64(64<<10+32<<10))
	select {
	case <-wrote:
		t.Fatal("the sender was not made to wait")
	case <-time.After(50 * time.Millisecond):
	}
	b.Set(Up, Pass)
	server.SetReadDeadline(time.Now().Add(patience))
	got := make([]byte, len(big))
	_, err := io.ReadFull(server, got)
	require.NoError(t, err)
	require.NoError(t, <-wrote)
	require.True(t, bytes.Equal(big, got))
	require.Equal(t, FIN, ended(t, server))
}

func TestDrop(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, server := b.connect()
	untouched, untouchedServer := b.connect()
	b.Set(Down, Drop)
	send(t, client, "question")
	receive(t, server, "question")
	send(t, server, "answer")
	eventually(t, "answer dropped", func() bool { _, d := b.Dropped(); return d == 6 })
	require.Equal(t, 2, b.Open())
	nothingComes(t, client)

	b.Set(Down, Pass)
	require.Equal(t, FIN, ended(t, client))
	require.Equal(t, FIN, ended(t, server))
	send(t, untouchedServer, "whole")
	receive(t, untouched, "whole")
}

func TestDelay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, server := b.connect()
	b.Delay(Up, 30*time.Millisecond)
	start := time.Now()
	send(t, client, "late")
	receive(t, server, "late")
	require.GreaterOrEqual(t, time.Since(start), 30*time.Millisecond)

	b.Delay(Up, time.Hour)
	send(t, client, "not today")
	eventually(t, "bytes under way", func() bool { u, _ := b.Held(); return u == 9 })
	client.Close()
	b.Delay(Up, 0)
	receive(t, server, "not today")
	require.Equal(t, FIN, ended(t, server))
}

func TestSlow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, server := b.connect()
	b.Slow(Down, 10_000)
	start := time.Now()
	send(t, server, strings.Repeat("x", 2_000))
	receive(t, client, strings.Repeat("x", 2_000))
	// The first piece, a fiftieth of a second's worth, goes at once.
	require.GreaterOrEqual(t, time.Since(start), 180*time.Millisecond)

	b.Slow(Down, 1)
	send(t, server, "abcdef")
	receive(t, client, "a")
	b.Slow(Down, 0)
	receive(t, client, "bcdef")
}

func TestCut(t *testing.T) {
	t.Parallel()
	for _, how := range []How{FIN, RST} {
		b := setup(t)
		require.Zero(t, b.Cut(how))
		idle, idleServer := b.connect()
		held, heldServer := b.connect()
		b.Set(Both, Hold)
		send(t, held, "in the link")
		send(t, heldServer, "in the link")
		eventually(t, "bytes held", func() bool { u, d := b.Held(); return u == 11 && d == 11 })
		require.Equal(t, 2, b.Open())
		require.Equal(t, 2, b.Cut(how))
		require.Zero(t, b.Open())
		u, d := b.Held()
		require.Zero(t, u+d)
		for _, c := range []net.Conn{idle, idleServer, held, heldServer} {
			require.Equal(t, how, ended(t, c))
		}

		b.Set(Both, Pass)
		client, server := b.connect()
		send(t, client, "again")
		receive(t, server, "again")
	}
}

// A cut under full load in both directions, with peers that do not read, returns and leaves nothing behind.
func TestCutUnderLoad(t *testing.T) {
	t.Parallel()
	for _, how := range []How{FIN, RST} {
		b := setup(t)
		for range 2 {
			client, server := b.connect()
			for _, c := range []net.Conn{client, server} {
				go func() {
					for {
						if _, err := c.Write(make([]byte, 64<<10)); err != nil {
							return
						}
					}
				}()
			}
		}
		eventually(t, "the link is full", func() bool { u, d := b.Held(); return u >= 2*DefaultLimit && d >= 2*DefaultLimit })
		require.Equal(t, 2, b.Cut(how))
		require.Zero(t, b.Open())
	}
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, server := b.connect()
	require.NoError(t, b.Refuse(true))
	for range 3 {
		_, err := net.Dial("tcp", b.Addr())
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	}
	send(t, client, "still there")
	receive(t, server, "still there")
	require.NoError(t, b.Refuse(true))
	require.NoError(t, b.Refuse(false))
	again, againServer := b.connect()
	send(t, again, "back")
	receive(t, againServer, "back")
	require.Equal(t, 2, b.Open())
}

func TestDeadUpstream(t *testing.T) {
	t.Parallel()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	gone.Close()
	l, err := New("dead", gone.Addr().String())
	require.NoError(t, err)
	if c, err := net.Dial("tcp", l.Addr()); err != nil {
		require.ErrorIs(t, err, syscall.ECONNRESET) // faster than the client noticed that it was connected
	} else {
		defer c.Close()
		require.Equal(t, RST, ended(t, c))
	}
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	_, err = net.Dial("tcp", l.Addr())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// A server that does not answer the dial keeps neither Cut nor Close waiting, nor other clients.
func TestSilentUpstream(t *testing.T) {
	t.Parallel()
	addr := silentAddr(t)
	l, err := New("silent", addr)
	require.NoError(t, err)
	for range 2 {
		c, err := net.Dial("tcp", l.Addr())
		require.NoError(t, err)
		defer c.Close()
		eventually(t, "accepted", func() bool { return l.Open() == 1 })
		require.Equal(t, 1, l.Cut(RST))
		require.Equal(t, RST, ended(t, c))
	}
	c, err := net.Dial("tcp", l.Addr())
	require.NoError(t, err)
	defer c.Close()
	send(t, c, "hello")
	eventually(t, "accepted", func() bool { return l.Open() == 1 })
	require.NoError(t, l.Close())
	require.Equal(t, FIN, ended(t, c))
}

// The server does not hear of clients that come while the way is closed, and never of those that leave meanwhile.
func TestConnectIntoABlackHole(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Set(Both, Hold)
	impatient, patient := b.dial(), b.dial()
	send(t, impatient, "one")
	send(t, patient, "two")
	eventually(t, "bytes held", func() bool { u, _ := b.Held(); return u == 6 })
	require.Equal(t, 2, b.Open())
	require.Empty(t, b.accepted)
	impatient.Close()
	eventually(t, "one left", func() bool { return b.Open() == 1 })
	b.Set(Both, Pass)
	receive(t, b.accept(), "two")
	require.Empty(t, b.accepted)
}

// only is the link's one connection.
func (b *Link) only() *conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		return c
	}
	return nil
}

// nothingComes holds when the peer has neither sent nor ended anything; what has been sent over loopback is there.
func nothingComes(t *testing.T, c *net.TCPConn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	n, err := c.Read(make([]byte, 1))
	var timeout net.Error
	require.ErrorAs(t, err, &timeout, "read %d bytes", n)
	require.True(t, timeout.Timeout(), "%v", err)
}

// silentAddr is an address that does not answer: a listener whose queue is full drops what comes.
func silentAddr(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	t.Cleanup(func() { syscall.Close(fd) })
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, syscall.Listen(fd, 0))
	name, err := syscall.Getsockname(fd)
	require.NoError(t, err)
	addr := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*syscall.SockaddrInet4).Port}).String()
	for range 8 {
		c, err := net.DialTimeout("tcp", addr, 50*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Fatal("the queue does not fill")
	return ""
}
