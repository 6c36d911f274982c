package reports

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/seed-aafb3a99/simrun/sim"
)

var screens = flag.String("screens", "", "write pictures of the pages to this folder")

// patience is for a browser on a busy machine.
const patience = 2 * time.Minute

// A tab is a page in a real browser, with what the browser said about it. One is used for page after page: a second one in
// the background gets hardly any time on a busy machine.
type tab struct {
	t    *testing.T
	ctx  context.Context
	mu   sync.Mutex
	said []string // errors, exceptions, refusals of the policy
	urls []string // what was asked for
}

// newTab starts Chromium. It is part of what the tests need (see README); where it is missing they fail and say so.
func newTab(t *testing.T) *tab {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	require.NotEmpty(t, path, "the tests of the report need Chromium: apt-get install chromium")
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU)
	alloc, cancel := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(cancel)
	tb := &tab{t: t}
	ctx, cancel := chromedp.NewContext(alloc, chromedp.WithListener(tb.hear))
	t.Cleanup(cancel)
	tb.ctx = ctx
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate("about:blank"))) // the browser lives as long as this run's context
	return tb
}

// open renders p into a file and opens it, at a width and in a theme.
func (tb *tab) open(t *testing.T, p Page, width, height int64, theme string) {
	t.Helper()
	tb.openHTML(t, render(t, p), width, height, theme)
}

func (tb *tab) openHTML(t *testing.T, html string, width, height int64, theme string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.html")
	require.NoError(t, os.WriteFile(file, []byte(html), 0o600))
	tb.mu.Lock()
	tb.t, tb.said, tb.urls = t, nil, nil
	tb.mu.Unlock()
	tb.do(
		chromedp.EmulateViewport(width, height),
		chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}},
			})
			return err
		}),
		chromedp.Navigate("file://"+file),
	)
}

func (tb *tab) hear(ev any) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	switch e := ev.(type) {
	case *runtime.EventExceptionThrown:
		tb.said = append(tb.said, "exception: "+e.ExceptionDetails.Text+" "+e.ExceptionDetails.Exception.Description)
	case *runtime.EventConsoleAPICalled:
		tb.said = append(tb.said, fmt.Sprintf("console %s: %v", e.Type, e.Args))
	case *cdplog.EventEntryAdded:
		tb.said = append(tb.said, "log: "+e.Entry.Text)
	case *network.EventRequestWillBeSent:
		tb.urls = append(tb.urls, e.Request.URL)
	}
}

func (tb *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	tb.t.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	require.NoError(tb.t, chromedp.Do(ctx, steps...))
}

func eval[T any](tb *tab, js string) T {
	tb.t.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](js))
	require.NoError(tb.t, err, js)
	return v
}

// sound checks what must hold of every page: it loads nothing, breaks nothing, and fits the screen.
func (tb *tab) sound() {
	tb.t.Helper()
	require.Zero(tb.t, eval[int](tb, `performance.getEntriesByType('resource').length`), "nothing is loaded")
	require.True(tb.t, eval[bool](tb, `document.documentElement.classList.contains('js')`), "its own script runs under its policy")
	require.LessOrEqual(tb.t, eval[int](tb, `document.documentElement.scrollWidth`), eval[int](tb, `innerWidth`), "nothing sticks out at the side")
	tb.mu.Lock()
	defer tb.mu.Unlock()
	require.Empty(tb.t, tb.said, "the browser has nothing to complain of")
	for _, u := range tb.urls {
		require.True(tb.t, strings.HasPrefix(u, "file://") && strings.HasSuffix(u, "/report.html"), "asked for %s", u)
	}
}

func (tb *tab) picture(name string) {
	tb.t.Helper()
	if *screens == "" {
		return
	}
	img, err := chromedp.Run(tb.ctx, chromedp.FullScreenshot(100))
	require.NoError(tb.t, err)
	require.NoError(tb.t, os.MkdirAll(*screens, 0o755))
	require.NoError(tb.t, os.WriteFile(filepath.Join(*screens, name+".png"), img, 0o644))
}

