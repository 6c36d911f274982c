// Package session is one database session of a lease: the statements that are sent on it, and what their answers mean.
//
// A Session is owned by one goroutine. Only Kill may be called from another one: it closes the socket under whatever the
// owner is doing, which is the only way to end a statement at once (a deadline handed to pgx keeps the socket, and with it
// the lock, for up to 15 seconds more).
package session
