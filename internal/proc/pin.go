package proc

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// PinToFree keeps this process, and children that it starts from now on, on one processor that no other process has asked for in this way,
// and reports whether there was one. It is for a process that takes turns with its children, such as a virtual engine with its
// server: two that never work at the same time wake each other several times faster on one processor than across two. Where
// all are taken the kernel is left to choose: it knows better than a second process on the same one.
//
// Processors are taken by names of sockets that go with the process, of any user.
func PinToFree() (bool, error) {
	may, err := processors()
	if err != nil {
		return false, err
	}
	for _, cpu := range may {
		taken, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return false, fmt.Errorf("take a processor: %w", err)
		}
		if unix.Bind(taken, &unix.SockaddrUnix{Name: fmt.Sprintf("@simrun processor %d", cpu)}) != nil {
			_ = unix.Close(taken)
			continue // somebody else has it
		}
		return true, pinTo(cpu) // the socket stays open for as long as we live
	}
	return false, nil
}

// Pin keeps this process, and children that it starts from now on, on the nth of the processors it may use, counted round.
func Pin(n int) error {
	may, err := processors()
	if err != nil {
		return err
	}
	return pinTo(may[n%len(may)])
}

// processors are those this process may use.
func processors() (list []int, err error) {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return nil, fmt.Errorf("ask for this process's processors: %w", err)
	}
	for cpu := 0; len(list) < may.Count(); cpu++ {
		if may.IsSet(cpu) {
			list = append(list, cpu)
		}
	}
	return list, nil
}

func pinTo(cpu int) error {
	var one unix.CPUSet
	one.Set(cpu)
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
