package loss

import (
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// nodePort is the class of paths to a node's port, behind which other nodes answer.
const nodePort = "node-port"

// Stalls knows when the processes that answer probes were stalled. Each of them sends probes too, and after a stall all
// of its sends are late by the same time. It reports stalls on its own node's clock, which is taken for the sender's.
type Stalls struct {
	timeout time.Duration
	senders map[v1alpha1.Endpoint][]sender // by node and network
	absent  map[v1alpha1.Endpoint][]v1alpha1.Absence
	members map[string][]v1alpha1.Endpoint // of each network
}

// sender is what one path reports about the process that sends on it.
type sender struct {
	since, last time.Time
	stalls      []v1alpha1.Gap
}

// NewStalls has no stalls yet. The timeout is that of the probes; 0 means DefaultTimeout.
func NewStalls(timeout time.Duration) *Stalls {
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	return &Stalls{timeout: timeout, senders: map[v1alpha1.Endpoint][]sender{},
		absent: map[v1alpha1.Endpoint][]v1alpha1.Absence{}, members: map[string][]v1alpha1.Endpoint{}}
}

// Add adds what a path, measured from since to last, reports about its source. A path with a long interval is ignored:
// it does not notice a stall of its source.
func (s *Stalls) Add(p v1alpha1.Path, since, last time.Time, stalls []v1alpha1.Gap) {
	if time.Duration(p.IntervalMillis)*time.Millisecond > s.timeout/8 {
		return
	}
	who := process(p.Source)
	if s.senders[who] == nil {
		s.members[who.Network] = append(s.members[who.Network], who)
	}
	s.senders[who] = append(s.senders[who], sender{since, last, stalls})
}

// Gone adds a node's report of when its probers were absent.
func (s *Stalls) Gone(node string, parts []v1alpha1.Part) {
	for _, part := range parts {
		who := v1alpha1.Endpoint{Node: node, Network: part.Name}
		s.absent[who] = append(s.absent[who], part.Gone...)
	}
}

// Excused counts the probes of a gap that say nothing about the network: for at least half of the time that they had,
// all possible responders were stalled. If the path has a second responder, on the same node and in the same network,
// that must have answered throughout the gap; behind a Service it is then enough that one of the Service's processes
// was stalled. A refused probe is only excused on such a path. Probes of a path that policy denies are never excused,
// nor those whose responder is unknown, such as a name server.
func (s *Stalls) Excused(p v1alpha1.Path, gap v1alpha1.Gap) (probes int64) {
	refused := gap.Cause != "" && !strings.Contains(gap.Cause, "timeout")
	switch {
	case p.Denied:
		return 0
	case p.Second != "" && !seconded(gap.Second):
		return 0
	case p.Second == "" && refused:
		return 0
	}
	answering := s.answering(p)
	need := len(answering)
	if p.Second != "" {
		// behind a Service any of them may have been asked, and the others' second responders answered
		need = min(need, 1)
	}
	slack := opens
	// the first probe after an absence finds the connection broken, and the next may be too early for a new one
	if p.Protocol == v1alpha1.TCP {
		slack += 2 * time.Duration(p.IntervalMillis) * time.Millisecond
	}
	for n := range gap.Probes {
		if need > 0 && s.stalledOf(answering,
			gap.From.Add(time.Duration(n)*time.Duration(p.IntervalMillis)*time.Millisecond), slack) >= need {
			probes++
		}
	}
	return probes
}

// maxSilence is how long a second responder may be silent in a gap that it explains.
const maxSilence = time.Second

func seconded(second v1alpha1.Second) bool {
	return second.Answered > 0 && second.SilentMillis <= millis(maxSilence)
}

// answering are the processes that may answer on a path: one, or behind a Service all of the network.
func (s *Stalls) answering(p v1alpha1.Path) []v1alpha1.Endpoint {
	switch {
	case p.Target.Network == "":
		return nil
	case p.Target.Node == "" || p.Class == nodePort:
		return s.members[p.Target.Network]
	}
	return []v1alpha1.Endpoint{process(p.Target)}
}

// stalledOf is how many of the processes were absent, or stalled for at least half of the time that a probe had.
func (s *Stalls) stalledOf(processes []v1alpha1.Endpoint, sent time.Time, slack time.Duration) (count int) {
	for _, who := range processes {
		if s.gone(who, sent, slack) || s.stalled(who, sent, sent.Add(s.timeout)) >= s.timeout/2 {
			count++
		}
	}
	return count
}

// stalled is how long a process was stalled between two moments, according to each of the paths on which it sent then.
func (s *Stalls) stalled(who v1alpha1.Endpoint, from, to time.Time) time.Duration {
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

// opens is how long a new prober takes until it answers.
const opens = 100 * time.Millisecond

// gone reports whether a process was absent at a moment, or shortly before. Probes to it are lost then, however soon it
// is back.
func (s *Stalls) gone(who v1alpha1.Endpoint, at time.Time, slack time.Duration) bool {
	return slices.ContainsFunc(s.absent[who], func(gone v1alpha1.Absence) bool {
		return !at.Before(gone.From) && at.Before(gone.To.Add(slack))
	})
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
