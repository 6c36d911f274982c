package netfault

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func message(kind byte, body string) []byte {
	b := []byte{kind}
	if kind == 0 {
		b = nil
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)+4))
	return append(b, body...)
}

// Messages come out whole wherever the pieces of the stream begin and end.
func TestFramerFindsMessagesInAnyPieces(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type msg struct {
			kind byte
			body string
		}
		sent := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) msg {
			return msg{rapid.SampledFrom([]byte("QPBES")).Draw(t, "kind"), rapid.StringN(0, 20, 80).Draw(t, "body")}
		}), 1, 8).Draw(t, "messages")
		var wire []byte
		for _, m := range sent {
			wire = append(wire, message(m.kind, m.body)...)
		}
		f := framer{typed: true}
		var got []msg
		for len(wire) > 0 {
			piece := wire[:rapid.IntRange(1, len(wire)).Draw(t, "piece")]
			wire = wire[len(piece):]
			for len(piece) > 0 {
				n, whole, err := f.next(piece)
				if err != nil {
					t.Fatalf("a good stream was refused: %v", err)
				}
				if piece = piece[n:]; whole {
					got = append(got, msg{f.kind, string(f.body)})
				}
				if f.within() == whole {
					t.Fatalf("within is %v after a message that is whole: %v", f.within(), whole)
				}
			}
		}
		require.Equal(t, sent, got)
	})
}

func TestFramerKeepsTheFrontOfLongMessages(t *testing.T) {
	t.Parallel()
	f := framer{typed: true}
	wire := message('Q', string(make([]byte, 3*keepBody))+"tail")
	pieces := 0
	for len(wire) > 0 {
		n, whole, err := f.next(wire[:min(1000, len(wire))])
		require.NoError(t, err)
		wire = wire[n:]
		require.Equal(t, len(wire) == 0, whole)
		pieces++
	}
	require.Greater(t, pieces, 100)
	require.Len(t, f.body, keepBody)
}

func TestFramerRefusesWhatIsNotPostgres(t *testing.T) {
	t.Parallel()
	for _, b := range []string{"\x16\x03\x01\x02\x00", "GET / HTTP/1.1", "\x00\x00\x00\x03", "\x7f\xff\xff\xff"} {
		f := framer{}
		_, _, err := f.next([]byte(b))
		require.ErrorIs(t, err, errNotPostgres, "%q", b)
	}
	f := framer{typed: true}
	_, _, err := f.next([]byte("Q\xff\xff\xff\xff"))
	require.ErrorIs(t, err, errNotPostgres)
}
