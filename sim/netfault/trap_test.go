package netfault

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
)

// A dialogue speaks the protocol by hand, for what no driver can be made to do.
type dialogue struct {
	*bench
	client, server *net.TCPConn
	front          *pgproto3.Frontend
	back           *pgproto3.Backend
}

func talk(t *testing.T, b *bench) *dialogue {
	t.Helper()
	d := &dialogue{bench: b}
	d.client, d.server = b.connect()
	d.front = pgproto3.NewFrontend(d.client, d.client)
	d.back = pgproto3.NewBackend(d.server, d.server)
	return d
}

// open opens a session with an application_name.
func open(t *testing.T, b *bench, name string) *dialogue {
	t.Helper()
	d := talk(t, b)
	d.sends(t, &pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"application_name": name, "user": "u"}})
	m, err := d.back.ReceiveStartupMessage()
	require.NoError(t, err)
	require.IsType(t, &pgproto3.StartupMessage{}, m)
	d.answers(t, &pgproto3.AuthenticationOk{}, &pgproto3.ReadyForQuery{TxStatus: 'I'})
	d.hears(t, "R", "Z")
	return d
}

func (d *dialogue) sends(t *testing.T, ms ...pgproto3.FrontendMessage) {
	t.Helper()
	for _, m := range ms {
		d.front.Send(m)
	}
	require.NoError(t, d.front.Flush())
}

func (d *dialogue) answers(t *testing.T, ms ...pgproto3.BackendMessage) {
	t.Helper()
	for _, m := range ms {
		d.back.Send(m)
	}
	require.NoError(t, d.back.Flush())
}

// serves lets a request through and answers it.
func (d *dialogue) serves(t *testing.T, sql string) {
	t.Helper()
	d.sends(t, query(sql))
	require.Equal(t, sql, d.gets(t, 1)[0].(*pgproto3.Query).String)
	d.answers(t, done, ready)
	d.hears(t, "C", "Z")
}

// gets is what the server gets, hears what the client does: kinds of messages.
func (d *dialogue) gets(t *testing.T, n int) (got []pgproto3.FrontendMessage) {
	t.Helper()
	d.server.SetReadDeadline(time.Now().Add(patience))
	for range n {
		m, err := d.back.Receive()
		require.NoError(t, err)
		if q, ok := m.(*pgproto3.Query); ok { // the next call uses it again
			m = &pgproto3.Query{String: q.String}
		}
		got = append(got, m)
	}
	return got
}

func (d *dialogue) hears(t *testing.T, kinds ...string) {
	t.Helper()
	d.client.SetReadDeadline(time.Now().Add(patience))
	for _, kind := range kinds {
		m, err := d.front.Receive()
		require.NoError(t, err)
		b, err := m.Encode(nil)
		require.NoError(t, err)
		require.Equal(t, kind, string(b[:1]))
	}
}

var (
	done  = &pgproto3.CommandComplete{CommandTag: []byte("SELECT 0")}
	ready = &pgproto3.ReadyForQuery{TxStatus: 'I'}
	synch = &pgproto3.Sync{}
	flush = &pgproto3.Flush{}
)

func query(sql string) *pgproto3.Query { return &pgproto3.Query{String: sql} }

func sprung(t *testing.T, trap *Trap) {
	t.Helper()
	select {
	case <-trap.Done():
		require.True(t, trap.Sprung(), "the trap was missed")
	case <-time.After(patience):
		t.Fatal("the trap has not sprung")
	}
}

func missed(t *testing.T, trap *Trap) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.ErrorIs(t, trap.Wait(ctx), ErrMissed)
	require.False(t, trap.Sprung())
}

func waiting(t *testing.T, trap *Trap) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.False(t, isClosed(trap.Done()))
	require.ErrorIs(t, trap.Wait(ctx), context.Canceled)
}

