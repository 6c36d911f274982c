package proc

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// TestMain lets the test binary play a process that uses a run and then dies.
func TestMain(m *testing.M) {
	if os.Getenv("PROC_TEST_HELPER") != "" {
		helper()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// helper starts a run with a child, a grandchild in a session of its own and one that has lost its environment, prints
// the directory and waits for its death.
func helper() {
	r, err := NewRun()
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	for _, script := range []string{
		"sleep 1000",
		"setsid sleep 1000 & exec sleep 1000",
		"setsid env -i sleep 1000 & exec sleep 1000",
		"trap '' TERM INT HUP; sleep 1000 & sleep 1000 & wait",
	} {
		if _, err := r.Start(Spec{Name: "shell", Path: "/bin/sh", Args: []string{"-c", script}, Unprivileged: true}); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
	fmt.Println(r.Dir())
	time.Sleep(time.Hour)
}
