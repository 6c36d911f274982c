package flawed

import "github.com/seed-aafb3a99/simrun/lockimpl/internal/session"

var leavesElection = Flaw{
	Name: "leaves-election",
	Models: "Its wait for the lock belongs to a session, and when that ends while it stands by it goes on waiting, without a word, for something that cannot come: " +
		"of two nodes whose waits had outlived their sessions one led with no lock and the other left the election (cagriekin/charts #326).",
	Terms:  true,
	Probes: true,
	make: func(v *variant) {
		var waited *session.Session // the session on which it was last told busy
		acquire := v.l.Acquire
		v.l.Acquire = func(s *session.Session, key int64) (string, error) {
			if waited != nil && s != waited {
				return session.Busy, nil
			}
			answer, err := acquire(s, key)
			switch answer {
			case session.Busy:
				waited = s
			case session.Acquired:
				waited = nil
			}
			return answer, err
		}
	},
}
