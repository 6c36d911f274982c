package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/seed-aafb3a99/simrun/reports"
	"github.com/seed-aafb3a99/simrun/scenarios"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/seed-aafb3a99/simrun/sim/replica"
	"github.com/spf13/cobra"
)

const maxSchedules = 1_000_000

// runFlags are the flags of run, and, where it makes sense, of replay.
type runFlags struct {
	engine      string
	engineAsked bool // and not the default
	routes      []string
	impls       []string
	replicas    int
	schedules   int
	seed        uint64
	budget      time.Duration
	strategy    string
	selfcheck   bool
	checkAsked  bool // and not the default
	postgres    string
	out         string
	junit       string
	json        bool
	workers     int
	noShrink    bool
	keep        bool
	confirm     int
	all         bool
	failed      bool // only what did not pass in the last run
	timeScale   float64
	timeout     time.Duration
}

func runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run [scenario|FILE.yaml ...]",
		Short: "Run scenarios and judge what happened (default: the suite core)",
		Long: `Run scenarios and judge what happened. Without a name it runs the suite core.

Exit status: 0 every verdict as expected, 1 an invariant was violated or an expected violation not found, 2 inconclusive,
4 wrong usage or an invalid scenario, 5 nothing ran, 6 the environment could not start or died, 70 internal error,
130/143 interrupted. The reason is printed on the line before DONE.`,
		Example: `  simrun run
  simrun run kill-leader --route pgbouncer-session --schedules 10 --seed 7
  simrun run two-leaders-pooler --impl naive-pooled
  simrun run kill-leader --impl 'exec:python3 leader.py'
  simrun run my-scenario.yaml --junit junit.xml
  simrun run --last-failed
  SIMRUN_DSN=postgres://me@db.example/postgres simrun run steady --postgres dsn`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.engineAsked, f.checkAsked = cmd.Flags().Changed("engine"), cmd.Flags().Changed("selfcheck")
			if !cmd.Flags().Changed("seed") {
				f.seed = rand.Uint64N(1_000_000) + 1
			}
			for _, name := range []string{"schedules", "replicas", "for", "time-scale"} {
				if fl := cmd.Flags().Lookup(name); fl.Changed && (fl.Value.String() == "0" || fl.Value.String() == "0s") {
					return usagef("--%s must be more than 0; leave it out for the default", name)
				}
			}
			if f.failed {
				for _, name := range []string{"all", "route", "impl"} {
					if cmd.Flags().Changed(name) {
						return usagef("--last-failed runs what failed, as it was: leave --%s out", name)
					}
				}
				if len(args) > 0 {
					return usagef("give names or --last-failed, not both")
				}
			}
			return run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args, f, cmd.Flags().Changed)
		},
	}
	fl := c.Flags()
	fl.BoolVar(&f.all, "all", false, "every scenario")
	fl.BoolVar(&f.failed, "last-failed", false, "only what did not pass in the last run (OUT/latest), with its seed and engine, and the plans that failed first")
	fl.StringVar(&f.engine, "engine", defaultEngine, "virtual (virtual time, exact replay) or live (processes, the wall clock)")
	fl.StringArrayVar(&f.routes, "route", nil, "only this route: direct, pgbouncer-session, pgbouncer-transaction, pgbouncer-statement (may be repeated)")
	fl.StringArrayVar(&f.impls, "impl", nil, "this implementation instead of the scenario's: a `NAME` of simrun list, or exec:COMMAND for any program that speaks docs/protocol.md (may be repeated)")
	fl.IntVar(&f.replicas, "replicas", 0, "number of replicas instead of the scenario's")
	fl.IntVar(&f.schedules, "schedules", 0, "schedules per scenario, route and implementation (default: virtual 10, live 2)")
	fl.Uint64Var(&f.seed, "seed", 0, "seed of the schedules (default: random, and printed)")
	fl.DurationVar(&f.budget, "for", 0, "wall time to spend on each scenario, route and implementation, instead of a number of schedules")
	fl.StringVar(&f.strategy, "strategy", "random", "how interleavings are chosen: random, pct (probabilistic concurrency testing) or exhaustive (all of those at one instant)")
	fl.BoolVar(&f.selfcheck, "selfcheck", os.Getenv("CI") != "", "virtual: run one plan in five twice and stop when the histories differ (on in CI)")
	fl.StringVar(&f.postgres, "postgres", "auto", "local (binaries on this machine), dsn (the address in SIMRUN_DSN) or auto (dsn where SIMRUN_DSN is set, else local)")
	fl.StringVar(&f.out, "out", "simrun-out", "folder for results")
	fl.StringVar(&f.junit, "junit", "", "write the JUnit file here as well")
	fl.BoolVar(&f.json, "json", false, "print result.json on stdout, talk on stderr")
	fl.IntVar(&f.workers, "workers", min(2, runtime.NumCPU()), "entries run at a time, each with a Postgres and pooler of its own")
	fl.BoolVar(&f.noShrink, "no-shrink", false, "do not shrink failing schedules")
	fl.IntVar(&f.confirm, "confirm", 3, "virtual: how often a counterexample is carried out live as well (0: never)")
	fl.BoolVar(&f.keep, "keep", false, "keep every history, also of schedules that passed")
	fl.Float64Var(&f.timeScale, "time-scale", 0, "live: factor on all times of a scenario (default 0.04)")
	fl.DurationVar(&f.timeout, "timeout", time.Hour, "hard limit for the whole run")
	return c
}

