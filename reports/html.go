package reports

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"

	"github.com/seed-aafb3a99/simrun/sim"
)

// A Page is what the HTML report is made from.
type Page struct {
	Result    *sim.Result
	Histories map[string]*sim.History // by file name, as in Entry.Histories and CounterSummary.History
	Folder    string                  // where it lies, to tell it from others
}

// The most a page may be. What does not fit is in the histories beside it.
const (
	maxPageBytes  = 5_000_000
	maxPageEvents = 10_000
)

//go:embed page.html runs.html page.css page.js
var page embed.FS

var (
	styleSheet = mustRead("page.css")
	script     = mustRead("page.js")
	pageHTML   = template.Must(template.New("page.html").Parse(mustRead("page.html")))
	runsHTML   = template.Must(pageHTML.New("runs.html").Parse(mustRead("runs.html")))
	policy     = fmt.Sprintf("default-src 'none'; style-src '%s'; script-src '%s'; base-uri 'none'; form-action 'none'", hashOf(styleSheet), hashOf(script))
)

func mustRead(name string) string {
	b, err := page.ReadFile(name)
	if err != nil {
		panic(err) // the file is part of the program
	}
	return string(b)
}

// hashOf is how a Content-Security-Policy names an inline script or style.
func hashOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// HTML writes the page: one file that loads nothing and runs no script but its own. A page that would be too large gets
// fewer events.
func HTML(w io.Writer, p Page) error {
	if p.Result == nil {
		return fmt.Errorf("render report: there is no result")
	}
	return write(w, pageHTML, func(share int) any { return newView(p, maxPageEvents/share) })
}

// RunsHTML writes several runs as one page of the same kind: a table over the runs, and each run's entries. The histories of a run may be
// left out. A page that would be too large gets fewer events, and then fewer entries.
func RunsHTML(w io.Writer, runs []Page) error {
	if len(runs) == 0 || slices.ContainsFunc(runs, func(p Page) bool { return p.Result == nil }) {
		return fmt.Errorf("render report: there is no result")
	}
	ordered := byTime(runs)
	return write(w, runsHTML, func(share int) any { return newRunsView(ordered, share) })
}

// write writes a page of at most maxPageBytes: view is asked for an ever smaller share of what there is to show, until it fits.
func write(w io.Writer, page *template.Template, view func(share int) any) error {
	var b bytes.Buffer
	for share := 1; ; share *= 2 {
		b.Reset()
		if err := page.Execute(&b, view(share)); err != nil {
			return fmt.Errorf("render report: %w", err)
		}
		if b.Len() <= maxPageBytes || share > maxPageEvents/100 {
			break
		}
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
