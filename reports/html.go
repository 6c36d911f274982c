package reports

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"

	"github.com/seed-aafb3a99/simrun/sim"
)

// A Page is what the HTML report is made from.
type Page struct {
	Result    *sim.Result
	Histories map[string]*sim.History // by file name, as in Entry.Histories and CounterSummary.History
}

// The most a page may be. What does not fit is in the histories beside it.
const (
	maxPageBytes  = 5_000_000
	maxPageEvents = 10_000
)

//go:embed page.html page.css page.js
var page embed.FS

var (
	styleSheet = mustRead("page.css")
	script     = mustRead("page.js")
	pageHTML   = template.Must(template.New("page.html").Parse(mustRead("page.html")))
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
	var b bytes.Buffer
	for events := maxPageEvents; ; events /= 2 {
		b.Reset()
		if err := pageHTML.Execute(&b, newView(p, events)); err != nil {
			return fmt.Errorf("render report: %w", err)
		}
		if b.Len() <= maxPageBytes || events < 100 {
			break
		}
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
