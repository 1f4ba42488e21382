package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/run/guarded/result"
)

// Samples are the connections between pods of the user that a guard sampled.
type Samples struct {
	Allowed int `json:"allowed"`
	Denied  int `json:"denied"`
	// Rounds is how often each was opened since the baseline.
	Rounds int `json:"rounds"`
	// Changed are those that are not as before the change, and Contradicting those of which the model of the policies
	// said something else before it.
	Changed       []SampledPair `json:"changed,omitempty"`
	Contradicting []SampledPair `json:"contradicting,omitempty"`
	// Lacks says why some were not tried before the change.
	Lacks string `json:"lacks,omitempty"`
	// Unevaluated are policies that the model leaves out: nothing about which one of them may decide was sampled.
	Unevaluated []string `json:"unevaluated,omitempty"`
}

// SampledPair is one connection.
type SampledPair struct {
	Node string `json:"node"`
	From string `json:"from"`
	To   string `json:"to"`
	Port int    `json:"port"`
	// Policy is "allowed" or "denied", and Change what became of it: lost, leaked, opened, refused, gone, unknown.
	Policy string      `json:"policy"`
	Change result.Turn `json:"change,omitempty"`
	Before string      `json:"before"`
	Now    string      `json:"now,omitempty"`
	At     time.Time   `json:"at,omitzero"`
	says   string
}

// sampledPairs reads the journal of a guard.
func sampledPairs(in Input) *Samples {
	if in.Plan == nil || !in.Plan.Foreign() || len(in.Plan.Pairs()) == 0 {
		return nil
	}
	r, s := result.Of(in.Plan, in.Records), &Samples{Unevaluated: in.Plan.Unevaluated()}
	for i, pair := range in.Plan.Pairs() {
		if pair.Denied {
			s.Denied++
		} else {
			s.Allowed++
		}
		before := r.SampledBefore
		if before == nil || i >= len(before.Last) || !result.Contradicts(pair, before.Last[i]) {
			continue
		}
		s.Contradicting = append(s.Contradicting, SampledPair{Node: pair.Node, From: pair.From.String(),
			To: pair.To.String(), Port: pair.Port, Policy: pair.Verdict(), Before: before.Last[i].String(),
			says: result.Contradiction(pair, before.Last[i])})
	}
	if r.SampledBefore != nil {
		s.Lacks = r.SampledBefore.Lacks
	}
	s.Rounds = r.SampleRounds()
	for _, p := range r.Turns() {
		s.Changed = append(s.Changed, SampledPair{p.Node, p.From.String(), p.To.String(), p.Port, p.Verdict(), p.Turn,
			p.Before.String(), p.Now.String(), p.At, p.String()})
	}
	return s
}

// count counts the changes of a kind.
func (s *Samples) count(turn result.Turn) (n int64) {
	if s == nil {
		return 0
	}
	for _, p := range s.Changed {
		if p.Change == turn {
			n++
		}
	}
	return n
}

// fails counts the connections that are a proven loss.
func (s *Samples) fails() int64 { return s.count(result.Cut) + s.count(result.Leaked) }

// costs names the connections that are a proven loss.
func (s *Samples) costs() []string {
	var parts []string
	if n := s.count(result.Cut); n > 0 {
		parts = append(parts, countOf(n, "sampled connection")+" lost")
	}
	if n := s.count(result.Leaked); n > 0 {
		parts = append(parts, countOf(n, "denied connection")+" let through")
	}
	return parts
}

// Text says what became of the sampled connections; empty if there are none.
func (s *Samples) Text() string {
	if s == nil {
		return ""
	}
	text := fmt.Sprintf("%s (%d allowed, %d denied by policy), opened %s since the baseline",
		countOf(int64(s.Allowed+s.Denied), "connection"), s.Allowed, s.Denied, timesText(s.Rounds))
	parts := s.costs()
	if n := s.count(result.Left) + s.count(result.Unknown); n > 0 {
		parts = append(parts, fmt.Sprintf("%d not compared", n))
	}
	if len(parts) == 0 {
		return text
	}
	return text + "; " + strings.Join(parts, ", ")
}

// samplesNotes say which connections changed, and which never were as the policies have it.
func samplesNotes(s *Samples) []string {
	if s == nil {
		return nil
	}
	var list []string
	for _, turn := range []struct {
		turn result.Turn
		says string
	}{{result.Cut, "Sampled connection lost: "}, {result.Leaked, "Denied connection let through: "},
		{result.Opens, "Sampled connection gets through only since the change: "},
		{result.Refuses, "Sampled connection refused since the change, by the pod or for it: "},
		{result.Left, "Not compared, because a pod is gone: "}, {result.Unknown, "Not compared: "}} {
		for _, p := range s.Changed {
			if p.Change == turn.turn {
				list = append(list, turn.says+p.says)
			}
		}
	}
	for _, p := range s.Contradicting {
		list = append(list, "Before the change, "+p.says+". It is compared with itself only.")
	}
	for _, left := range s.Unevaluated {
		list = append(list, "No connection was sampled about which these may decide: "+left)
	}
	if s.Lacks != "" {
		list = append(list, "Sampled connections before the change: "+s.Lacks)
	}
	return list
}

// samplesFigures are the figure of the sampled connections, if there are some.
func samplesFigures(s *Samples) []figure {
	switch {
	case s == nil:
		return nil
	case s.Rounds == 0:
		return []figure{{"Sampled connections changed", noData, "none was opened since the baseline", "none"}}
	}
	return []figure{{"Sampled connections changed", number(s.fails()),
		fmt.Sprintf("of %d allowed and %d denied by policy", s.Allowed, s.Denied), toneOf(s.fails() > 0)}}
}
