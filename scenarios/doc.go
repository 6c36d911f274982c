// Package scenarios holds the scenarios that come with simrun and reads those of other people.
//
// A scenario is one YAML file. Reading is strict: a field, a fault, a route or a unit that simrun does not know is a
// problem, and a file's problems are reported all at once, each with its place, the source line and, where there is one,
// a suggestion. Nothing that is read from a file can make this package panic, however hostile the file is.
//
// Whether a scenario makes sense is decided here, before anything is started: a fault that strikes after the end, a run
// that leaves no quiet time to judge liveness in, an expectation that is never checked.
package scenarios
