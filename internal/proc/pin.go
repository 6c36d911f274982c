package proc

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Pin keeps this process, and children that it starts from now on, on one processor: the nth of those it may use, counted
// round. It is for a process that takes turns with its children, such as a virtual engine with its server: two that never
// work at the same time wake each other several times faster on one processor than across two.
func Pin(n int) error {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return fmt.Errorf("ask for this process's processors: %w", err)
	}
	n %= may.Count()
	var one unix.CPUSet
	for cpu := 0; ; cpu++ {
		if !may.IsSet(cpu) {
			continue
		}
		if n == 0 {
			one.Set(cpu)
			break
		}
		n--
	}
	// Threads that begin later inherit from the thread that starts them, so the second pass meets none that was missed.
	for range 2 {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("list this process's threads: %w", err)
		}
		for _, t := range threads {
			tid, err := strconv.Atoi(t.Name())
			if err != nil {
				continue
			}
			if err := unix.SchedSetaffinity(tid, &one); err != nil && err != unix.ESRCH {
				return fmt.Errorf("keep a thread on one processor: %w", err)
			}
		}
	}
	return nil
}
