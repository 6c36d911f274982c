package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed-aafb3a99/simrun/invariants"
	"github.com/seed-aafb3a99/simrun/reports"
	"github.com/seed-aafb3a99/simrun/scenarios"
	"github.com/seed-aafb3a99/simrun/sim"
	"github.com/spf13/cobra"
)

func replayCommand() *cobra.Command {
	var f runFlags
	n := 0
	c := &cobra.Command{
		Use:   "replay FILE",
		Short: "Carry out a saved counterexample again; prints k of n and the digest",
		Long: `Carry out a saved counterexample again. Its plan is used, not its seed, so it survives changes of the generator. One of a program
(exec:COMMAND) names the command, the folder it is started in and the SQL of its tables: read it before you replay a stranger's.

Exit status 1 when the violation was reproduced at least once, 0 when that was expected by the scenario; 1 when an expected
violation was not reproduced, 0 when an unexpected one was not.`,
		Example: `  simrun replay simrun-out/latest/counterexamples/kill-leader.direct.no-fence.one-leader.json
  simrun replay FILE -n 100 --engine live`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("times") && n < 1 {
				return usagef("-n must be from 1 to %d", maxSchedules)
			}
			return replay(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0], f, n, cmd.Flags().Changed("engine"))
		},
	}
	fl := c.Flags()
	fl.IntVarP(&n, "times", "n", 0, "how often (default: virtual 20, live 3)")
	fl.StringVar(&f.engine, "engine", "", "the engine, instead of the one it was found with")
	fl.StringVar(&f.postgres, "postgres", "auto", "local, dsn (the address in SIMRUN_DSN) or auto (dsn where SIMRUN_DSN is set, else local)")
	fl.StringVar(&f.out, "out", "simrun-out", "folder for results")
	fl.DurationVar(&f.timeout, "timeout", time.Hour, "hard limit for the whole replay")
	return c
}

func replay(ctx context.Context, stdout, stderr io.Writer, file string, f runFlags, n int, other bool) error {
	ce, err := loadCounterexample(file)
	if err != nil {
		return err
	}
	if !other {
		f.engine = ce.Engine
	}
	f.workers, f.strategy, f.timeScale = 1, "random", ce.TimeScale
	if f.engine != "live" || f.timeScale >= 1 {
		f.timeScale = 0
	}
	f.engineAsked = true
	if _, err := f.chooseEngine(sim.IsProgram(ce.Impl)); err != nil {
		return err
	}
	if n < 0 || n > maxSchedules {
		return usagef("-n must be from 1 to %d", maxSchedules)
	}
	if n == 0 {
		n = map[string]int{"virtual": reproduceVirtual, "live": reproduceLive}[f.engine]
	}
	if err := f.validate(); err != nil {
		return err
	}
	if ce.Scenario, err = f.withProgram(ce.Scenario, ce.Impl); err != nil {
		return err
	}
	if _, err := implementation(ce.Impl, &ce.Scenario); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, errTimeLimit)
	defer cancel()
	out, err := newOutDir(f.out, ce.Seed, time.Now())
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s  replay of %s on %s with %s, engine %s\n", version(), ce.Scenario.Name, ce.Route, ce.Impl, f.engine)
	for _, fl := range ce.Plan.Faults {
		fmt.Fprintf(stdout, "  %s\n", fl)
	}
	w, err := newWorld(ctx, f, out, 1)
	if err != nil {
		return err
	}
	w.sayGiven(stdout, f.postgres)
	watch := newWatch(stderr, nil, 0)
	got, err := w.pool[0].replay(ctx, replayTask{Counterexample: *ce, Times: n, Out: out.dir}, func(s stage) { watch.at("replay", s) })
	watch.close()
	err = errors.Join(err, w.close())
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		return err
	}
	if got.Text != "" {
		fmt.Fprintf(stdout, "%s violated: %s\n", ce.Invariant, got.Text)
	}
	fmt.Fprintf(stdout, "reproduced %d of %d\n", got.Reproduced, got.Ran)
	if f.engine == "virtual" {
		for _, d := range slices.Sorted(maps.Keys(got.Digests)) {
			fmt.Fprintf(stdout, "digest %s (%d of %d)\n", d, got.Digests[d], got.Ran)
		}
	}
	if f.engine == "virtual" && ce.Engine == "virtual" && ce.Digest != "" && got.Digests[ce.Digest] < got.Ran {
		fmt.Fprintf(stdout, "the history is not the saved one, whose digest is %.40s: the plan, the program or the versions have changed\n", ce.Digest)
	}
	fmt.Fprintf(stdout, "history: %s\n", filepath.Join(out.dir, got.History))
	if (got.Reproduced > 0) != ce.Expected {
		return statusError{exitViolated}
	}
	return nil
}

// A replayTask is a counterexample to carry out so many times.
type replayTask struct {
	Counterexample sim.Counterexample `json:"counterexample"`
	Times          int                `json:"times"`
	Out            string             `json:"out"`
}

