// Package virtual is the deterministic engine: unmodified Go replicas in virtual time against a real Postgres.
//
// Replicas are goroutines in a testing/synctest bubble. Their connections are gates: what they write becomes a pending
// step; the stepper, the bubble's root goroutine, has one step after another carried out by the real server, in the
// order the plan decides, and lets virtual time jump when everybody waits. The same plan gives the same history.
//
//	replica --gate--> request --(plan's delay)--> stepper --link--> Postgres or PgBouncer
//	replica <--gate-- answer  <--(plan's delay)-- stepper <--link--
//
// Who is authoritative for what:
//
//   - The plan decides every delay, every tie and every fault. Nothing is drawn while a run goes on.
//   - The server decides every answer. A step is over when its answer has come, or when the server says that the
//     statement waits for a lock; a session's end is over when its backend has let go of everything.
//   - The bubble's clock is the only clock. Statements take no virtual time besides their delays.
//
// Rules of the code here: the stepper is the only goroutine that touches links, events and the history. A gate's mutex
// is never held while its holder blocks, since a goroutine that waits for a mutex stops virtual time. Sockets are used
// by plain blocking system calls: a goroutine in a system call is not durably blocked, so virtual time stands still
// meanwhile. A Go timer would be virtual, so real waiting is done by ppoll and nanosleep, and for what comes through a
// proxy in this very process by Go's poller (see hop.go).
//
// Where virtual time differs from the real thing:
//
//   - pause holds a replica's input, output and reports; its timers go on. What a process would do when it wakes up
//     late, the replica has prepared by then and does at the instant of its resumption. Under SIGSTOP a goroutine that
//     got its answer may run before the timer that cancels it; here the timer is first. The live engine shows that race.
//   - Connections are cut by closing the engine's own sockets; holding, delay and loss are the engine's too. Toxiproxy
//     stands on the way only where Config.Toxiproxy asks for it, and changes no history.
//   - Sessions on the direct route that are idle when they end are reset and kept (see session.go).
//   - A restart of the server or the pooler takes no virtual time; pg_sleep takes real time.
//   - Timers inside the server run on real time. The engine takes them over: it ends a silent session and cancels a
//     statement at the virtual instant (see timers.go).
//   - now(), clock_timestamp(), statement_timestamp() and transaction_timestamp() follow virtual time (see clock.go);
//     CURRENT_TIMESTAMP and its kin cannot, which is noted in the history.
//   - A mutex held across SQL while another goroutine wants it, or a goroutine that spins, stops virtual time for good.
//     A watchdog on real time reports it with stacks (HungError); the process is of no more use then.
package virtual