// passing is the sample without what failed.
func passing(t testing.TB) Page {
	p := sample(t)
	p.Result.Scenarios = p.Result.Scenarios[:1]
	p.Result.ExitStatus, p.Result.ExitReason, p.Result.Seconds = 0, "every verdict as expected", 1.9
	return p
}

func TestPageInABrowser(t *testing.T) {
	tb := newTab(t)
	for name, p := range map[string]Page{"failing": sample(t), "passing": passing(t)} {
		for _, width := range []int64{1280, 390} {
			for _, theme := range []string{"light", "dark"} {
				t.Run(fmt.Sprintf("%s-%d-%s", name, width, theme), func(t *testing.T) {
					tb.open(t, p, width, 900, theme)
					tb.sound()
					tb.picture(fmt.Sprintf("%s-%d-%s", name, width, theme))
				})
			}
		}
	}
	t.Run("to and fro", func(t *testing.T) {
		tb.open(t, sample(t), 1280, 900, "light")
		tb.namesTheViolation(t)
		tb.steps(t)
		tb.zooms(t)
		tb.filters(t)
		tb.unfolds(t)
		tb.sound()
	})
	t.Run("hostile names do not run", func(t *testing.T) {
		tb.open(t, hostilePage(t), 1280, 900, "light")
		tb.harmless(t)
		tb.click(".every")
		tb.click("[data-step=next]")
		require.Equal(t, "undefined", eval[string](tb, `typeof window.evil`))
		tb.sound()
	})
	t.Run("several runs", func(t *testing.T) {
		for _, width := range []int64{1280, 390} {
			for _, theme := range []string{"light", "dark"} {
				tb.openHTML(t, renderRuns(t, twoRuns(t)), width, 900, theme)
				tb.sound()
				tb.picture(fmt.Sprintf("runs-%d-%s", width, theme))
			}
		}
		require.Contains(t, tb.text("h1"), "The newest run: ")
		require.Contains(t, tb.text(".runs .changes"), "newly failing")
		tb.click(".runs .changes a")
		require.True(t, eval[bool](tb, `document.querySelector(location.hash).open`), "what it links to is unfolded")
		tb.click("details.run summary")
		require.Contains(t, tb.text("details.run .near"), "r1", "a timeline wakes up when it is unfolded")
		tb.sound()
	})
	t.Run("several runs with hostile names", func(t *testing.T) {
		p := hostilePage(t)
		p.Folder = evil
		tb.openHTML(t, renderRuns(t, []Page{p, p}), 390, 900, "light")
		tb.harmless(t)
		tb.click("details.run summary")
		tb.harmless(t)
		tb.sound()
	})
	t.Run("ten thousand events", func(t *testing.T) {
		tb.open(t, long(t, 12_000), 1280, 900, "light")
		require.LessOrEqual(t, eval[int](tb, `document.querySelectorAll('.events tbody tr').length`), maxPageEvents)
		tb.sound()
	})
}

// harmless checks that nothing of what the names try has come true.
func (tb *tab) harmless(t *testing.T) {
	t.Helper()
	require.Zero(t, eval[int](tb, `document.querySelectorAll('img,iframe,object,embed,link,base,form,audio,video,b.evil').length`))
	require.Equal(t, 1, eval[int](tb, `[...document.scripts].filter(s => s.type !== 'application/json').length`))
	require.Zero(t, eval[int](tb, `document.querySelectorAll('[onerror],[onload],[onclick],[style]').length - document.querySelectorAll('#tip[style],.bar[style],.mark[style],.rule[style],.flag[style],.cursor[style]').length`))
	require.Equal(t, "undefined", eval[string](tb, `typeof window.evil`))
}

// twoRuns are a passing run and the sample after it.
func twoRuns(t *testing.T) []Page {
	before, after := passing(t), sample(t)
	before.Result.StartedAt = after.Result.StartedAt.Add(-time.Hour)
	before.Result.Versions.Postgres = "14.11"
	before.Result.Scenarios = append(before.Result.Scenarios, after.Result.Scenarios[1])
	before.Result.Scenarios[1].Status = sim.Passed
	return []Page{before, after}
}

// click clicks the first element that a selector finds.
func (tb *tab) click(selector string) {
	tb.t.Helper()
	eval[bool](tb, fmt.Sprintf(`(document.querySelector(%q).click(), true)`, selector))
}

