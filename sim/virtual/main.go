package virtual

import (
	"flag"
	"fmt"
	"io"
	"os"
	"reflect"
	"testing"
	"time"
)

// Main calls f with a *testing.T outside "go test" and returns an exit status: 0, or 1 when the T was failed. It is for
// a process that carries out runs and nothing else: testing's flags are registered, but the command line is not read;
// what testing prints goes to standard error.
//
// testing.Main and testing.RunTests will not do: the first ends the process, the second runs nothing by itself.
func Main(f func(*testing.T)) int {
	m := testing.MainStart(deps{}, []testing.InternalTest{{Name: "worker", F: f}}, nil, nil, nil)
	if !flag.Parsed() {
		if err := flag.CommandLine.Parse(nil); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	stdout := os.Stdout
	os.Stdout = os.Stderr
	defer func() { os.Stdout = stdout }()
	return m.Run()
}

// deps is what "go test" would link in. Nothing here needs more than MatchString.
type deps struct{}

func (deps) MatchString(string, string) (bool, error)                 { return true, nil }
func (deps) ImportPath() string                                       { return "" }
func (deps) ModulePath() string                                       { return "" }
func (deps) SetPanicOnExit0(bool)                                     {}
func (deps) StartCPUProfile(io.Writer) error                          { return nil }
func (deps) StopCPUProfile()                                          {}
func (deps) StartTestLog(io.Writer)                                   {}
func (deps) StopTestLog() error                                       { return nil }
func (deps) WriteProfileTo(string, io.Writer, int) error              { return nil }
func (deps) ResetCoverage()                                           {}
func (deps) SnapshotCoverage()                                        {}
func (deps) RunFuzzWorker(func(corpusEntry) error) error              { return nil }
func (deps) ReadCorpus(string, []reflect.Type) ([]corpusEntry, error) { return nil, nil }
func (deps) CheckCorpus([]any, []reflect.Type) error                  { return nil }
func (deps) CoordinateFuzzing(time.Duration, int64, time.Duration, int64, int, []corpusEntry, []reflect.Type, string, string) error {
	return nil
}
func (deps) InitRuntimeCoverage() (string, func(string, string) (string, error), func() float64) {
	return "", nil, nil
}

// corpusEntry is testing's unexported type of the same shape.
type corpusEntry = struct {
	Parent     string
	Path       string
	Data       []byte
	Values     []any
	Generation int
	IsSeed     bool
}
