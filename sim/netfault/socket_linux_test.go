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

// A refused port stays ours: nobody else can listen on it.
func TestRefuseKeepsThePort(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.Refuse(true))
	_, err := net.Listen("tcp", b.Addr())
	require.ErrorIs(t, err, syscall.EADDRINUSE)
}

// A FIN does not overtake what was sent before it, though the link closes a socket on which bytes came in that it never
// read: the kernel would make a reset of that.
func TestFINArrivesBehindAllBytes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, server := b.connect()
	require.NoError(t, client.SetReadBuffer(64<<10))
	b.Set(Up, Hold)
	b.Limit(1)
	send(t, client, strings.Repeat("unread", 50_000))
	eventually(t, "the link reads no more", func() bool { u, _ := b.Held(); return u > 0 })
	big := bytes.Repeat([]byte("row"), 500_000)
	_, err := server.Write(big)
	require.NoError(t, err)
	require.NoError(t, server.CloseWrite())
	eventually(t, "the link is done", func() bool { return b.Open() == 0 })
	client.SetReadDeadline(time.Now().Add(patience))
	got, err := io.ReadAll(client)
	require.NoError(t, err)
	require.True(t, bytes.Equal(big, got))
}
