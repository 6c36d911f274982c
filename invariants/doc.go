// Package invariants judges histories. An invariant is a pure function of a history: it knows no engine, no database and no
// clock, so that a saved history can be judged again, by a later version, with the same answer.
//
// Who is authoritative for what:
//
//   - The ledger, for which effects and bumps were committed and in which order. That order needs no clock.
//   - The session's name, for whose effect it was. The name is given by the harness in the connection string; the term that
//     the code under test writes beside its effect is not believed, since a wrong program may write the current one.
//   - The replica, for what it believes (lead, beat, end) and what it is doing (attempt, probe, tick, effect).
//   - The engine, for life and death, pauses and faults: a killed or stopped process believes nothing, whatever it said last.
//   - The observer, for who holds the lock on the server.
//
// How a judge is fair in a live run: every instant is an interval (sim.Event, Earliest and Latest). What the harness stamped
// from outside, without an interval of its own, is widened by the allowance of the header. A bound is broken only if the
// smallest distance that the intervals allow breaks it; where the largest does and the smallest does not, failover is
// inconclusive. In a virtual run all instants are exact.
//
// How a verdict is reached (finding.verdict): a violation counts always; a history that was cut short, or in which the harness
// failed to carry out a fault, holds nothing; nothing examined is inconclusive; a judge that panics is inconclusive.
package invariants