// replayed is what came of it.
type replayed struct {
	Ran        int            `json:"ran"`
	Reproduced int            `json:"reproduced"`
	Text       string         `json:"text"` // the violation's sentence
	Digests    map[string]int `json:"digests"`
	History    string         `json:"history"` // of the first run that reproduced it, else of the first
}

func (x *local) replay(ctx context.Context, t replayTask, progress func(stage)) (replayed, error) {
	ce := t.Counterexample
	j, err := x.begin(task{Scenario: ce.Scenario, Route: ce.Route, Impl: ce.Impl, Seed: ce.Seed, Out: t.Out})
	if err != nil {
		return replayed{}, err
	}
	got := replayed{Digests: map[string]int{}}
	for got.Ran < t.Times && ctx.Err() == nil {
		s := j.schedule(ctx, ce.Plan, ce.Schedule, fmt.Sprintf(".replay%d", got.Ran))
		if s.err != nil {
			return got, s.err
		}
		got.Ran++
		progress(stage{Done: got.Ran, Of: t.Times})
		got.Digests[s.digest]++
		shows := s.violated(ce.Invariant)
		switch {
		case shows && got.Reproduced == 0:
			j.out.remove(got.History)
			got.History, got.Text = s.file, textOf(s, ce.Invariant)
		case got.History == "":
			got.History = s.file
		default:
			j.out.remove(s.file)
		}
		if shows {
			got.Reproduced++
		}
	}
	return got, nil
}

func judgeCommand() *cobra.Command {
	var names []string
	c := &cobra.Command{
		Use:   "judge DIR|HISTORY.jsonl ...",
		Short: "Judge saved histories again, without a database",
		Long: `Judge saved histories again, without a database. What a scenario requires (require) is not counted again: it is a matter of all
schedules of a run, and of those that passed only the first history is kept.`,
		Example: `  simrun judge simrun-out/latest
  simrun judge simrun-out/latest/histories/steady.direct.reference.0.jsonl --invariant one-leader`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return judge(cmd.OutOrStdout(), args, names) },
	}
	c.Flags().StringArrayVar(&names, "invariant", nil, "judge by this invariant instead of the scenario's (may be repeated)")
	return c
}

// judge prints a line for each verdict. The exit status is that of a run: 1 for a violation that nobody expected, or when a results
// folder no longer holds one that was expected; 2 for an inconclusive verdict.
func judge(stdout io.Writer, args, names []string) error {
	for _, n := range names {
		if !invariants.Known(n) {
			return usagef("there is no invariant %q%s; see simrun list", n, didYouMean(n, invariantNames()))
		}
	}
	groups, order := map[string]*judged{}, []*judged{}
	for _, a := range args {
		files, err := historiesIn(a)
		if err != nil {
			return err
		}
		for _, file := range files {
			h, err := readHistoryFile(file)
			if err != nil {
				return usageError{err}
			}
			key := fmt.Sprintf("%s, %s, %s", h.Header.Scenario.Name, h.Header.Route, h.Header.Impl)
			g := groups[key]
			if g == nil {
				g = &judged{name: key, expected: h.Header.Scenario.ExpectFor(h.Header.Impl, h.Header.Route), found: map[string]bool{}}
				if len(names) > 0 {
					g.expected = slices.DeleteFunc(g.expected, func(n string) bool { return !slices.Contains(names, n) })
				}
				groups[key], order = g, append(order, g)
			}
			g.whole = g.whole || a != file
			g.print(stdout, file, h, names)
		}
	}
	status := exitOK
	for _, g := range order {
		s, why := g.status()
		if why != "" {
			fmt.Fprintf(stdout, "%s: %s\n", g.name, why)
		}
		status = worse(status, s)
	}
	if status != exitOK {
		return statusError{status}
	}
	return nil
}

// judged is what the judges said of the histories of one scenario, route and implementation.
type judged struct {
	name         string
	expected     []string
	whole        bool // a folder was judged, and with it all that its run found
	found        map[string]bool
	inconclusive bool
}

func (g *judged) print(w io.Writer, file string, h *sim.History, names []string) {
	if len(names) == 0 {
		names = h.Header.Scenario.Invariants
	}
	if len(names) == 0 {
		fmt.Fprintf(w, "%-12s %s: its scenario names no invariant; give one with --invariant\n", sim.StatusInconclusive, filepath.Base(file))
		g.inconclusive = true
	}
	for _, v := range invariants.Check(names, h) {
		note := ""
		switch {
		case v.Status == sim.StatusViolated && slices.Contains(g.expected, v.Invariant):
			note = ", as expected"
		case v.Status == sim.StatusViolated && len(g.expected) > 0:
			note = ", besides what was expected"
		case v.Status == sim.StatusInconclusive:
			note = ": " + v.Reason
			g.inconclusive = true
		}
		if v.Status == sim.StatusViolated {
			g.found[v.Invariant] = true
		}
		fmt.Fprintf(w, "%-12s %s  %s%s\n", v.Status, v.Invariant, filepath.Base(file), note)
		for _, x := range v.Violations {
			fmt.Fprintf(w, "             %s\n", x.Text)
		}
	}
}

