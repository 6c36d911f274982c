// Package lockimpl elects one leader among many processes with nothing but Postgres (14 or later), and fences what it does.
//
//	                 busy: next attempt one interval after the start of the last
//	                 +-------+
//	                 v       |
//	connect --> probe --> attempt --> begin a term --> lead --> end --> stop work --> unlock and close, or close
//	   ^          |          |              |            |                                     |
//	   +----------+----------+--------------+------------+-------------------------------------+
//	     unstable, inconclusive, error: close the socket, and try again after one interval
//
// Who is authoritative for what:
//
//   - The server's lock table says who may lead: a session-level advisory lock, which ends with its session. It
//     excludes nobody from acting who has not heard that his session has ended.
//   - The table lock_terms says which term is the current one. Each election begins a new term, in the session that holds the
//     lock, and every effect of a leader checks its term in its own transaction (Term.Tx): once a later term has begun, nothing
//     of an earlier one is committed. This is what makes it safe; everything else makes it quick.
//   - The local monotonic clock says until when a term may be trusted without asking: the start of the last good
//     heartbeat, plus interval and deadline. A process that wakes up late finds out by itself.
//   - The database's clock says what is due.
//
// Failure rules:
//
//   - No error ever makes a leader. A session is trusted with the lock only after it has been found stable (Probe), and
//     an attempt refuses a lock that its own backend has already: behind a transaction pooler that backend is shared.
//   - Any error on a session that may hold the lock closes its socket, which the server cannot mistake. Only a lock that
//     was busy leaves the session as it was.
//   - Whatever ends a term, work stops before the lock is let go: closing first would free the lock under running work.
//   - A leader that is silent but connected is ended by the server after the TTL, and has given up by then.
//   - An unlock counts only if the server says so. A COMMIT without an answer is neither done nor refused (ErrUnknownCommit).
//
// Not promised: between the end of a leader's session and the next term, effects that it had in hand may still be
// committed, in its own term. The fence covers transactions in this database and nothing outside it; see Term.
//
// The package publish is a scheduler that runs on it.
package lockimpl
