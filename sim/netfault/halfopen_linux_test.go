package netfault

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func tcpInfo(t *testing.T, c *net.TCPConn) (info *unix.TCPInfo) {
	t.Helper()
	require.NoError(t, control(c, func(fd int) (err error) {
		info, err = unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		return err
	}))
	return info
}

// The server's kernel sends again and again and hears nothing, not even that the client has left.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, server := b.established()
	n, err := b.HalfOpen(true)
	require.NoError(t, err)
	require.Equal(t, 1, n)

	send(t, server, "are you there?")
	eventually(t, "the server's kernel sends again", func() bool { return tcpInfo(t, server).Retransmits >= 2 })
	require.NotZero(t, tcpInfo(t, server).Unacked)
	nothingComes(t, client)
	send(t, client, "yes")
	eventually(t, "held", func() bool { u, _ := b.Held(); return u == 3 })
	closeSocket(client, FIN)
	<-b.only().pipes[up].sourceEnded
	nothingComes(t, server)
	require.EqualValues(t, 1, tcpInfo(t, server).State, "ESTABLISHED")

	next, nextServer := b.connect() // new connections pass
	send(t, next, "new")
	receive(t, nextServer, "new")

	n, err = b.HalfOpen(false)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	receive(t, server, "yes")
	require.Equal(t, FIN, ended(t, server))
}

// A held link is another thing: its kernel answers for the client.
func TestHoldIsNotHalfOpen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, server := b.connect()
	b.Set(Both, Hold)
	send(t, server, "are you there?")
	eventually(t, "acknowledged", func() bool { return tcpInfo(t, server).Unacked == 0 })
}

// Nothing is lost when it heals and both sides are still there.
func TestHalfOpenHeals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, server := b.established()
	_, err := b.HalfOpen(true)
	require.NoError(t, err)
	send(t, server, "from the server")
	send(t, client, "from the client")
	eventually(t, "sent again", func() bool { return tcpInfo(t, server).Retransmits >= 1 })
	_, err = b.HalfOpen(false)
	require.NoError(t, err)
	receive(t, server, "from the client")
	receive(t, client, "from the server")
}

// The server gave up meanwhile. The client learns when it sends.
func TestHalfOpenAndTheServerGivesUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, server := b.established()
	_, err := b.HalfOpen(true)
	require.NoError(t, err)
	closeSocket(server, RST)
	nothingComes(t, client)
	_, err = b.HalfOpen(false)
	require.NoError(t, err)
	nothingComes(t, client)
	send(t, client, "hello?")
	require.Equal(t, RST, ended(t, client))
}

func TestHalfOpenIsCut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, server := b.established()
	b.Set(Up, Hold)
	undialled := b.dial()
	eventually(t, "accepted", func() bool { return b.Open() == 2 })
	n, err := b.HalfOpen(true)
	require.NoError(t, err)
	require.Equal(t, 1, n, "one has not reached the server")
	require.Equal(t, 2, b.Cut(RST))
	require.Equal(t, RST, ended(t, client))
	require.Equal(t, RST, ended(t, undialled))
	require.Equal(t, RST, ended(t, server))
	n, err = b.HalfOpen(false)
	require.NoError(t, err)
	require.Zero(t, n)
}

// The server's keepalives find a half-open connection dead, and a held one alive.
func TestKeepalivesTellHalfOpenFromHold(t *testing.T) {
	t.Parallel()
	half, held := setup(t), setup(t)
	_, deadServer := half.established()
	_, liveServer := held.established()
	for _, c := range []*net.TCPConn{deadServer, liveServer} {
		require.NoError(t, c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 1}))
	}
	_, err := half.HalfOpen(true)
	require.NoError(t, err)
	held.Set(Both, Hold)
	deadServer.SetReadDeadline(time.Now().Add(patience))
	_, err = deadServer.Read(make([]byte, 1))
	require.ErrorIs(t, err, unix.ETIMEDOUT)
	nothingComes(t, liveServer)
}

// Keepalives of the link's own would end half-open connections.
func TestNoKeepalives(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.established()
	for _, s := range []*net.TCPConn{b.only().client, b.only().server} {
		require.NoError(t, control(s, func(fd int) error {
			on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE)
			require.Zero(t, on)
			return err
		}))
	}
}