func TestTrapBefore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d, other := open(t, b, "r1/1/lease/1"), open(t, b, "other")
	trap := b.Trap(Before, "commit", 2)
	d.serves(t, "COMMIT")
	d.serves(t, "select 1")
	waiting(t, trap)
	d.sends(t, query("CoMmIt -- again"))
	sprung(t, trap)
	sql, session := trap.Caught()
	require.Equal(t, "CoMmIt -- again", sql)
	require.Equal(t, "r1/1/lease/1", session)

	d.sends(t, query("behind it")) // waits too
	d.answers(t, &pgproto3.NoticeResponse{Message: "by the way"})
	d.hears(t, "N")
	other.serves(t, "commit")
	nothingComes(t, d.server)
	trap.Release()
	got := d.gets(t, 2)
	require.Equal(t, "CoMmIt -- again", got[0].(*pgproto3.Query).String)
	require.Equal(t, "behind it", got[1].(*pgproto3.Query).String)
	require.True(t, trap.Sprung())
	require.False(t, trap.Cut(RST), "it holds nothing any more")
	require.Equal(t, 2, b.Open())
}

func TestTrapAfter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := open(t, b, "")
	trap := b.Trap(After, "unlock", 1)
	d.serves(t, "select 1")
	d.sends(t, query("select pg_advisory_unlock(1)"))
	d.gets(t, 1)
	d.answers(t, done)
	eventually(t, "answer held", func() bool { _, down := b.Held(); return down > 0 })
	waiting(t, trap)
	d.answers(t, ready)
	sprung(t, trap)
	nothingComes(t, d.client)
	trap.Release()
	trap.Release()
	d.hears(t, "C", "Z")
	d.serves(t, "select pg_advisory_unlock(1)")
}

// Executed, and the client will never know.
func TestTrapCutsReply(t *testing.T) {
	t.Parallel()
	for _, how := range []How{FIN, RST} {
		b := setup(t)
		d := open(t, b, "")
		trap := b.Trap(After, "commit", 1)
		require.False(t, trap.Cut(how))
		missed(t, trap)
		trap = b.Trap(After, "commit", 1)
		d.sends(t, query("commit"))
		d.gets(t, 1)
		d.answers(t, done, ready)
		sprung(t, trap)
		require.True(t, trap.Cut(how))
		require.False(t, trap.Cut(how))
		require.Zero(t, b.Open())
		d.client.SetReadDeadline(time.Now().Add(patience))
		n, err := d.client.Read(make([]byte, 1))
		require.Zero(t, n)
		require.ErrorIs(t, err, map[How]error{FIN: io.EOF, RST: syscall.ECONNRESET}[how])
		require.Equal(t, how, ended(t, d.server))
	}
}

