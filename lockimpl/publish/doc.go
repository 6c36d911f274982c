// Package publish is the publish scheduler: the leader publishes what has fallen due, each row in a transaction of its own that is fenced by
// the leader's term.
//
// The unit is (row, schedule number). The number grows with each scheduling, rescheduling and cancelling of a row, so a
// unit is published at most once, whatever anybody was told: a COMMIT whose answer was lost is left alone, and the next list shows
// whether it happened.
//
// A task's failure cancels that unit; a failure of the infrastructure leaves it for the next tick. Classify decides which is which.
package publish
