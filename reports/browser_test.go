package reports

import (
	"bytes"
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
	var b bytes.Buffer
	require.NoError(t, HTML(&b, p))
	file := filepath.Join(t.TempDir(), "report.html")
	require.NoError(t, os.WriteFile(file, b.Bytes(), 0o600))
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
}
