package netfault

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// BenchmarkEcho is a round trip of 64 bytes, BenchmarkSelect one of `select 1` to a real Postgres. Each prints what it
// takes directly, and through a link and through a plain Toxiproxy as a multiple of that. The ways take turns, so that a
// busy machine slows all of them.
func BenchmarkEcho(b *testing.B) {
	addr := echoServer(b)
	compare(b, addr, func(addr string) func() error {
		c, err := net.Dial("tcp", addr)
		require.NoError(b, err)
		b.Cleanup(func() { c.Close() })
		buf := make([]byte, 64)
		return func() error {
			if _, err := c.Write(buf); err != nil {
				return err
			}
			_, err := io.ReadFull(c, buf)
			return err
		}
	})
}

func BenchmarkSelect(b *testing.B) {
	ctx := context.Background()
	p := pgSetup(b, pgx.QueryExecModeCacheStatement)
	compare(b, p.upstream, func(addr string) func() error {
		config := p.config.Copy()
		config.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
		conn, err := pgx.ConnectConfig(ctx, config)
		require.NoError(b, err)
		b.Cleanup(func() { conn.Close(ctx) })
		return func() error {
			var one int
			return conn.QueryRow(ctx, "select 1").Scan(&one)
		}
	})
}

func compare(b *testing.B, addr string, open func(addr string) func() error) {
	link, err := New("bench", addr)
	require.NoError(b, err)
	b.Cleanup(func() { link.Close() })
	plain := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "plain", "127.0.0.1:0", addr)
	require.NoError(b, plain.Start())
	b.Cleanup(plain.Stop)

	ways := []func() error{open(addr), open(link.Addr()), open(plain.Listen)}
	var took [3]time.Duration
	for b.Loop() {
		for i, way := range ways {
			start := time.Now()
			if err := way(); err != nil {
				b.Fatal(err)
			}
			took[i] += time.Since(start)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(took[0].Nanoseconds())/float64(b.N), "direct-ns")
	b.ReportMetric(float64(took[1])/float64(took[0]), "link/direct")
	b.ReportMetric(float64(took[2])/float64(took[0]), "toxiproxy/direct")
}