// validateFlags finds wrong usage before anything starts.
func (f *runFlags) validate() error {
	switch f.engine {
	case "live", "virtual":
	default:
		return usagef("there is no engine %q: use virtual or live", f.engine)
	}
	for _, r := range f.routes {
		if !slices.Contains(sim.Routes, sim.Route(r)) {
			return usagef("there is no route %q%s; routes are %s", r, didYouMean(r, routeNames()), strings.Join(routeNames(), ", "))
		}
	}
	switch f.postgres {
	case "auto", "local", "dsn":
	case "docker":
		return usagef("--postgres docker is not built yet: use local or dsn")
	default:
		if strings.Contains(f.postgres, "://") || strings.Contains(f.postgres, "=") {
			return usagef("an address is not taken on the command line, where everybody could read its password: put it in SIMRUN_DSN and use --postgres dsn")
		}
		return usagef("there is no --postgres %q: use auto, local or dsn", f.postgres)
	}
	if f.postgres == "dsn" && os.Getenv("SIMRUN_DSN") == "" {
		return usagef("--postgres dsn needs the server's address in SIMRUN_DSN")
	}
	switch f.strategy {
	case "random":
	case "pct":
		if f.engine != "virtual" {
			return usagef("--strategy pct needs the virtual engine, where the order of statements is decided: leave --engine out")
		}
	case exhaustive:
		if err := exhaustivePossible(f.engine); err != nil {
			return usageError{err}
		}
	default:
		return usagef("there is no strategy %q%s: use random, pct or exhaustive", f.strategy, didYouMean(f.strategy, []string{"random", "pct", exhaustive}))
	}
	switch {
	case f.checkAsked && f.selfcheck && f.engine != "virtual":
		return usagef("--selfcheck needs the virtual engine: on the wall clock no two histories are alike")
	case f.checkAsked && f.selfcheck && f.strategy == exhaustive:
		return usagef("--selfcheck goes with --strategy random and pct: an exploration runs no schedule twice")
	case f.replicas < 0 || f.replicas > sim.MaxReplicas:
		return usagef("--replicas must be from 1 to %d", sim.MaxReplicas)
	case f.schedules < 0 || f.schedules > maxSchedules:
		return usagef("--schedules must be from 1 to %d", maxSchedules)
	case f.schedules > 0 && f.budget > 0:
		return usagef("give --schedules or --for, not both")
	case f.budget < 0 || f.timeout <= 0:
		return usagef("--for and --timeout must be positive")
	case f.confirm < 0 || f.confirm > 1000:
		return usagef("--confirm must be from 0 to 1000")
	case f.workers < 1 || f.workers > 64:
		return usagef("--workers must be from 1 to 64")
	case f.out == "":
		return usagef("--out needs the name of a folder")
	case !(f.timeScale >= 0 && f.timeScale <= 1): // NaN is neither
		return usagef("--time-scale must be above 0 and at most 1")
	}
	return nil
}

