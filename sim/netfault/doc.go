// Package netfault breaks and heals the network between one client and one server, at once, on idle connections too, and
// at exact statements of the Postgres protocol.
//
// A [Link] listens on a port of 127.0.0.1 and goes to one upstream address:
//
//	client ──TCP──> Link ──TCP──> server
//
//	                 up:   reader > noop > gate > writer
//	                 down: writer < gate < noop < reader      (all of it Toxiproxy's, but for the gate)
//
// # What it does, and what heals it
//
//	fault                        on open connections                       new connections                 healed by
//	Set(dir, Hold)               bytes and the end wait; nothing is lost   not dialled while Up is held    Set(dir, Pass)
//	Set(dir, Drop)               bytes are lost, the end waits             the same                        Set(dir, Pass): closed where bytes were lost
//	Delay(dir, d)                everything arrives d later                the same                        Delay(dir, 0)
//	Slow(dir, n)                 n bytes a second                          the same                        Slow(dir, 0)
//	Cut(FIN), Cut(RST)           closed on both sides                      pass                            nothing to heal
//	Refuse(true)                 stay                                      ECONNREFUSED                    Refuse(false)
//	HalfOpen(true)               the server hears nothing, nor its kernel  pass                            HalfOpen(false)
//	Trap(Before, pattern, n)     the request waits                         are counted too                 Release, or Cut of this one
//	Trap(After, pattern, n)      the answer waits, executed                are counted too                 Release, or Cut of this one
//	Close                        closed                                    refused                         for good
//
// The faults of a run are made of these: a black hole is Hold both ways; a network that lets through one way only is Hold
// of the other; a reply that is lost is a Trap After and Cut:
//
//	trap := link.Trap(netfault.After, "commit", 1)
//	if err := trap.Wait(ctx); err != nil { ... }  // the statement did not come
//	trap.Cut(netfault.RST)                        // committed, and the client will never know
//
// Modes, delays, rates and half-openness are independent of each other, and overlap. A connection goes by the settings of
// the moment a byte leaves, not of the moment it came.
//
// When a method returns, the fault is there: every gate goes by the new settings, sockets that were cut are closed and
// FIN or RST is sent, a port that refuses does. [Link.Open], [Link.Held], [Link.Passed], [Link.Dropped] and the results
// of Cut and HalfOpen are there to prove it.
//
// # How ends travel
//
// The end of a stream goes through the gate behind its bytes, and is held, delayed and kept like them: a server behind a
// held link does not hear that its client has closed the socket or died. When the end arrives, the other socket is closed
// the way the first one was, in order or by reset, and the connection is over, what was under way the other way included;
// half-closed connections are not kept, nobody who speaks to a database uses them.
//
// A client that connects while Up does not pass is connected as far as it can tell (the kernel does that), and the
// server is not dialled: it gets no session, and never hears of clients that give up before the heal. When the server
// cannot be dialled the client is reset, which is as near as can be to a refused connection.
//
// # Bounds
//
// Each direction of each connection keeps [DefaultLimit] bytes, or what [Link.Limit] says, and then stops reading: the
// sender's writes block as they do when a receiver does not read. Nothing is lost when it heals. Two things may go over the
// limit: the answer that a trap waits for, which has to be read to be known, and one read of 32 KiB.
//
// # What Toxiproxy does and what we do
//
// Toxiproxy v2.12.0 carries the bytes: its links, chunks, stubs and chain of toxics, one [Link] a proxy, with one toxic of
// our own a direction, the gate. The gate is there before the first connection and never removed or updated, because
// removing a toxic hangs when a client does not read, and stopping a proxy whose toxics hold bytes leaks goroutines. For
// the same reason there is no stock toxic: what latency, bandwidth, timeout and reset_peer do, or promise to, is modes of
// the gate: the timeout toxic lets FINs through and closes when removed, reset_peer makes a FIN on an open connection.
//
// The listener and the sockets are ours; connections are given to Toxiproxy by ToxicCollection.StartLink. Its own accept
// loop dials the server in line and without a limit, so that one server that does not answer blocks all other clients
// and Stop, for ever; and it keeps its sockets to itself. With the sockets in hand
//
//   - FIN and RST both work on one link, decided at the cut: SO_LINGER is set to 0 right before close. Through Toxiproxy
//     it has to be armed before the first client comes, and then every close is a reset, hence two proxies.
//   - sockets are closed after the goroutines have let go of them, so that Cut can promise that they are. Before a FIN,
//     what was received and not read is thrown away: the kernel would make a reset of it.
//   - the port is bound by a second socket that never listens, so that refusing cannot lose it to another process, and
//     connecting to it fails at once.
//   - a packet filter can be put on the server's socket. Searching /proc/self/fd for it, or a relay behind Toxiproxy,
//     would do that as well, by luck or for the price of another hop.
//
// Toxiproxy's global state (its registry of toxics, zerolog) is the business of toxiproxy.go alone.
//
// # Half open
//
// Hold is a black hole for programs, not for kernels: the link's acknowledges what the server sends and answers its
// keepalives. [Link.HalfOpen] puts a socket filter of one instruction (keep 0 bytes; SO_ATTACH_FILTER, no privilege needed)
// on the link's sockets towards the server, and holds what goes up. To the server that is a client whose host has lost its
// power: it sends again and again, its keepalives are not answered, and only its own timers end the session. Keepalives
// of the link's own are off, because they would do that by themselves.
//
// # Statements
//
// The gates read the Postgres protocol as it passes, version 3, in both directions: the messages that open a connection
// (encryption asked for and refused, cancel requests, the session's application_name), names of prepared statements and
// portals, simple queries, the extended protocol with Sync and Flush, pipelines and COPY. A request is what one
// ReadyForQuery answers; a [Trap] counts the requests that execute matching SQL. Statements that SQL itself prepares
// (PREPARE, EXECUTE) are known by the text of their EXECUTE. An encrypted connection cannot be read; [Link.Unreadable]
// counts those. Whatever is not Postgres passes as it is.
//
// # What it costs
//
// As a multiple of a direct connection, on two cores shared with others: a round trip of 64 bytes 2.2 to 2.8, a
// `select 1` 1.2 to 1.6, both within a tenth of what a plain Toxiproxy without toxics costs (go test -bench .).
package netfault
