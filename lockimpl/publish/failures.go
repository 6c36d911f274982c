package publish

import "slices"

// A failure is a unit's run of failures of the infrastructure.
type failure struct {
	inRow     int
	until     int  // it is left out of the list before this tick
	sinceThen bool // another unit succeeded after the first of them
}

// tooMany failures in a row, while others succeed, are the task's own.
const tooMany = 5

// failed counts a failure of the infrastructure. It reports true when there were too many to believe in that. After
// the first the unit is tried again in the next tick, then after 2, 4 and 8: rows that cannot be published must not fill every list.
func (w *worker) failed(row Row) bool {
	f := w.failures[row]
	if f == nil {
		f = &failure{}
		w.failures[row] = f
	}
	f.inRow++
	f.until = w.ticks + 1<<(min(f.inRow, 4)-1)
	return f.inRow >= tooMany && f.sinceThen
}

func (w *worker) succeeded(row Row) {
	delete(w.failures, row)
	for _, f := range w.failures { // in any order: each is only marked
		f.sinceThen = true
	}
}

// skipped is the rows to leave out of the list, in order.
func (w *worker) skipped() []int64 {
	skip := []int64{}
	for row, f := range w.failures {
		if w.ticks < f.until {
			skip = append(skip, row.ID)
		}
	}
	slices.Sort(skip)
	return slices.Compact(skip)
}

// forget drops the failures of units that are not due any more, given a complete list.
func (w *worker) forget(listed []Row) {
	for row, f := range w.failures {
		if w.ticks >= f.until && !slices.Contains(listed, row) {
			delete(w.failures, row)
		}
	}
}