func routeNames() (names []string) {
	for _, r := range sim.Routes {
		names = append(names, string(r))
	}
	return names
}

func implNames() (names []string) {
	for _, i := range replica.All() {
		names = append(names, i.Name)
	}
	return names
}

// implementation finds an implementation by its name; what belongs to exec:COMMAND is in the scenario.
func implementation(name string, s *sim.Scenario) (sim.Implementation, error) {
	if sim.IsProgram(name) {
		return program(name, s)
	}
	i, ok := replica.ByName(name)
	if !ok {
		return sim.Implementation{}, usagef("there is no implementation %q%s; see simrun list", name, didYouMean(name, implNames()))
	}
	i.Command = replicaCommand()
	return i, nil
}

// A choice is a scenario to run, and the file it was read from, if any.
type choice struct {
	sim.Scenario
	file string
}

func builtins(list []sim.Scenario) (out []choice) {
	for _, s := range list {
		out = append(out, choice{Scenario: s})
	}
	return out
}

// chosen is the scenarios that the arguments name.
func (f *runFlags) chosen(args []string) ([]choice, error) {
	if f.all && len(args) > 0 {
		return nil, usagef("give names or --all, not both")
	}
	if f.all {
		return builtins(scenarios.All()), nil
	}
	if len(args) == 0 {
		return builtins(scenarios.Suite("core")), nil
	}
	var out []choice
	var errs []error
	first := map[string]string{}
	for i, a := range args {
		if slices.Contains(args[:i], a) {
			continue
		}
		s, err := loadScenario(a)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if other, taken := first[s.Name]; taken {
			errs = append(errs, fmt.Errorf("%s and %s both hold a scenario named %s; results are told apart by names: give one of them another", other, a, s.Name))
			continue
		}
		first[s.Name] = a
		c := choice{Scenario: *s}
		if isFile(a) {
			c.file = a
		}
		out = append(out, c)
	}
	if len(errs) > 0 {
		return nil, usageError{errors.Join(errs...)}
	}
	return out, nil
}

// isFile says whether an argument means a file, and not a scenario that comes with simrun.
func isFile(arg string) bool {
	return strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".yml") || strings.ContainsRune(arg, filepath.Separator)
}

func loadScenario(arg string) (*sim.Scenario, error) {
	if isFile(arg) {
		return loadFile(arg)
	}
	if s, ok := scenarios.ByName(arg); ok {
		return &s, nil
	}
	return nil, usagef("there is no scenario %q%s; see simrun list, or give a file that ends in .yaml", arg, didYouMean(arg, scenarios.Names()))
}

// loadFile reads a scenario's file, and knows the file that is most often given in place of one.
func loadFile(path string) (*sim.Scenario, error) {
	s, err := scenarios.Load(path, scenarios.Implementations(implNames()...), scenarios.Invariants(invariantNames()...))
	if errors.Is(err, fs.ErrNotExist) {
		beside, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*.y*ml")) // a folder that cannot be read has no suggestion
		return nil, usagef("there is no file %s%s", path, didYouMean(filepath.Clean(path), beside))
	}
	if err != nil {
		if _, other := loadCounterexample(path); other == nil {
			return nil, fmt.Errorf("%s is a counterexample and no scenario: carry it out with simrun replay FILE, or make a scenario of it with simrun new --from FILE", path)
		}
		return nil, err
	}
	return s, nil
}

