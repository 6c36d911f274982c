package virtual

import (
	"flag"
	"io"
	"os"
	"reflect"
	"testing"
	"time"
)

// Main runs f with a *testing.T outside "go test", and returns an exit status. testing/synctest asks for one, and a worker process of
// the command line has none. It may be called once in a process.
//
// testing.MainStart is meant for the main that "go test" generates; its signature may change with a version of Go, which
// the compiler would tell.
func Main(f func(t *testing.T)) int {
	testing.Init()
	if !flag.Parsed() {
		_ = flag.CommandLine.Parse(nil) // simrun's own flags are none of testing's business
	}
	for name, value := range map[string]string{"test.timeout": "0", "test.paniconexit0": "false"} {
		if err := flag.Set(name, value); err != nil {
			panic(err) // testing.Init has just defined them
		}
	}
	out := os.Stdout
	os.Stdout = os.Stderr // M.Run prints PASS
	defer func() { os.Stdout = out }()
	return testing.MainStart(deps{}, []testing.InternalTest{{Name: "worker", F: f}}, nil, nil, nil).Run()
}

// deps is what "go test" would link in; a run without a test selection needs next to nothing of it.
type deps struct{}

// entry is testing's corpusEntry, which cannot be named.
type entry = struct {
	Parent     string
	Path       string
	Data       []byte
	Values     []any
	Generation int
	IsSeed     bool
}

func (deps) MatchString(string, string) (bool, error) { return true, nil }
func (deps) ImportPath() string                       { return "" }
func (deps) ModulePath() string                       { return "" }
func (deps) SetPanicOnExit0(bool)                     {}
func (deps) StartCPUProfile(io.Writer) error          { return nil }
func (deps) StopCPUProfile()                          {}
func (deps) StartTestLog(io.Writer)                   {}
func (deps) StopTestLog() error                       { return nil }
func (deps) WriteProfileTo(string, io.Writer, int) error {
	return nil
}
func (deps) ResetCoverage()                        {}
func (deps) SnapshotCoverage()                     {}
func (deps) RunFuzzWorker(func(entry) error) error { return nil }
func (deps) ReadCorpus(string, []reflect.Type) ([]entry, error) {
	return nil, nil
}
func (deps) CheckCorpus([]any, []reflect.Type) error { return nil }
func (deps) CoordinateFuzzing(time.Duration, int64, time.Duration, int64, int, []entry, []reflect.Type, string, string) error {
	return nil
}
func (deps) InitRuntimeCoverage() (mode string, tearDown func(string, string) (string, error), snapcov func() float64) {
	return "", nil, nil
}