// Preparing is not executing; a name stands for what was last prepared under it.
func TestTrapKnowsPreparedStatements(t *testing.T) {
	t.Parallel()
	prepare := func(name, sql string) []pgproto3.FrontendMessage {
		return []pgproto3.FrontendMessage{&pgproto3.Parse{Name: name, Query: sql}, &pgproto3.Describe{ObjectType: 'S', Name: name}, synch}
	}
	execute := func(portal, name string) []pgproto3.FrontendMessage {
		return []pgproto3.FrontendMessage{&pgproto3.Bind{DestinationPortal: portal, PreparedStatement: name}, &pgproto3.Execute{Portal: portal}, synch}
	}
	for _, c := range []struct {
		name     string
		requests [][]pgproto3.FrontendMessage
		matches  []bool
	}{
		{"by name", [][]pgproto3.FrontendMessage{prepare("s", "COMMIT"), prepare("o", "select 1"), execute("", "o"), execute("", "s"), execute("p", "s")}, []bool{false, false, false, true, true}},
		{"unnamed", [][]pgproto3.FrontendMessage{prepare("", "COMMIT"), execute("", ""), prepare("", "select 1"), execute("", "")}, []bool{false, true, false, false}},
		{"in one", [][]pgproto3.FrontendMessage{slices.Concat(prepare("", "commit")[:1], execute("", ""))}, []bool{true}},
		{"closed", [][]pgproto3.FrontendMessage{prepare("s", "commit"), {&pgproto3.Close{ObjectType: 'S', Name: "s"}, synch}, execute("", "s")}, []bool{false, false, false}},
		{"portal closed", [][]pgproto3.FrontendMessage{prepare("s", "commit"), {&pgproto3.Bind{DestinationPortal: "p", PreparedStatement: "s"}, &pgproto3.Close{ObjectType: 'P', Name: "p"}, &pgproto3.Execute{Portal: "p"}, synch}}, []bool{false, false}},
		{"portal kept", [][]pgproto3.FrontendMessage{prepare("s", "commit"), {&pgproto3.Bind{DestinationPortal: "p", PreparedStatement: "s"}, synch}, prepare("s", "select 1"), {&pgproto3.Execute{Portal: "p"}, synch}}, []bool{false, false, false, true}},
		{"second of a batch", [][]pgproto3.FrontendMessage{slices.Concat(prepare("a", "insert")[:1], prepare("b", "commit")[:1], execute("", "a")[:2], execute("", "b"))}, []bool{true}},
		{"twice in a batch counts once", [][]pgproto3.FrontendMessage{slices.Concat(prepare("a", "commit")[:1], execute("", "a")[:2], execute("", "a"))}, []bool{true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			d := open(t, b, "")
			for i, request := range c.requests {
				trap := b.Trap(Before, "commit", 1)
				d.sends(t, request...)
				if c.matches[i] {
					sprung(t, trap)
					nothingComes(t, d.server)
				}
				if !c.matches[i] {
					d.gets(t, len(request))
				}
				require.Equal(t, c.matches[i], trap.Sprung(), "request %d", i)
				trap.Release()
				if c.matches[i] {
					d.gets(t, len(request))
				}
				d.answers(t, ready)
				d.hears(t, "Z")
			}
			second := b.Trap(Before, "commit", 2)
			for i, request := range c.requests {
				d.sends(t, request...)
				if c.matches[i] && slices.Index(c.matches, true) != i {
					sprung(t, second)
					second.Release()
				}
				d.gets(t, len(request))
				d.answers(t, ready)
				d.hears(t, "Z")
			}
			require.Equal(t, len(slices.DeleteFunc(slices.Clone(c.matches), func(m bool) bool { return !m })) > 1, second.Sprung())
			second.Release()
		})
	}
}

// While a trap is set nothing of a request is with the server before all of it is, but for what the client wants an
// answer to first.
func TestRequestsGoThroughWholeWhileATrapIsSet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := open(t, b, "")
	d.sends(t, &pgproto3.Parse{Query: "commit"})
	d.gets(t, 1)
	trap := b.Trap(Before, "nothing", 1)
	d.sends(t, &pgproto3.Bind{}, &pgproto3.Execute{})
	nothingComes(t, d.server)
	d.sends(t, flush)
	d.gets(t, 3)
	d.sends(t, &pgproto3.Bind{})
	nothingComes(t, d.server)
	d.sends(t, synch)
	d.gets(t, 2)
	half, _ := query("select 1").Encode(nil)
	send(t, d.client, string(half[:7]))
	nothingComes(t, d.server)
	trap.Release()
	receive(t, d.server, string(half[:7]))
}

func TestTrapInAPipeline(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := open(t, b, "")
	after, before := b.Trap(After, "two", 1), b.Trap(Before, "four", 1)
	d.sends(t, query("one"), query("two"), query("three"), query("four"), query("five"))
	d.gets(t, 3)
	sprung(t, before)
	nothingComes(t, d.server)
	d.answers(t, done, ready, done)
	d.hears(t, "C", "Z") // of one
	waiting(t, after)
	d.answers(t, ready)
	sprung(t, after)
	d.answers(t, done, ready) // of three: behind the answer that is held
	nothingComes(t, d.client)
	after.Release()
	d.hears(t, "C", "Z", "C", "Z")
	before.Release()
	d.gets(t, 2)
}