// tasks turns flags and scenarios into what is to be done. What cannot be done is an error where it was named, and otherwise
// left out with a reason.
func (f *runFlags) tasks(chosen []choice, named bool) (out []task, leftOut []string, err error) {
	schedules := f.schedules
	if schedules == 0 {
		schedules = map[string]int{"virtual": 10, "live": 2}[f.engine]
	}
	for _, s := range chosen {
		if f.replicas > 0 {
			s.Replicas = f.replicas
		}
		routes := s.Routes
		if len(f.routes) > 0 {
			routes = nil
			for _, r := range f.routes {
				routes = append(routes, sim.Route(r))
			}
		}
		for _, r := range routes {
			for _, name := range f.asked(s.Scenario) {
				sc, err := f.withProgram(s.Scenario, name)
				if err != nil {
					return nil, nil, err
				}
				t := task{
					Scenario: sc, File: s.file, Route: r, Impl: name, Schedules: schedules, Seed: f.seed, Budget: f.budget, Strategy: f.strategy, Program: os.Args[0],
					Shrink: !f.noShrink, Keep: f.keep, Check: f.selfcheck && f.engine == "virtual",
				}
				impl, err := implementation(t.Impl, &t.Scenario)
				if err != nil {
					return nil, nil, err // a typing error, whatever was named
				}
				if err := f.possible(t, impl); err != nil {
					if named {
						return nil, nil, err
					}
					leftOut = append(leftOut, err.Error())
					continue
				}
				out = append(out, t)
			}
		}
	}
	slices.Sort(leftOut)
	return out, slices.Compact(leftOut), nil
}

// possible says what an engine, a route or an implementation cannot do, before anything starts.
func (f *runFlags) possible(t task, impl sim.Implementation) error {
	for _, fs := range t.Scenario.Faults {
		info, ok := sim.FaultByKind(fs.Kind)
		if !ok || f.engine == "live" && !info.Live || f.engine == "virtual" && !info.Virtual {
			return usagef("scenario %s: the %s engine cannot do the fault %s yet", t.Scenario.Name, f.engine, fs.Kind)
		}
	}
	if slices.Contains(t.Scenario.Invariants, "failover") && !t.Route.Stable() && impl.Probes {
		return usagef("scenario %s asks for failover, but behind %s an implementation with a probe never leads; choose a stable route", t.Scenario.Name, t.Route)
	}
	return nil
}

func run(ctx context.Context, stdout, stderr io.Writer, args []string, f runFlags, given func(flag string) bool) error {
	if err := f.validate(); err != nil {
		return err
	}
	tasks, notes, err := f.plan(args, given)
	if err != nil {
		return err
	}
	talk := stdout
	if f.json {
		talk = stderr
	}
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, errTimeLimit)
	defer cancel()
	r := &runner{runFlags: f, talk: talk, stderr: stderr, began: time.Now()}
	r.lines = reports.NewTerminal(raw(talk)) // it makes its text safe itself, and redraws
	r.result = sim.Result{Schema: sim.ResultVersion, Seed: f.seed, StartedAt: r.began.UTC(), Scenarios: []sim.Entry{}}
	r.result.Versions = sim.Versions{Simrun: version(), Go: runtime.Version()}
	fmt.Fprintf(talk, "%s  seed %d  engine %s\n", version(), f.seed, f.engine)
	for _, note := range notes {
		fmt.Fprintln(talk, note)
	}
	if f.failed && len(tasks) == 0 {
		r.result.ExitStatus, r.result.ExitReason = exitNothing, "nothing failed in "+filepath.Join(f.out, "latest")
	} else if r.out, err = f.prepare(r.began); err != nil {
		r.result.ExitStatus, r.result.ExitReason = exitStatus(nil, err)
		r.lastWords()
	} else {
		r.run(ctx, tasks)
	}
	tellGitHub(talk, stderr, &r.result)
	if f.json {
		if err := reports.JSON(raw(stdout), &r.result); err != nil {
			return err
		}
	}
	r.lines.Done(&r.result)
	if r.result.ExitStatus != exitOK {
		return statusError{r.result.ExitStatus}
	}
	return nil
}

