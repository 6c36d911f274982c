// Command screenshots makes the pictures of this folder: it runs simrun for a failing and for a passing page, and photographs the top of each in
// Chromium, wide and narrow, light and dark. See make screenshots.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// patience is for a browser on a busy machine.
const patience = 2 * time.Minute

// A shot is a run whose page is photographed, with the exit status that it must have.
type shot struct {
	name   string
	args   []string
	status int
}

func main() {
	program := flag.String("simrun", "bin/simrun", "the simrun to run")
	out := flag.String("out", "docs/screenshots", "where the pictures go")
	flag.Parse()
	if err := make8(*program, *out); err != nil {
		fmt.Fprintln(os.Stderr, "screenshots:", err)
		os.Exit(1)
	}
}

func make8(program, out string) error {
	program, err := filepath.Abs(program)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "simrun-screenshots-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	scenario, err := chapter("docs/guide/3-read-a-failure.md", "```yaml mine.yaml\n")
	if err != nil {
		return err
	}
	ctx, stop, err := browser()
	if err != nil {
		return err
	}
	defer stop()
	for _, s := range []shot{
		{"failing", []string{"run", "mine.yaml", "--seed", "1", "--schedules", "2"}, 1},
		{"passing", []string{"run", "steady", "kill-leader", "disconnect-leader", "--route", "direct", "--seed", "1", "--schedules", "3"}, 0},
	} {
		home := filepath.Join(dir, s.name)
		err := errors.Join(os.MkdirAll(filepath.Join(home, "bin"), 0o755), os.WriteFile(filepath.Join(home, "mine.yaml"), []byte(scenario), 0o644),
			os.Symlink(program, filepath.Join(home, "bin/simrun"))) // a short name, since the page shows the command
		if err != nil {
			return err
		}
		cmd := exec.Command("bin/simrun", s.args...)
		cmd.Dir = home
		text, err := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != s.status {
			return fmt.Errorf("%s ended with %d (%v), which should be %d:\n%s", cmd, got, err, s.status, text)
		}
		page := filepath.Join(home, "simrun-out", "latest", "report.html")
		for _, width := range []int64{1280, 390} {
			for _, theme := range []string{"light", "dark"} {
				file := filepath.Join(out, fmt.Sprintf("%s-%d-%s.png", s.name, width, theme))
				if err := photograph(ctx, page, width, theme, file); err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
			}
		}
	}
	return nil
}

// chapter is the block of a page that begins with a fence.
func chapter(page, fence string) (string, error) {
	b, err := os.ReadFile(page)
	if err != nil {
		return "", err
	}
	_, rest, ok := strings.Cut(string(b), fence)
	block, _, closed := strings.Cut(rest, "```\n")
	if !ok || !closed {
		return "", fmt.Errorf("%s has no block %q", page, fence)
	}
	return block, nil
}

func browser() (ctx context.Context, stop func(), err error) {
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		return nil, nil, errors.New("there is no chromium: apt-get install chromium")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU)
	alloc, cancel := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, end := chromedp.NewContext(alloc)
	stop = func() { end(); cancel() }
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil { // the browser lives as long as this run's context
		stop()
		return nil, nil, err
	}
	return ctx, stop, nil
}

// photograph takes the top of a page: as much as tells what it is like, and no more than a picture in a repository should weigh.
func photograph(ctx context.Context, page string, width int64, theme, file string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	height := int64(1240)
	if width < 640 {
		height = 1560
	}
	err := chromedp.Do(ctx,
		chromedp.EmulateViewport(width, height),
		chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}},
			})
			return err
		}),
		chromedp.Navigate("file://"+page),
	)
	if err != nil {
		return err
	}
	shot, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		return err
	}
	img, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, img); err != nil {
		return err
	}
	if len(shot) < b.Len() {
		b = *bytes.NewBuffer(shot)
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}