func (tb *tab) text(selector string) string {
	tb.t.Helper()
	return eval[string](tb, fmt.Sprintf(`document.querySelector(%q).textContent`, selector))
}

func (tb *tab) namesTheViolation(t *testing.T) {
	require.Contains(t, eval[string](tb, `document.title`), "FAIL")
	require.Contains(t, tb.text("h1"), "2 of 5 scenarios failed")
	violation := tb.text("#violation")
	for _, want := range []string{"one-leader", "pause-leader-terminated", "no-heartbeat", "r1", "r2", "pause the leader at 12s for 16s"} {
		require.Contains(t, violation, want)
	}
	require.Contains(t, tb.text(".hero .replay code"), "simrun replay simrun-out/latest/counterexamples/pause-leader")
}

func (tb *tab) steps(t *testing.T) {
	now := func() string { return tb.text(".near [aria-current]") }
	press := func(key string) {
		eval[bool](tb, fmt.Sprintf(`document.querySelector('.tl .scroll').dispatchEvent(new KeyboardEvent('keydown', {key: %q, bubbles: true, cancelable: true}))`, key))
	}
	require.Contains(t, now(), "r1 goes on", "it begins at the violation")
	press("ArrowRight")
	require.Contains(t, now(), "fault 1 (pause) is over")
	press("ArrowLeft")
	press("ArrowLeft")
	require.Contains(t, now(), "r2 begins to lead, in term 2")
	require.Contains(t, tb.text(".now"), "21.275 seconds, r2 begins to lead", "a screen reader is told")
	require.Contains(t, tb.text(".state"), "r1 leads, term 1, paused")
	press("End")
	require.Equal(t, "true", eval[string](tb, `document.querySelector('[data-step=next]').getAttribute('aria-disabled')`))
	press("Home")
	require.Contains(t, now(), "nobody holds the lock")
	tb.click("[data-step=next]")
	require.Contains(t, now(), "r1 is started")
	tb.click(".every")
	press("ArrowRight")
	require.Contains(t, now(), "opens a session for lease", "every event, not only the story")
	tb.click("a[data-go]")
	require.Contains(t, now(), "r1 begins to lead, in term 1")
	tb.click(".near li:last-child button")
	require.NotContains(t, now(), "r1 begins to lead, in term 1")
}

func (tb *tab) zooms(t *testing.T) {
	tb.click("[data-do=focus]")
	near := tb.text(".range")
	require.NotContains(t, near, "whole run")
	tb.click("[data-do=fit]")
	require.Equal(t, "whole run, 70.050s", tb.text(".range"))
	tb.click("[data-do=in]")
	tb.click("[data-do=in]")
	require.NotContains(t, tb.text(".range"), "whole run")
	tb.click("[data-do=focus]")
	require.Equal(t, near, tb.text(".range"))
	tip := eval[string](tb, `(() => {
		const bar = document.querySelector('.bar.belief'), box = bar.getBoundingClientRect();
		bar.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, clientX: box.x + 5, clientY: box.y + 5}));
		return document.getElementById('tip').textContent;
	})()`)
	require.Contains(t, tip, "r1 leads, term 1 from 0.525s to 70.000s")
}

func (tb *tab) filters(t *testing.T) {
	filter := func(words string) int {
		eval[bool](tb, fmt.Sprintf(`(() => { const i = document.querySelector('[data-filter=h0]'); i.value = %q; return i.dispatchEvent(new Event('input')); })()`, words))
		tb.do(chromedp.Sleep(300 * time.Millisecond)) // the page waits for more typing
		return eval[int](tb, `[...document.querySelectorAll('#h0-events tbody tr')].filter(r => !r.hidden).length`)
	}
	require.Equal(t, 2, filter("r2 LEAD"))
	require.Zero(t, filter("r2 lead nonsense"))
	require.Greater(t, filter(""), 100)
}

func (tb *tab) unfolds(t *testing.T) {
	tb.click("details.run summary")
	require.Contains(t, tb.text("details.run .near"), "r1", "a timeline wakes up when it is unfolded")
}