// lastWords leaves the reason in the JUnit file, if there can be one, where a run could not begin.
func (r *runner) lastWords() {
	var b strings.Builder
	if r.junit != "" && reports.JUnit(&b, &r.result) == nil {
		_ = writeFile(r.junit, []byte(b.String())) // that it cannot be written may be the reason
	}
}

// plan is what is to be done, and what there is to say about it beforehand.
func (f *runFlags) plan(args []string, given func(flag string) bool) (tasks []task, notes []string, err error) {
	if f.failed {
		tasks, of, err := f.again(given)
		return tasks, []string{fmt.Sprintf("again: %d of the last run's %d", len(tasks), of)}, err
	}
	chosen, err := f.chosen(args)
	if err != nil {
		return nil, nil, err
	}
	settled, err := f.chooseEngine(slices.ContainsFunc(chosen, func(s choice) bool { return slices.ContainsFunc(f.asked(s.Scenario), sim.IsProgram) }))
	if err != nil {
		return nil, nil, err
	}
	if settled != "" {
		notes = append(notes, settled)
	}
	tasks, leftOut, err := f.tasks(chosen, len(args) > 0)
	for _, why := range leftOut {
		notes = append(notes, "left out: "+why)
	}
	return tasks, notes, err
}

// prepare makes the results folder, and finds out now, and not after the run, that something cannot be written.
func (f *runFlags) prepare(began time.Time) (*outDir, error) {
	if f.junit != "" {
		if err := writable(f.junit); err != nil {
			return nil, err
		}
	}
	return newOutDir(f.out, f.seed, began)
}

// A runner is one run under way.
type runner struct {
	runFlags
	talk, stderr io.Writer
	lines        *reports.Terminal
	out          *outDir
	began        time.Time
	result       sim.Result
}

// run carries out the tasks, confirms what was found, and writes the results.
func (r *runner) run(ctx context.Context, tasks []task) {
	result := &r.result
	entries, fatal := r.entries(ctx, tasks)
	if entries != nil {
		result.Scenarios = entries
	}
	if cause := context.Cause(ctx); cause != nil {
		fatal = cause // whatever else went wrong was its doing
	}
	result.ExitStatus, result.ExitReason = exitStatus(result.Scenarios, fatal)
	result.Seconds = time.Since(r.began).Seconds()
	if err := writeReports(r.out, result, r.runFlags); err != nil {
		result.ExitStatus, result.ExitReason = worse(result.ExitStatus, exitEnvironment), err.Error()
	}
	report := filepath.Join(r.out.dir, "report.html")
	if len(result.Scenarios) > 0 { // a run that found nothing leaves the last one's results where they are
		if err := r.out.link(); err != nil {
			result.ExitStatus, result.ExitReason = worse(result.ExitStatus, exitEnvironment), err.Error()
		} else {
			report = filepath.Join(r.runFlags.out, "latest", "report.html")
		}
	}
	summary(r.talk, result)
	if exists(report) { // the disk may be full
		fmt.Fprintf(r.talk, "report: %s\n", report)
	}
}

