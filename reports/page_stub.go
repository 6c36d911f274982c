package reports

import (
	"io"

	"github.com/seed-aafb3a99/simrun/sim"
)

// A Page is what the HTML report is made from.
type Page struct {
	Result    *sim.Result
	Histories map[string]*sim.History // by file name, as in Entry.Histories and CounterSummary.History
}

// HTML writes the page.
func HTML(w io.Writer, p Page) error { return nil }
