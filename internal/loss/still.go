package loss

import (
	"strings"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// nodePort is the class of paths to a node behind whose port others answer.
const nodePort = "node-port"

// Stills knows when the processes that answer probes stood still. Each of them sends probes too, and where it did not run
// all that it sends is late by the same time. That is told on its own node's clock, which is taken for the sender's.
type Stills struct {
	timeout time.Duration
	senders map[v1alpha1.Endpoint][]sender // by node and network
	members map[string][]v1alpha1.Endpoint // of each network
}

// sender is what one path tells of the process that sends on it.
type sender struct {
	since, last time.Time
	stalls      []v1alpha1.Gap
}

// NewStills knows nothing yet. The timeout is that of the probes; 0 means DefaultTimeout.
func NewStills(timeout time.Duration) *Stills {
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	return &Stills{timeout: timeout, senders: map[v1alpha1.Endpoint][]sender{}, members: map[string][]v1alpha1.Endpoint{}}
}

// Add takes what a path that was measured from a moment to another tells of its source. One that seldom sends does not
// notice when it does not run.
func (s *Stills) Add(p v1alpha1.Path, since, last time.Time, stalls []v1alpha1.Gap) {
	if time.Duration(p.IntervalMillis)*time.Millisecond > s.timeout/8 {
		return
	}
	who := process(p.Source)
	if s.senders[who] == nil {
		s.members[who.Network] = append(s.members[who.Network], who)
	}
	s.senders[who] = append(s.senders[who], sender{since, last, stalls})
}

// Unheard counts the probes of a gap that say nothing about the network: for at least half of the time that they had,
// nobody who could have answered ran. It never counts one of a path that policy denies, one that was refused, or one
// of which it is not known who answers, such as a name server.
func (s *Stills) Unheard(p v1alpha1.Path, gap v1alpha1.Gap) (probes int64) {
	if p.Denied || gap.Cause != "" && !strings.Contains(gap.Cause, "timeout") {
		return 0
	}
	answering := s.answering(p)
	for n := range gap.Probes {
		if s.allStill(answering, gap.From.Add(time.Duration(n)*time.Duration(p.IntervalMillis)*time.Millisecond)) {
			probes++
		}
	}
	return probes
}

// answering are the processes that may answer on a path: one, or behind a Service all of the network.
func (s *Stills) answering(p v1alpha1.Path) []v1alpha1.Endpoint {
	switch {
	case p.Target.Network == "":
		return nil
	case p.Target.Node == "" || p.Class == nodePort:
		return s.members[p.Target.Network]
	}
	return []v1alpha1.Endpoint{process(p.Target)}
}

func (s *Stills) allStill(processes []v1alpha1.Endpoint, sent time.Time) bool {
	for _, who := range processes {
		if s.still(who, sent, sent.Add(s.timeout)) < s.timeout/2 {
			return false
		}
	}
	return len(processes) > 0
}

// still is for how long a process did not run between two moments, by each of the paths that it sent on then.
func (s *Stills) still(who v1alpha1.Endpoint, from, to time.Time) time.Duration {
	least := time.Duration(-1)
	for _, sender := range s.senders[who] {
		if sender.since.After(from) || sender.last.Before(from) {
			continue
		}
		var sum time.Duration
		for _, stall := range sender.stalls {
			end := stall.From.Add(time.Duration(stall.Millis * float64(time.Millisecond)))
			sum += max(0, earlier(end, to).Sub(later(stall.From, from)))
		}
		if least < 0 || sum < least {
			least = sum
		}
	}
	return max(least, 0)
}

func process(end v1alpha1.Endpoint) v1alpha1.Endpoint {
	return v1alpha1.Endpoint{Node: end.Node, Network: end.Network}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