// entries starts servers and engines, carries out the tasks and ends what it started.
func (r *runner) entries(ctx context.Context, tasks []task) (_ []sim.Entry, err error) {
	watch := newWatch(r.stderr, r.lines, len(tasks))
	defer watch.close()
	w, err := newWorld(ctx, r.runFlags, r.out, min(r.workers, len(tasks)))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	r.result.Versions.Postgres, r.result.Versions.PgBouncer, r.result.Backend = w.postgres, w.pgbouncer, w.backend
	fmt.Fprintf(r.talk, "postgres %s (%s)  pgbouncer %s  workers %d\n", w.postgres, w.backend, w.pgbouncer, len(w.pool))
	w.sayGiven(r.talk, r.postgres)
	for i := range tasks {
		tasks[i].Out = r.out.dir
		if r.engine == "virtual" || r.failed {
			tasks[i].Past = pastFailures(r.runFlags.out, tasks[i])
		}
	}
	entries, err := campaign(ctx, tasks, w.pool, r.lines.Entry, watch)
	if r.engine == "virtual" && r.runFlags.confirm > 0 && err == nil {
		err = w.confirmLive(ctx, r.runFlags, r.out, entries, r.runFlags.confirm, watch, r.lines.Line)
	}
	return entries, err
}

// writable says now, and not after the run, that a file cannot be written.
func writable(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return &sim.EnvironmentError{Problem: "the file " + path + " cannot be written", Err: err}
	}
	return nil
}

// writeReports writes result.json, junit.xml and report.html. It tries all and returns what failed.
func writeReports(out *outDir, result *sim.Result, f runFlags) error {
	var errs []error
	write := func(path string, render func(io.Writer) error) {
		var b strings.Builder
		err := render(&b)
		if err == nil {
			err = writeFile(path, []byte(b.String()))
		}
		if err != nil {
			errs = append(errs, &sim.EnvironmentError{Problem: fmt.Sprintf("%s could not be written", path), Err: err})
		}
	}
	write(filepath.Join(out.dir, "result.json"), func(w io.Writer) error { return reports.JSON(w, result) })
	write(filepath.Join(out.dir, "junit.xml"), func(w io.Writer) error { return reports.JUnit(w, result) })
	if f.junit != "" {
		write(f.junit, func(w io.Writer) error { return reports.JUnit(w, result) })
	}
	page, err := loadPage(out.dir, result)
	if err != nil {
		errs = append(errs, err)
	}
	write(filepath.Join(out.dir, "report.html"), func(w io.Writer) error { return reports.HTML(w, page) })
	return errors.Join(errs...)
}

// loadPage reads the histories a page shows back from disk.
func loadPage(dir string, result *sim.Result) (reports.Page, error) {
	page := reports.Page{Result: result, Histories: map[string]*sim.History{}}
	var errs []error
	load := func(name string) {
		if name == "" || page.Histories[name] != nil {
			return
		}
		h, err := readHistoryFile(filepath.Join(dir, name))
		if err != nil {
			errs = append(errs, err)
			return
		}
		page.Histories[name] = h
	}
	for _, e := range result.Scenarios {
		for _, h := range e.Histories {
			load(h)
		}
		for _, ce := range e.Counterexamples {
			load(ce.History)
		}
	}
	return page, errors.Join(errs...)
}

func readHistoryFile(path string) (*sim.History, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	defer f.Close()
	h, err := sim.ReadHistory(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}

// noResults says why a path is no results folder, and where there is one.
func noResults(path string, err error) error {
	why := fmt.Sprint(errors.Unwrap(err))
	if info, statErr := os.Stat(path); statErr == nil && info.IsDir() && errors.Is(err, fs.ErrNotExist) {
		why = "there is no result.json in it"
	}
	last := filepath.Join("simrun-out", "latest")
	hint := "simrun run leaves one in " + last
	if filepath.Clean(path) != last && exists(filepath.Join(last, "result.json")) {
		hint = "the last run's is " + last
	}
	return usagef("%s is no results folder (%s); %s", path, why, hint)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func readResult(dir string) (*sim.Result, error) {
	b, err := os.ReadFile(filepath.Join(dir, "result.json"))
	if err != nil {
		return nil, noResults(dir, err)
	}
	var r sim.Result
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, usagef("%s: result.json cannot be read: %v", dir, err)
	}
	if r.Schema != sim.ResultVersion {
		return nil, usagef("%s: result.json has schema %d, this simrun reads %d", dir, r.Schema, sim.ResultVersion)
	}
	return &r, nil
}
