// Package gen draws plans from a scenario and a seed with rapid, and shrinks a failing plan to the smallest one.
//
// Plan i of a seed depends on the seed, the scenario and i only: not on route, engine, implementation or the number of
// workers. Everything is drawn up front; a run draws nothing.
package gen