// Where the client wants an answer before it sends Sync, the answer of what it has sent so far is caught.
func TestTrapAfterAFlush(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := open(t, b, "")
	for _, last := range []pgproto3.BackendMessage{done, &pgproto3.PortalSuspended{}, &pgproto3.EmptyQueryResponse{}, &pgproto3.ErrorResponse{}} {
		trap := b.Trap(After, "second", 1)
		d.sends(t, &pgproto3.Parse{Query: "first"}, &pgproto3.Bind{}, &pgproto3.Execute{}, flush)
		d.gets(t, 4)
		d.answers(t, &pgproto3.ParseComplete{}, &pgproto3.BindComplete{}, done)
		d.hears(t, "1", "2", "C")
		d.sends(t, &pgproto3.Parse{Query: "second"}, &pgproto3.Bind{}, &pgproto3.Execute{}, flush)
		d.gets(t, 4)
		d.answers(t, &pgproto3.ParseComplete{})
		waiting(t, trap)
		d.answers(t, last)
		sprung(t, trap)
		nothingComes(t, d.client)
		trap.Release()
		b, err := last.Encode(nil)
		require.NoError(t, err)
		d.hears(t, "1", string(b[:1]))
		d.sends(t, synch)
		d.gets(t, 1)
		d.answers(t, ready)
		d.hears(t, "Z")
		d.serves(t, "in step again")
	}
}

// What stands between two Flushes is counted and caught by itself, once; an error answers all of it.
func TestTrapsBetweenFlushes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := open(t, b, "")
	execute := []pgproto3.FrontendMessage{&pgproto3.Parse{Query: "step"}, &pgproto3.Bind{}, &pgproto3.Execute{}}
	third := b.Trap(Before, "step", 3)
	for range 2 {
		trap := b.Trap(After, "step", 1)
		d.sends(t, append(slices.Clone(execute), flush)...)
		d.gets(t, 4)
		d.answers(t, done)
		sprung(t, trap)
		trap.Release()
		d.hears(t, "C")
	}
	d.sends(t, synch)
	d.gets(t, 1)
	d.answers(t, ready)
	d.hears(t, "Z")
	waiting(t, third)
	third.Release()

	trap := b.Trap(After, "step", 1)
	d.sends(t, slices.Concat(execute, execute, []pgproto3.FrontendMessage{flush})...)
	d.gets(t, 7)
	d.answers(t, &pgproto3.ErrorResponse{})
	sprung(t, trap)
	trap.Release()
	d.hears(t, "E")
}

func TestTrapsOnOneRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := open(t, b, "")
	traps := []*Trap{b.Trap(Before, "commit", 1), b.Trap(Before, "com", 1), b.Trap(After, "commit", 1), b.Trap(After, "mit", 1)}
	d.sends(t, query("commit"))
	sprung(t, traps[0])
	sprung(t, traps[1])
	traps[1].Release()
	nothingComes(t, d.server)
	traps[0].Release()
	d.gets(t, 1)
	d.answers(t, done, ready)
	sprung(t, traps[2])
	sprung(t, traps[3])
	traps[2].Release()
	nothingComes(t, d.client)
	traps[3].Release()
	d.hears(t, "C", "Z")
}

