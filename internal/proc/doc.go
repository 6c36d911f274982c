// Package proc starts the processes of a run and makes sure that none of them outlives it.
//
// A [Run] owns a private directory and every process started through it. When the run is closed, or when our own
// process ends in any way at all (a panic and SIGKILL included), the processes are killed and the directory is removed
// within a second. Three things work together, since each alone has a hole:
//
//   - The parent death signal kills a direct child at once. It does not reach grandchildren, such as the backends of a
//     Postgres server.
//   - The reaper, a child of ours in a session of its own, holds the reading end of a pipe whose writing end only we
//     have. When the pipe ends it kills what is left and removes the directory. It is our own binary, taken over in this
//     package's init, so it is there in test binaries too.
//   - The sweep, at the start of the next run, does the same for a run whose reaper was killed as well. A directory is
//     locked (flock) as long as its run lives, so a living run is never touched.
//
// A process belongs to a run when it was started through it (the pid is trusted only together with the start time the
// kernel gives for it), when it descends from such a process, when it carries the run's mark in its environment, or when
// it works inside the run's directory and either runs one of the run's programs or has no terminal (somebody's shell that
// looks around there has one). Postgres needs the last rule: its backends lead sessions of their own, are adopted by init
// when the postmaster dies, and write over their environment.
package proc
