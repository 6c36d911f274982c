package virtual

// An outsider carries out functions outside the bubble, on real time: what uses timers, networks or processes by Go's
// own means. The caller waits on a channel that does not belong to its bubble, so virtual time stands still.
type outsider struct{ jobs chan func() }

func newOutsider() *outsider {
	o := &outsider{jobs: make(chan func())}
	go func() {
		for f := range o.jobs {
			f()
		}
	}()
	return o
}

func (o *outsider) do(f func()) {
	done := make(chan struct{})
	o.jobs <- func() {
		defer close(done)
		f()
	}
	<-done
}

func (o *outsider) stop() { close(o.jobs) }