func TestTrapIsMissed(t *testing.T) {
	t.Parallel()
	t.Run("released", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		d := open(t, b, "")
		before, after := b.Trap(Before, "commit", 1), b.Trap(After, "commit", 1)
		before.Release()
		missed(t, before)
		d.sends(t, query("commit"))
		d.gets(t, 1)
		after.Release() // caught, but not answered yet
		missed(t, after)
		d.answers(t, done, ready)
		d.hears(t, "C", "Z")
	})
	t.Run("the server ends the session", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		d := open(t, b, "")
		trap := b.Trap(After, "commit", 1)
		d.sends(t, query("commit"))
		d.gets(t, 1)
		d.answers(t, &pgproto3.ErrorResponse{Severity: "FATAL", Code: "57P01"})
		closeSocket(d.server, FIN)
		missed(t, trap)
		d.hears(t, "E") // as it would without a trap
		require.Equal(t, FIN, ended(t, d.client))
	})
	t.Run("cut", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		d := open(t, b, "")
		b.Delay(Up, time.Hour)
		before, after := b.Trap(Before, "two", 1), b.Trap(After, "one", 1)
		d.sends(t, query("one"), query("two"))
		eventually(t, "both under way", func() bool { u, _ := b.Held(); return u == 18 })
		require.Equal(t, 1, b.Cut(RST))
		missed(t, before)
		missed(t, after)
	})
	t.Run("dropped", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		d := open(t, b, "")
		b.Delay(Up, time.Hour)
		trap := b.Trap(Before, "two", 1)
		d.sends(t, query("one"), query("two"))
		eventually(t, "both under way", func() bool { u, _ := b.Held(); return u == 18 })
		b.Set(Up, Drop)
		missed(t, trap)
	})
	t.Run("the link closes", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		trap := b.Trap(Before, "x", 1)
		require.NoError(t, b.Close())
		missed(t, trap)
		missed(t, b.Trap(Before, "x", 1))
	})
}

// A trap holds what it holds also beside the link's modes.
func TestTrapAndModes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := open(t, b, "")
	trap := b.Trap(Before, "commit", 1)
	b.Set(Up, Hold)
	d.sends(t, query("one"), query("commit"))
	eventually(t, "held", func() bool { u, _ := b.Held(); return u == 8+1+13-1 })
	waiting(t, trap)
	b.Set(Up, Pass)
	sprung(t, trap)
	require.Equal(t, "one", d.gets(t, 1)[0].(*pgproto3.Query).String)
	b.Set(Up, Hold)
	trap.Release()
	nothingComes(t, d.server)
	b.Set(Up, Pass)
	d.gets(t, 1)
}

// What is larger than the link keeps does not lock it up.
func TestTrapAndLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.Limit(1000)
	d := open(t, b, "")
	after := b.Trap(After, "select", 1)
	d.sends(t, query("select "+strings.Repeat("x", 200_000)))
	d.gets(t, 1)
	row := &pgproto3.DataRow{Values: [][]byte{make([]byte, 200_000)}}
	go d.answers(t, row, row, done, ready)
	sprung(t, after)
	nothingComes(t, d.client)
	after.Release()
	d.hears(t, "D", "D", "C", "Z")

	// A long request is held where the statement is known, and never executed.
	before := b.Trap(Before, "update", 1)
	bind := &pgproto3.Bind{Parameters: [][]byte{make([]byte, 200_000)}}
	d.sends(t, &pgproto3.Parse{Query: "update"}, bind, &pgproto3.Execute{}, synch)
	sprung(t, before)
	before.Release()
	d.gets(t, 4)
}

func TestTrapAroundCopy(t *testing.T) {
	t.Parallel()
	for sql, extended := range map[string]bool{"copy t FROM STDIN": false, "COPY t FROM STDIN": true, "/* a */ copy t FROM STDIN": true} {
		b := setup(t)
		d := open(t, b, "")
		trap := b.Trap(After, "copy", 1)
		defer b.Trap(After, "another", 1).Release()
		request := []pgproto3.FrontendMessage{query(sql)}
		if extended {
			request = []pgproto3.FrontendMessage{&pgproto3.Parse{Query: sql}, &pgproto3.Bind{}, &pgproto3.Execute{}, synch}
		}
		d.sends(t, request...)
		d.gets(t, len(request))
		d.answers(t, &pgproto3.CopyInResponse{})
		d.hears(t, "G")
		d.sends(t, &pgproto3.CopyData{Data: []byte("1\n")}, &pgproto3.CopyDone{})
		d.gets(t, 2)
		if extended { // the server has ignored the first one
			d.sends(t, synch)
			d.gets(t, 1)
		}
		d.answers(t, done)
		waiting(t, trap)
		d.answers(t, ready)
		sprung(t, trap)
		nothingComes(t, d.client)
		trap.Release()
		d.hears(t, "C", "Z")
		d.serves(t, "in step again")

		// Refused by the server.
		d.sends(t, query("COPY t FROM STDIN"))
		d.gets(t, 1)
		d.answers(t, &pgproto3.CopyInResponse{})
		d.hears(t, "G")
		d.answers(t, &pgproto3.ErrorResponse{Code: "23505"}, ready)
		d.hears(t, "E", "Z")
		trap = b.Trap(After, "step", 1)
		d.sends(t, &pgproto3.Parse{Query: "step"}, &pgproto3.Bind{}, &pgproto3.Execute{}, synch)
		d.gets(t, 4)
		d.answers(t, done, ready)
		sprung(t, trap)
		trap.Release()
	}
}

