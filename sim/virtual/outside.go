package virtual

// An outsider carries out functions outside the bubble, on real time: what uses timers, networks or processes by Go's
// own means. Its channels do not belong to a bubble, so that virtual time stands still while the caller waits.
type outsider struct {
	jobs chan func()
	done chan struct{}
}

func newOutsider() *outsider {
	o := &outsider{jobs: make(chan func()), done: make(chan struct{})}
	go func() {
		for f := range o.jobs {
			f()
			o.done <- struct{}{}
		}
	}()
	return o
}

// do carries f out. One caller at a time.
func (o *outsider) do(f func()) {
	o.jobs <- f
	<-o.done
}

func (o *outsider) stop() { close(o.jobs) }
