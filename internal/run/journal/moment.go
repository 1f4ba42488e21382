package journal

import "time"

// moment is a time by two clocks of this machine: Go's, which stops while the machine is suspended, and one that does
// not.
type moment struct {
	at   time.Time
	boot time.Duration
}

func (l *Lease) now() moment { return moment{time.Now(), l.boot()} }

// ago is the time since a moment, including time in suspend.
func (l *Lease) ago(m moment) time.Duration { return max(time.Since(m.at), l.boot()-m.boot) }