func TestOpeningMessages(t *testing.T) {
	t.Parallel()
	t.Run("encryption refused", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		d := talk(t, b)
		for _, ask := range []pgproto3.FrontendMessage{&pgproto3.GSSEncRequest{}, &pgproto3.SSLRequest{}} {
			d.sends(t, ask)
			_, err := d.back.ReceiveStartupMessage()
			require.NoError(t, err)
			send(t, d.server, "N")
			receive(t, d.client, "N")
		}
		d.sends(t, &pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": "u"}})
		_, err := d.back.ReceiveStartupMessage()
		require.NoError(t, err)
		d.answers(t, &pgproto3.AuthenticationCleartextPassword{})
		d.hears(t, "R")
		d.sends(t, &pgproto3.PasswordMessage{Password: "commit"})
		require.NoError(t, d.back.SetAuthType(pgproto3.AuthTypeCleartextPassword))
		d.gets(t, 1)
		d.answers(t, &pgproto3.AuthenticationOk{}, ready)
		d.hears(t, "R", "Z")
		require.Zero(t, b.Unreadable())
		trap := b.Trap(After, "commit", 1)
		d.sends(t, query("commit"))
		d.gets(t, 1)
		d.answers(t, done, ready)
		sprung(t, trap)
		trap.Release()
	})
	t.Run("encryption unknown", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		d := talk(t, b)
		d.sends(t, &pgproto3.SSLRequest{})
		_, err := d.back.ReceiveStartupMessage()
		require.NoError(t, err)
		d.answers(t, &pgproto3.ErrorResponse{})
		d.hears(t, "E")
		require.Zero(t, b.Unreadable())
	})
	for name, opening := range map[string]string{
		"cancel request": string(message(0, "\x04\xd2\x16\x2e\x00\x00\x00\x01\x00\x00\x00\x02")),
		"direct TLS":     "\x16\x03\x01\x02\x00",
		"another":        "GET / HTTP/1.1\r\n",
		"version 2":      string(message(0, "\x00\x02\x00\x00")),
		"too short":      string(message(0, "\x00\x03")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			client, server := b.connect()
			trap := b.Trap(Before, "x", 1)
			send(t, client, opening)
			receive(t, server, opening)
			require.Equal(t, 1, b.Unreadable())
			more := string(message('Q', "x\x00"))
			send(t, client, more)
			receive(t, server, more)
			send(t, server, "anything")
			receive(t, client, "anything")
			waiting(t, trap)
			trap.Release()
		})
	}
	t.Run("encrypted", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		d := talk(t, b)
		d.sends(t, &pgproto3.SSLRequest{})
		_, err := d.back.ReceiveStartupMessage()
		require.NoError(t, err)
		send(t, d.server, "S")
		receive(t, d.client, "S")
		require.Equal(t, 1, b.Unreadable())
		send(t, d.client, "Q garbage")
		receive(t, d.server, "Q garbage")
		send(t, d.server, "Z garbage")
		receive(t, d.client, "Z garbage")
	})
	t.Run("out of step", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		d := open(t, b, "")
		trap := b.Trap(After, "commit", 1)
		d.sends(t, query("commit"))
		d.gets(t, 1)
		send(t, d.server, "\x00\xff\xff\xff\xff and so on")
		receive(t, d.client, "\x00\xff\xff\xff\xff and so on")
		missed(t, trap)
		require.Equal(t, 1, b.Unreadable())
	})
}
