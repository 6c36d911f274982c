// Package sim is simrun's vocabulary: scenarios, plans, faults, events, histories and verdicts as plain values.
//
// One direction, and a plain value on each arrow:
//
//	Scenario --(seed)--> Plan --(Engine.Run)--> History --(invariants.Check)--> Verdicts --> report
//
// Only an engine touches the world; everything before and after it is functions over the values of this package.
// The package imports nothing but the standard library, so that every other package may import it.
package sim