// status is what the histories together come to, and why where their lines do not say it. What was found besides the expected
// violations is collateral only where these were found.
func (g *judged) status() (int, string) {
	absent := slices.DeleteFunc(slices.Clone(g.expected), func(n string) bool { return g.found[n] })
	switch {
	case len(g.expected) > 0 && len(absent) == 0:
		return exitOK, ""
	case len(absent) > 0 && g.whole:
		return exitViolated, "expected a violation of " + strings.Join(absent, ", ") + " and found none"
	case slices.ContainsFunc(slices.Collect(maps.Keys(g.found)), func(n string) bool { return !slices.Contains(g.expected, n) }):
		return exitViolated, ""
	case g.inconclusive:
		return exitInconclusive, ""
	}
	return exitOK, ""
}

func invariantNames() (names []string) {
	for _, i := range invariants.All() {
		names = append(names, i.Name)
	}
	return names
}

// historiesIn is the history files a path means: itself, or those of a results folder.
func historiesIn(path string) ([]string, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, usagef("there is no %s; name a results folder such as %s, or a history, which ends in .jsonl", path, filepath.Join("simrun-out", "latest"))
	}
	if filepath.Ext(path) == ".jsonl" {
		return []string{path}, nil
	}
	for _, folder := range []string{filepath.Join(path, "histories"), path} {
		entries, err := os.ReadDir(folder)
		if err != nil {
			continue
		}
		var files []string
		for _, e := range entries {
			if filepath.Ext(e.Name()) == ".jsonl" {
				files = append(files, filepath.Join(folder, e.Name()))
			}
		}
		if len(files) > 0 {
			return files, nil
		}
	}
	return nil, usagef("%s holds no histories (*.jsonl); name a results folder such as %s", path, filepath.Join("simrun-out", "latest"))
}

func reportCommand() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "report DIR...", Short: "Render the page of a results folder again, or several as one", Args: cobra.MinimumNArgs(1),
		Long: `Render the page of a results folder again. Several folders become one page: a table over the runs, with what is newly failing and newly
passing, and then each run's entries. A folder given twice counts once, also by the name latest; one without a result, as simrun replay
leaves it, is passed over.`,
		Example: `  simrun report simrun-out/latest -o report.html
  simrun report simrun-out/* -o runs.html`,
		RunE: func(cmd *cobra.Command, args []string) error {
			pages, err := loadPages(args, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			var b writerBuffer
			if len(pages) == 1 {
				err = reports.HTML(&b, pages[0])
			} else {
				err = reports.RunsHTML(&b, pages)
			}
			if err != nil {
				return err
			}
			if output == "-" {
				_, err := raw(cmd.OutOrStdout()).Write(b) // a page may hold any character
				return err
			}
			if err := writeFile(output, b); err != nil {
				return &sim.EnvironmentError{Problem: output + " could not be written", Err: err}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "report: %s\n", output)
			return nil
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "report.html", "the file to write; - is standard output")
	return c
}

// loadPages reads results folders, each once whatever it is called. Among several, one without a result is passed over.
func loadPages(dirs []string, talk io.Writer) (pages []reports.Page, err error) {
	seen := map[string]bool{}
	for _, dir := range dirs {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return nil, noResults(dir, err)
		}
		if seen[real] {
			continue
		}
		seen[real] = true
		if _, err := os.Stat(filepath.Join(dir, "result.json")); len(dirs) > 1 && errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(talk, "simrun: %s has no result.json and is passed over\n", dir)
			continue
		}
		r, err := readResult(dir)
		if err != nil {
			return nil, err
		}
		page, err := loadPage(dir, r)
		if err != nil {
			fmt.Fprintf(talk, "simrun: some histories are left out: %v\n", err)
		}
		page.Folder = filepath.Base(real)
		pages = append(pages, page)
	}
	if len(pages) == 0 {
		return nil, usagef("none of the %d folders has a result.json; the last run's is %s", len(dirs), filepath.Join("simrun-out", "latest"))
	}
	return pages, nil
}

type writerBuffer []byte

func (b *writerBuffer) Write(p []byte) (int, error) { *b = append(*b, p...); return len(p), nil }

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of scenario files, for editors", Args: cobra.NoArgs,
		Long: `Print the JSON Schema (draft 2020-12) of scenario files. Editors complete and check by it: save it beside your files, and begin each with
# yaml-language-server: $schema=scenario.schema.json`,
		Example: "  simrun schema > scenario.schema.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := scenarios.Schema(scenarios.Implementations(implNames()...), scenarios.Invariants(invariantNames()...))
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(b)
			return err
		},
	}
}

func validateCommand() *cobra.Command {
	return &cobra.Command{
		Use: "validate FILE...", Short: "Check scenario files; every problem at once, with line and column", Args: cobra.MinimumNArgs(1),
		Example: "  simrun validate my-scenario.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			var errs []error
			for _, a := range args {
				if _, err := loadFile(a); err != nil {
					errs = append(errs, err)
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: valid\n", a)
			}
			if len(errs) > 0 {
				return usageError{errors.Join(errs...)}
			}
			return nil
		},
	}
}
