package netfault

import (
	"fmt"
	"io"
	"strings"
	"sync"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// All contact with Toxiproxy v2.12.0 is in this file.
//
// Toxiproxy has global state, and this is the only place that touches it:
//
//   - The registry of toxics. A toxic can only be added by the name of a registered type, so ours is registered, once.
//   - zerolog's global logger. Only the stock bandwidth toxic writes to it (JSON on standard error); no link has one, and
//     the server below logs to nowhere. So the global level, which belongs to the whole process, is left alone.
//   - math/rand, which decides whether a toxic of some toxicity is used at all. With toxicity 1 the answer is always yes.
//   - Prometheus: the container below has a registry of its own and no collectors in it.

// gateType is our toxic's name in Toxiproxy's registry.
const gateType = "simrun_gate"

var registerGate = sync.OnceFunc(func() { toxics.Register(gateType, new(gateToxic)) })

// A gateToxic is the toxic of one direction of a link. It is there before the first connection and is never removed,
// updated or interrupted: those operations of Toxiproxy's hang when a client does not read, and leak goroutines.
type gateToxic struct{ starting *pipe }

// NewState is called once for each new connection, by the goroutine that starts its links; startLink says for which.
func (g *gateToxic) NewState() any { return g.starting }

// Pipe carries one direction of one connection until it is over.
func (g *gateToxic) Pipe(stub *toxics.ToxicStub) { stub.State.(*pipe).run(stub) }

// A chain is a Toxiproxy proxy with one gate a direction.
type chain struct {
	server *toxiproxy.ApiServer
	proxy  *toxiproxy.Proxy

	mu    sync.Mutex // guards starting of both gates
	gates [2]*gateToxic
}

var streams = [2]stream.Direction{up: stream.Upstream, down: stream.Downstream}

func newChain(name, listen, upstream string) (*chain, error) {
	registerGate()
	// This starts no HTTP server: that would take a call of Listen.
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	c := &chain{server: server, proxy: toxiproxy.NewProxy(server, name, listen, upstream)}
	for d, s := range streams {
		// JSON is the only way in; the gate has no attributes.
		toxic, err := c.proxy.Toxics.AddToxicJson(strings.NewReader(
			fmt.Sprintf(`{"name":"gate-%s","type":%q,"stream":%q,"toxicity":1}`, s, gateType, s)))
		if err != nil {
			return nil, fmt.Errorf("add the %s gate to proxy %s: %w", s, name, err)
		}
		c.gates[d] = toxic.Toxic.(*gateToxic)
	}
	return c, nil
}

// startLink lets Toxiproxy carry bytes from src through p to dst, in goroutines of its own. It closes dst when the
// stream is over, and calls nothing of src or dst after that.
func (c *chain) startLink(p *pipe, name string, src io.Reader, dst io.WriteCloser) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gates[p.dir].starting = p
	c.proxy.Toxics.StartLink(c.server, name, src, dst, streams[p.dir])
	c.gates[p.dir].starting = nil
}
